"""The process itself: signals while it answers, a log that cannot be written, no descriptors: rows 73, 74, 81, 82."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.test_log import served
from tests.e2e.test_serve import (
    ENDLESS,
    assert_clean,
    errors_in,
    exit_code,
    send,
    streaming,
    wait_until_refused,
)
from tests.fakes.bad_heads import GET
from tests.fakes.groundwire import Groundwire
from tests.fakes.log_lines import eventually
from tests.fakes.model import ModelServer, text
from tests.fakes.raw_client import connect, error_in, exchange, status_of
from tests.fakes.samples import Samples
from tests.faults.asking import ask, road_headers
from tests.faults.table import BOTH, fault

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Why?"}]}
SEARCH = {"searched": "on", "forwarded": "off"}


# Signals


async def read_streams(proxy: Groundwire, road: str, count: int, all_begun: Callable[[], None]) -> list[str]:
    """What so many streams say; `all_begun` is called once each has said its first word."""
    begun = 0

    async def read(client: httpx.AsyncClient) -> str:
        nonlocal begun
        said = ""
        body = {**CHAT, "stream": True}
        async with client.stream(
            "POST", f"{proxy.url}/chat/completions", json=body, headers=road_headers(road)
        ) as answer:
            async for piece in answer.aiter_text():
                first = "word" not in said
                said += piece
                if first and "word" in said:
                    begun += 1
                    if begun == count:
                        all_begun()
        return said

    async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=None)) as client:
        return await asyncio.gather(*(read(client) for _ in range(count)))


def get(proxy: Groundwire, path: str) -> bytes:
    return exchange(
        proxy, GET.replace(b"/healthz", path.encode()).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    )


@fault(73, *BOTH)
def test_sigterm_with_50_streams_open(config: dict[str, Any], model: ModelServer, road: str) -> None:
    model.script(text(*["word "] * 40, delay=0.1))
    seen: list[bytes] = []
    with Groundwire({**config, "server": {"lame_duck": 3, "queue": 30}}) as proxy:

        def leave() -> None:
            send(proxy, signal.SIGTERM)
            seen.append(eventually(lambda: b" 503 " in (found := get(proxy, "/readyz")) and found))
            seen.extend(get(proxy, path) for path in ("/healthz", "/v1/models"))

        streams = asyncio.run(read_streams(proxy, road, 50, leave))
        wait_until_refused(proxy)
        assert exit_code(proxy, 20) == 0
        assert_clean(proxy)
        log = proxy.log.read_text()
    assert list(map(status_of, seen)) == [503, 200, 200], "not ready, and still serving"
    assert seen[0].endswith(b'{"status":"draining"}')
    assert all(b"connection: close" in answer for answer in seen)
    assert len(streams) == 50
    assert all(stream.rstrip().endswith("data: [DONE]") and stream.count('"word ') == 40 for stream in streams)
    assert log.count("POST /v1/chat/completions 200 ") == 50


@fault(73, *BOTH)
def test_the_drain_has_an_end(config: dict[str, Any], model: ModelServer, road: str) -> None:
    model.script(ENDLESS)
    with Groundwire({**config, "server": {"drain_timeout": 0.3, "lame_duck": 0}}) as proxy:
        with streaming(proxy, SEARCH[road]) as lines:
            send(proxy, signal.SIGTERM)
            (error,) = errors_in(list(lines))
        assert error["code"] == "shutting_down"
        assert exit_code(proxy) == 0
        assert_clean(proxy)
        assert "outcome=shutting_down" in proxy.logged("/v1/chat/completions")


@fault(74, *BOTH)
@pytest.mark.parametrize(
    ("lame_duck", "second"),
    [(0, signal.SIGTERM), (60, signal.SIGINT)],
    ids=["SIGTERM while it drains", "SIGINT before it drains"],
)
def test_a_second_signal(config: dict[str, Any], model: ModelServer, lame_duck: int, second: int, road: str) -> None:
    model.script(ENDLESS)
    with Groundwire({**config, "server": {"lame_duck": lame_duck}}) as proxy:
        with streaming(proxy, SEARCH[road]) as lines:
            send(proxy, signal.SIGTERM)
            if lame_duck:
                eventually(lambda: status_of(get(proxy, "/readyz")) == 503)
            else:
                wait_until_refused(proxy)
            send(proxy, second)
            (error,) = errors_in(list(lines))
        assert error["code"] == "shutting_down"
        assert exit_code(proxy) == 0
        assert_clean(proxy)


# The log


@pytest.fixture(scope="module", params=["2>&-", "2>/dev/full", ""], ids=["closed", "full", "nobody there"])
def unlogged(
    tmp_path_factory: pytest.TempPathFactory, config: dict[str, Any], request: pytest.FixtureRequest
) -> Iterator[str]:
    """A server whose log goes nowhere, in three ways."""
    reading, writing = os.pipe()
    os.close(reading)
    with served(tmp_path_factory.mktemp("unlogged"), config, writing, request.param) as root:
        os.close(writing)
        yield root


@fault(81, *BOTH)
def test_a_log_that_cannot_be_written(unlogged: str, model: ModelServer, road: str) -> None:
    model.script(text("Blue."))
    for _ in range(3):
        answer = httpx.post(f"{unlogged}/v1/chat/completions", json=CHAT, headers=road_headers(road), timeout=20)
        assert answer.json()["choices"][0]["message"]["content"] == "Blue."


def pipelined(root: str, path: str, count: int) -> int:
    """How many of so many requests on one connection are answered; fewer are under way at a time than may be."""
    host, port = root.removeprefix("http://").split(":")
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    answers = 0
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        for _ in range(0, count, 10):
            connection.sendall(request * 10)
            got = b""
            while got.count(b"x-request-id") < 10 or not got.endswith(b"}"):
                part = connection.recv(65536)
                assert part, got[-500:]
                got += part
            answers += got.count(b"x-request-id")
    return answers


@fault(81)
def test_a_log_that_nobody_reads(tmp_path: Path, config: dict[str, Any]) -> None:
    """Every line is long, so that the pipe and the queue are full soon. It was the 640th request that stopped all."""
    reading, writing = os.pipe()
    path = "/" + "a" * 190
    with served(tmp_path, {**config, "log": {"format": "json"}}, writing, "") as root:
        os.close(writing)
        assert pipelined(root, path, 5000) == 5000
        lost = Samples(httpx.get(f"{root}/metrics").content)("groundwire_log_dropped_total")
        assert lost > 0
        with open(reading, "rb") as log:
            said = b""
            while b"lines of the log were lost" not in said:
                said += os.read(log.fileno(), 1 << 20)
            assert pipelined(root, path, 10) == 10, "and well again"
    (word,) = [line for line in said.splitlines() if b"were lost" in line]
    assert int(json.loads(word)["message"].split()[0]) in (lost, lost + 1), "the question for the metrics is one too"
    lines = said.splitlines()
    assert all(line.startswith(b'{"time":') and line.endswith(b"}") for line in lines[: lines.index(word)]), "all whole"


@fault(81)
def test_an_unread_log_does_not_hold_up_the_end(tmp_path: Path, config: dict[str, Any]) -> None:
    reading, writing = os.pipe()
    try:
        with served(tmp_path, {**config, "log": {"format": "json"}}, writing, "") as root:
            os.close(writing)
            assert pipelined(root, "/" + "a" * 190, 500) == 500
    finally:  # `served` waits for the end of the process
        os.close(reading)


# Descriptors


LAST_GET = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")


class FewDescriptors(Groundwire):
    def __init__(self, config: dict[str, Any], most: int) -> None:
        super().__init__(config, script=True)
        self._command = ["/bin/sh", "-c", f"ulimit -n {most}; exec {shlex.join(self._command)}"]


@fault(82)
def test_no_descriptors_are_left(config: dict[str, Any]) -> None:
    """The limits are set so high that they do not help."""
    high = {"max_connections": 1000, "max_pending_per_address": 1000}
    with FewDescriptors({**config, "server": high}, 64) as proxy:
        with ExitStack() as stack:

            def refused_behind_more() -> bytes:
                """The server may close meanwhile what it had opened itself at its start."""
                for _ in range(20):
                    with suppress(ConnectionError):
                        stack.enter_context(connect(proxy)).sendall(GET[:-2])
                answer = exchange(proxy, LAST_GET)
                return answer if answer.startswith(b"HTTP/1.1 503") else b""

            refused = eventually(refused_behind_more)
            assert error_in(refused)["code"] == "overloaded"
            assert "no file descriptors are left" in proxy.logged("turned away")
        eventually(lambda: exchange(proxy, LAST_GET).startswith(b"HTTP/1.1 200"))


@fault(82, *BOTH)
def test_the_limits_that_follow_from_few_descriptors_leave_some_for_upstreams(
    config: dict[str, Any], model: ModelServer, road: str
) -> None:
    model.script(text("Blue."))
    with FewDescriptors(config, 64) as proxy, ExitStack() as stack:
        for _ in range(200):
            with suppress(OSError):
                stack.enter_context(connect(proxy))
        answer = eventually(lambda: (found := ask(proxy, road)).status_code == 200 and found)
        assert answer.json()["choices"][0]["message"]["content"] == "Blue."
