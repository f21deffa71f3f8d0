"""The log of a running Groundwire: what it never holds, what it holds if the operator wants it, and that nothing stops
when nobody reads it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from proxy.callers.keys import ClientKeys
from proxy.config.settings import LogConfig, ServerConfig
from proxy.dialects.chat import ChatDialect
from proxy.serving.edge import Edge
from proxy.watching.log import RequestLog
from proxy.watching.metrics import Metrics
from proxy.watching.observer import Listener
from tests.e2e.conftest import SITE
from tests.fakes.groundwire import SCRIPT, Groundwire, config_file, environment
from tests.fakes.log_lines import entry, line
from tests.fakes.model import ModelServer, Turn, call, text
from tests.fakes.samples import Samples

CLIENT = httpx.Client(timeout=20, limits=httpx.Limits(max_keepalive_connections=0))
QUESTION = "Why is the sky blue, asks the patient?"
QUERY = "sky scatters for the patient"
SCOPE = {
    "type": "http",
    "method": "GET",
    "path": "/v1/x",
    "raw_path": b"/v1/x",
    "headers": [(b"host", b"localhost")],
}


def post(proxy: Groundwire, headers: Any = None, **fields: Any) -> httpx.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": QUESTION}], **fields}
    return CLIENT.post(f"{proxy.url}/chat/completions", json=body, headers=headers)


def ask_everything(proxy: Groundwire, model: ModelServer) -> None:
    """Searches, pages and failures, all of them about the patient."""
    model.script(
        call("web_search", {"query": QUERY}),
        call("open_page", {"url": f"{SITE}sky.md", "query": QUESTION}),
        text("For the patient [1]."),
    )
    assert post(proxy, stream=True).status_code == 200
    CLIENT.post(f"{proxy.url}/search", json={"query": QUERY})
    CLIENT.post(f"{proxy.url}/open", json={"url": f"{SITE}sea.md"})
    complaint = f"tools are not supported for {QUESTION}"
    error = json.dumps({"error": {"message": complaint, "code": complaint, "type": complaint}}).encode()
    for turn in (
        Turn(status=400, body=error),
        Turn(status=500, body=error),
        Turn(body=f"<html>{QUESTION}</html>".encode(), content_type="text/html"),
        Turn(body=f"data: {QUESTION}\n\n".encode(), content_type="text/event-stream"),
    ):
        for headers in ({}, {"x-groundwire-search": "off"}):
            model.script(turn, text("Blue."))
            post(proxy, headers, stream=True, model=f"m-{turn.status}")
            model.script(turn, text("Blue."))
            last = post(proxy, headers, model=f"m-{turn.status}")
    line(proxy, last.headers["x-request-id"])


def test_nothing_that_people_wrote_is_in_it(config: dict[str, Any], model: ModelServer) -> None:
    for kind in ("text", "json"):
        with Groundwire({**config, "log": {"format": kind, "level": "debug"}}) as proxy:
            ask_everything(proxy, model)
            log = proxy.log.read_text()
            assert log.count("/v1/chat/completions") >= 17
            assert "takes no tools" in log
            assert "expected an answer, got" in log
            for word in ("patient", QUERY, "sky.md", "sea.md"):
                assert word not in log


def test_queries_and_addresses_where_the_operator_wants_them(config: dict[str, Any], model: ModelServer) -> None:
    with Groundwire({**config, "log": {"format": "json", "contents": True}}) as proxy:
        model.script(
            call("web_search", {"query": QUERY}),
            call("open_page", {"url": f"{SITE}sky.md", "query": QUESTION}),
            call("web_search", {"query": "what is sk-aaaaaaaaaaaaaaaaaaaaaaaa"}),
            text("Blue [1]."),
        )
        assert entry(proxy, post(proxy))["contents"] == [
            {"tool": "web_search", "query": QUERY},
            {"tool": "open_page", "url": f"{SITE}sky.md"},
            {"tool": "web_search", "query": "…"},
        ]
        assert QUESTION not in proxy.log.read_text()
        found = CLIENT.post(f"{proxy.url}/search", json={"query": "green tea"})
        assert entry(proxy, found)["contents"] == [{"tool": "web_search", "query": "green tea"}]
        urls = [f"{SITE}sky.md", f"{SITE}sea.md"]
        opened = CLIENT.post(f"{proxy.url}/open", json={"urls": urls})
        assert entry(proxy, opened)["contents"] == [{"tool": "open_page", "url": url} for url in urls]
        model.script(Turn(body=b"<html>no model here</html>", content_type="text/html"))
        post(proxy)
        assert "no model here" in json.loads(line(proxy, "expected an answer"))["message"]


def test_a_line_for_people(config: dict[str, Any], model: ModelServer) -> None:
    with Groundwire({**config, "server": {"keys": [{"key": "gw-the-key", "name": "the office"}]}}) as proxy:
        model.script(call("web_search", {"query": "sky"}), text("Blue [1]."))
        answer = post(proxy, {"authorization": "Bearer gw-the-key"}, stream=True)
        said = line(proxy, answer.headers["x-request-id"])
        assert re.fullmatch(
            r"\d\d:\d\d:\d\d POST /v1/chat/completions 200 seconds=\d+\.\d{3} first_content=[\d.]+ "
            r'key="the office" model=m upstream=scripted search=offered reason=auto rounds=2 '
            r"searches=library:ok:\d+ms citations=1 input_tokens=20 output_tokens=10 outcome=ok request=req_\w+\n",
            said,
        ), said


def test_its_level(config: dict[str, Any], model: ModelServer) -> None:
    with Groundwire({**config, "log": {"level": "warning"}}) as proxy:
        model.script(Turn(body=b"<html>", content_type="text/html"))
        post(proxy)
        line(proxy, "upstream scripted: expected an answer")
        assert "/v1/chat/completions" not in proxy.log.read_text()


def test_a_path_that_a_terminal_would_obey(config: dict[str, Any]) -> None:
    with Groundwire(config) as proxy:
        host, port = proxy.root.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"GET /\xc2\x9b31m\x9bm HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = b""
            while part := connection.recv(65536):
                answer += part
        assert b"HTTP/1.1 4" in answer
        long = CLIENT.get(f"{proxy.root}/{'a' * 5000}")
        assert len(line(proxy, long.headers["x-request-id"])) < 1000
        assert b"\x9b" not in proxy.log.read_bytes()


def test_a_models_name_cannot_write_lines(config: dict[str, Any], model: ModelServer) -> None:
    with Groundwire(config) as proxy:
        model.script(Turn(status=400, body=b'{"error":{"message":"m does not support tools"}}'), text("Blue."))
        answer = post(proxy, model="m\n23:59:59 GET /forged 200")
        line(proxy, answer.headers["x-request-id"])
        log = proxy.log.read_text()
        assert "takes no tools" in log
        assert not any(found.startswith("23:59:59") for found in log.splitlines())


# Nobody reads it


@contextmanager
def served(folder: Path, config: dict[str, Any], stderr: int, redirection: str) -> Iterator[str]:
    """A server whose stderr goes to `stderr`, or where the shell's `redirection` says."""
    command = f"exec {shlex.quote(str(SCRIPT))} serve --config {shlex.quote(config_file(folder, config))} --port 0"
    process = subprocess.Popen(
        ["/bin/sh", "-c", f"{command} {redirection}"],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env=environment(None),
    )
    assert process.stdout is not None
    try:
        yield next(said for said in process.stdout if "listening on" in said).split()[-1]
        assert process.poll() is None, "it still runs"
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", ""], ids=["closed", "full", "nobody reads"])
def test_a_log_that_nobody_reads_stops_nothing(
    tmp_path: Path, config: dict[str, Any], model: ModelServer, redirection: str
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with served(tmp_path, config, writing, redirection) as root:
        os.close(writing)
        for turn in (text("Blue."), Turn(body=b"<html>", content_type="text/html"), text("Blue.")):
            model.script(turn)
            body = {"model": "m", "messages": [{"role": "user", "content": QUESTION}]}
            answer = CLIENT.post(f"{root}/v1/chat/completions", json=body)
            assert answer.status_code == (200 if turn.text else 502)
        assert (
            Samples(CLIENT.get(f"{root}/metrics").content)(
                "groundwire_requests_total", dialect="chat", upstream="scripted", outcome="ok"
            )
            == 2
        )


# A crash of ours, and the end


async def secret() -> bytes:
    return b"s"


def edge_around(app: Any, *listeners: Listener) -> Edge:
    return Edge(app, ServerConfig(), ClientKeys([], secret), lambda path, headers: ChatDialect(), listeners)


@pytest.mark.parametrize("sent", [False, True], ids=["before the answer", "in its midst"])
async def test_a_crash_of_ours(sent: bool) -> None:
    """An application that breaks, behind the real edge: the line, the count, the trace, and no contents."""

    async def broken(scope: Any, receive: Any, send: Any) -> None:
        if sent:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise KeyError(QUESTION)

    lines: list[str] = []
    metrics, answered = Metrics(), asyncio.Queue[Any]()
    edge = edge_around(broken, RequestLog(LogConfig(), write=lines.append), metrics)
    crash = edge(SCOPE, answered.get, answered.put)
    if sent:
        with pytest.raises(KeyError):
            await crash
    else:
        await crash
        assert answered.get_nowait()["status"] == 500
        assert json.loads(answered.get_nowait()["body"])["error"]["code"] == "internal_error"
    edge.tell_ends()
    (said,) = lines
    assert f" GET /v1/x {200 if sent else 500} " in said
    assert " outcome=internal_error " in said
    shown = Samples(metrics.exposition())
    assert shown("groundwire_requests_total", dialect="chat", upstream="", outcome="failed") == 1


async def test_an_answer_that_the_end_of_the_server_cuts_off() -> None:
    """Half of a body has gone out: nobody can say it to the client, but the log can."""
    begun = asyncio.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        begun.set()
        await asyncio.sleep(60)

    lines: list[str] = []
    edge = edge_around(endless, RequestLog(LogConfig(), write=lines.append))
    answering = asyncio.create_task(edge(SCOPE, asyncio.Queue[Any]().get, asyncio.Queue[Any]().put))
    await begun.wait()
    edge.stop_now()
    await answering
    edge.tell_ends()
    assert " 200 " in lines[0]
    assert " outcome=shutting_down " in lines[0]


def test_its_trace_is_in_the_log_without_contents(tmp_path: Path) -> None:
    code = (
        "import logging\n"
        "from proxy.config.settings import LogConfig\n"
        "from proxy.watching.log import set_up\n"
        "import sys\n"
        "set_up(LogConfig(format=sys.argv[1], contents=sys.argv[2] == 'on'))\n"
        "try:\n    raise KeyError('the patient')\n"
        "except KeyError:\n    logging.getLogger('groundwire').exception('%s failed', 'it')\n"
    )
    script = tmp_path / "crash.py"
    script.write_text(code)
    for kind in ("text", "json"):
        for contents in ("off", "on"):
            python = SCRIPT.with_name("python")
            done = subprocess.run([python, script, kind, contents], capture_output=True, text=True, timeout=60)
            trace = json.loads(done.stderr)["traceback"] if kind == "json" else done.stderr
            assert "Traceback (most recent call last)" in trace
            assert "KeyError" in trace
            assert ("the patient" in done.stderr.replace("raise KeyError('the patient')", "")) == (contents == "on")
