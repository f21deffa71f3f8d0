"""A model's server that never stops: whatever it sends without end, the answer is cut off by its size, long before time
or memory is short.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.fakes.groundwire import Groundwire
from tests.faults.asking import ask, error_of
from tests.faults.table import BOTH, SEARCHED
from tests.faults.trouble import SocketServer, ended, impatient, peak_memory, read_request

MOST = 4 << 20  # bytes, as the config says
CALLED = {"index": 0, "id": "a", "function": {"name": "web_search", "arguments": '{"query": "'}}
THEIRS = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def event(delta: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"


def more(arguments: str, index: int = 0, name: str = "") -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "function": {"name": name, "arguments": arguments}}]}


def called(name: str) -> bytes:
    return event({"tool_calls": [{**CALLED, "function": {"name": name, "arguments": '{"query": "'}}]})


def for_ever(piece: bytes) -> Iterator[bytes]:
    while True:
        yield piece


def many_calls() -> Iterator[bytes]:
    for number in range(10_000_000):
        yield b"".join(event(more("{}", number * 50 + n, "web_search")) for n in range(50))


# What comes first, and what then comes for ever.
ENDLESS: dict[str, tuple[bytes, Callable[[], Iterator[bytes]]]] = {
    "text": (b"", lambda: for_ever(event({"content": "word " * 500}))),
    "words": (b"", lambda: for_ever(event({"content": "w "}) * 200)),
    "blank-text": (b"", lambda: for_ever(event({"content": " \n" * 8}) * 100)),
    "thinking": (b"", lambda: for_ever(event({"reasoning_content": "hm " * 500}))),
    "thought-tag": (event({"content": "<think>"}), lambda: for_ever(event({"content": "hm " * 500}))),
    "unknown-field": (b"", lambda: for_ever(event({"field": ["x" * 500]}))),
    "arguments": (called("web_search"), lambda: for_ever(event(more("sky " * 500)))),
    "arguments-in-crumbs": (called("web_search"), lambda: for_ever(event(more("sky ")) * 100)),
    "odd-arguments": (event(more("sky", name="web_search")), lambda: for_ever(event(more(" sky" * 500)))),
    "arguments-without-name": (b"", lambda: for_ever(event(more("sky " * 500)))),
    "their-arguments": (called("weather"), lambda: for_ever(event(more("sky " * 500)))),
    "calls": (b"", many_calls),
    "name": (b"", lambda: for_ever(event(more("", name="web_search")) * 50)),
    "blanks": (b"", lambda: for_ever(b" \r\n" * 10_000)),
    "comments": (b"", lambda: for_ever(b": still here\n\n" * 1000)),
    "line": (b"data: ", lambda: for_ever(b"x" * 50_000)),
    "json": (b'{"choices": [{"message": {"content": "', lambda: for_ever(b"x" * 50_000)),
    "blank-json": (b'{"choices": [{"message": {"content": "x"}}]}', lambda: for_ever(b" " * 50_000)),
    "leaked-call": (event({"content": "<tool_call>"}), lambda: for_ever(event({"content": '{"name": "' * 100}))),
}


class Endless:
    """Answers a request for the model `endless-…` with what goes by that name; `failing-…` with an endless 500."""

    def __init__(self) -> None:
        self.sent = 0  # bytes, of the last answer

    def serve(self, connection: socket.socket) -> None:
        asked = read_request(connection).partition(b"\r\n\r\n")[2]
        name = json.loads(asked)["model"]
        self.sent = 0
        status = 500 if name.startswith("failing") else 200
        connection.sendall(f"HTTP/1.1 {status} X\r\nContent-Type: text/event-stream\r\n\r\n".encode())
        first, then = ENDLESS[name.partition("-")[2]] if status == 200 else (b"", lambda: for_ever(b"no! " * 10_000))
        connection.sendall(first)
        for piece in then():
            connection.sendall(piece)
            self.sent += len(piece)


@pytest.fixture(scope="module")
def endless() -> Endless:
    return Endless()


@pytest.fixture(scope="module")
def proxy(config: dict[str, Any], endless: Endless) -> Iterator[Groundwire]:
    with SocketServer(endless.serve) as server:
        upstream = {"name": "endless", "base_url": server.url, "models": ["endless-*", "failing"], "max_answer": MOST}
        with impatient(config, upstream) as running:
            ask(running, SEARCHED, model="endless-text")  # what is loaded late is loaded now
            yield running


def code_of(answer: httpx.Response) -> Any:
    if answer.status_code != 200:
        return error_of(answer)["code"]
    assert "[DONE]" not in answer.text
    return json.loads(answer.text.strip().rsplit("data: ", 1)[1])["error"]["code"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", ENDLESS)
def test_an_answer_without_end(proxy: Groundwire, endless: Endless, name: str, stream: bool) -> None:
    before = peak_memory(proxy)
    answer = ask(proxy, SEARCHED, model=f"endless-{name}", stream=stream, tools=[THEIRS], timeout=60)
    assert code_of(answer) == "upstream_bad_response"
    assert " outcome=upstream_bad_response " in ended(proxy, answer)
    assert endless.sent < 40_000_000, "what the sockets hold is more than was read"
    assert peak_memory(proxy) - before < 100_000_000


@pytest.mark.parametrize("road", BOTH)
def test_an_error_without_end(proxy: Groundwire, endless: Endless, road: str) -> None:
    before = peak_memory(proxy)
    answer = ask(proxy, road, model="failing", timeout=60)
    assert (answer.status_code, error_of(answer)["message"]) == (500, "The model's server answered with HTTP 500.")
    assert " retries=2 " in ended(proxy, answer)
    assert endless.sent < 40_000_000
    assert peak_memory(proxy) - before < 50_000_000
