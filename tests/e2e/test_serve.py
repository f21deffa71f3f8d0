"""How a running Groundwire leaves, and what it leaves behind: signals with answers under way, clients that hang up, and
the key that it makes for itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.fakes.groundwire import SCRIPT, Groundwire
from tests.fakes.model import ModelServer, Turn, call, text
from tests.unit.test_supply_chain import health_check, option

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Why is the sky blue?"}]}
AT_ONCE = 5.0  # seconds; a process that waits for its streams would take the 30 of the drain
ENDLESS = text("word ", "word ", end="hang", finish=None, usage=None)
LANES = pytest.mark.parametrize("search", ["on", "off"])


@pytest.fixture
def proxy(config: dict[str, Any]) -> Iterator[Groundwire]:
    """Each test ends its own."""
    with Groundwire(config, script=True) as running:
        yield running


@contextmanager
def streaming(proxy: Groundwire, search: str = "on") -> Iterator[Iterator[str]]:
    """The lines of a streamed answer, of which the first word has come."""
    sent = {**CHAT, "stream": True}
    headers = {"x-groundwire-search": search}
    with httpx.stream("POST", f"{proxy.url}/chat/completions", json=sent, headers=headers, timeout=30) as answer:
        lines = answer.iter_lines()
        for line in lines:
            if "word" in line:
                break
        yield lines


def send(proxy: Groundwire, signum: int) -> None:
    assert proxy.process is not None
    proxy.process.send_signal(signum)


def exit_code(proxy: Groundwire, timeout: float = AT_ONCE) -> int:
    assert proxy.process is not None
    return proxy.process.wait(timeout)


def errors_in(lines: list[str]) -> list[dict[str, Any]]:
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    return [event["error"] for event in events if "error" in event]


def wait_until_refused(proxy: Groundwire) -> None:
    end = time.monotonic() + AT_ONCE
    while time.monotonic() < end:
        try:
            httpx.get(f"{proxy.root}/readyz", timeout=5)
        except httpx.ConnectError:
            return
        except httpx.TransportError:  # it was in the queue as the listener closed
            continue
        time.sleep(0.02)
    raise AssertionError("the listener is still open")


def assert_clean(proxy: Groundwire) -> None:
    log = proxy.log.read_text()
    assert "Traceback" not in log
    assert "Exception" not in log


# Ctrl-C


@LANES
def test_ctrl_c_ends_a_stream_with_a_word(proxy: Groundwire, model: ModelServer, search: str) -> None:
    model.script(ENDLESS)
    with streaming(proxy, search) as lines:
        send(proxy, signal.SIGINT)
        rest = list(lines)
    (error,) = errors_in(rest)
    assert error["code"] == "shutting_down"
    assert not any("[DONE]" in line for line in rest)
    assert exit_code(proxy) == 0
    assert model.left.wait(AT_ONCE)
    assert_clean(proxy)


@LANES
def test_ctrl_c_before_anything_was_sent(proxy: Groundwire, model: ModelServer, search: str) -> None:
    model.script(text("late", delay=30.0))
    with ThreadPoolExecutor(1) as thread:
        headers = {"x-groundwire-search": search}
        waiting = thread.submit(httpx.post, f"{proxy.url}/chat/completions", json=CHAT, headers=headers, timeout=30)
        while not model.requests:
            time.sleep(0.02)
        send(proxy, signal.SIGINT)
        answer = waiting.result(AT_ONCE)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "shutting_down"
    assert exit_code(proxy) == 0
    assert_clean(proxy)


@LANES
def test_ctrl_c_is_not_held_up_by_a_client_that_does_not_read(
    proxy: Groundwire, model: ModelServer, search: str
) -> None:
    model.script(text("word ", *["x" * 100_000] * 300))
    with streaming(proxy, search):
        sent = -1
        while sent != model.sent_pieces:
            sent = model.sent_pieces
            time.sleep(0.2)
        assert sent < 300, "the stream is stuck, because nobody takes it"
        send(proxy, signal.SIGINT)
        assert exit_code(proxy) == 0
    assert_clean(proxy)


def test_ctrl_c_when_nothing_is_under_way(proxy: Groundwire) -> None:
    assert httpx.get(f"{proxy.root}/readyz").status_code == 200
    send(proxy, signal.SIGINT)
    assert exit_code(proxy) == 0
    assert_clean(proxy)


# SIGTERM


@LANES
def test_sigterm_lets_a_stream_finish(proxy: Groundwire, model: ModelServer, search: str) -> None:
    model.script(text(*["word "] * 60, delay=0.1))
    with streaming(proxy, search) as lines:
        send(proxy, signal.SIGTERM)
        wait_until_refused(proxy)
        assert proxy.process is not None
        assert proxy.process.poll() is None
        rest = list(lines)
    assert sum("word" in line for line in rest) == 59
    assert rest[-2:] == ["data: [DONE]", ""]
    assert exit_code(proxy) == 0
    assert_clean(proxy)


def test_sigterm_lets_the_rounds_run_to_their_end(proxy: Groundwire, model: ModelServer) -> None:
    searching = Turn(text=["word "], calls=[("c1", "web_search", {"query": "sky"})], delay=0.3)
    model.script(searching, call("web_search", {"query": "sea"}), text("The end [1].", delay=0.3))
    with streaming(proxy) as lines:
        send(proxy, signal.SIGTERM)
        rest = list(lines)
    assert any("The end [[1]]" in line for line in rest)
    assert rest[-2] == "data: [DONE]"
    assert exit_code(proxy) == 0
    assert_clean(proxy)


def test_sigterm_waits_as_long_as_it_was_told_to_whoever_is_there(config: dict[str, Any]) -> None:
    with Groundwire({**config, "server": {"lame_duck": 60}}) as proxy:
        send(proxy, signal.SIGTERM)
        end = time.monotonic() + AT_ONCE
        while httpx.get(f"{proxy.root}/readyz").status_code != 503:
            assert time.monotonic() < end
        answer = httpx.get(f"{proxy.root}/healthz")
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        send(proxy, signal.SIGTERM)
        assert exit_code(proxy) == 0
        assert_clean(proxy)


def test_sigterm_with_nobody_there_ends_at_once(config: dict[str, Any]) -> None:
    with Groundwire(config, script=True) as proxy:
        assert httpx.get(f"{proxy.root}/readyz").status_code == 200
        send(proxy, signal.SIGTERM)
        assert exit_code(proxy) == 0


# Clients that hang up


def sockets(proxy: Groundwire) -> int:
    assert proxy.process is not None
    folder = Path(f"/proc/{proxy.process.pid}/fd")
    return sum(os.readlink(link).startswith("socket:") for link in folder.iterdir())


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open sockets in /proc")
def test_clients_that_hang_up_leave_no_connection_behind(proxy: Groundwire, model: ModelServer) -> None:
    before = sockets(proxy)
    for search in ("on", "off") * 5:
        model.script(ENDLESS)
        with streaming(proxy, search):
            assert sockets(proxy) == before + 2, "the client's and the upstream's"
        assert model.left.wait(AT_ONCE)
        end = time.monotonic() + AT_ONCE
        while sockets(proxy) != before and time.monotonic() < end:
            time.sleep(0.02)
        assert sockets(proxy) == before
    assert_clean(proxy)


# The image's health check


def test_the_images_health_check_tells_a_server_that_answers_from_one_that_does_not(config: dict[str, Any]) -> None:
    def healthy(port: str) -> bool:
        program, *arguments = (word.replace(option("--port"), port) for word in health_check())
        here = Path(sys.executable).with_name(program)  # python or groundwire, as in the image
        return subprocess.run([here, *arguments], capture_output=True, timeout=60).returncode == 0

    with Groundwire(config, script=True) as proxy:
        port = proxy.root.rpartition(":")[2]
        assert healthy(port)
    assert not healthy(port)


# A key of its own


@contextmanager
def started(config: dict[str, Any], folder: Path, **env: str) -> Iterator[list[str]]:
    """What a Groundwire says until it listens."""
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [str(SCRIPT), "serve", "--config", str(path), "--port", "0"]
    environ = {"PATH": os.environ["PATH"], **env}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ
    ) as running:
        assert running.stdout is not None
        said = []
        for line in running.stdout:
            said.append(line.strip())
            if "listening" in line:
                break
        try:
            yield said
        finally:
            running.terminate()
            running.wait(AT_ONCE)


def test_a_key_is_made_where_one_is_needed(config: dict[str, Any], tmp_path: Path) -> None:
    with started(config, tmp_path, GROUNDWIRE_GENERATE_KEY="1") as said:
        key, url = said[0].split()[-1], said[1].split()[-1]
        assert len(key) >= 32
        assert httpx.get(f"{url}/v1/models").status_code == 401
        assert httpx.get(f"{url}/v1/models", headers={"authorization": f"Bearer {key}"}).status_code == 200
        assert httpx.get(f"{url}/healthz").status_code == 200
    with started(config, tmp_path, GROUNDWIRE_GENERATE_KEY="1") as said:
        assert said[0].split()[-1] != key, "another one each time"


def test_no_key_is_made_where_there_is_one(config: dict[str, Any], tmp_path: Path) -> None:
    for server, env in (({"keys": ["gw-own"]}, {}), ({}, {"GROUNDWIRE_KEYS": "gw-own"})):
        with started({**config, "server": server}, tmp_path, GROUNDWIRE_GENERATE_KEY="1", **env) as said:
            (line,) = said
            url = line.split()[-1]
            assert httpx.get(f"{url}/v1/models", headers={"x-api-key": "gw-own"}).status_code == 200
