"""Clients that send what they should not, or slowly, or take nothing: rows 65 to 68, 70 and 72."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.test_serve import ENDLESS, sockets
from tests.fakes.bad_heads import GET, SHAPES
from tests.fakes.groundwire import Groundwire
from tests.fakes.log_lines import eventually
from tests.fakes.model import ModelServer, text
from tests.fakes.raw_client import chat_request, connect, error_in, exchange, read_to_end, status_of
from tests.faults.asking import road_headers
from tests.faults.table import BOTH, fault

LONG = 10.0  # seconds in which something must have happened that takes a second
MAX_BODY = 64 * 1024


@pytest.fixture(scope="module")
def hasty(config: dict[str, Any]) -> Iterator[Groundwire]:
    """A server with little patience, and two callers."""
    server = {
        "head_timeout": 1.0,
        "body_timeout": 1.5,
        "write_timeout": 0.5,
        "max_body": MAX_BODY,
        "keys": [{"key": "gw-alice", "name": "alice"}, {"key": "gw-bob", "name": "bob"}],
    }
    with Groundwire({**config, "server": server}) as running:
        yield running


def lines_of(road: str, caller: str = "alice") -> list[str]:
    return [f"{name}: {value}" for name, value in {**road_headers(road), "x-api-key": f"gw-{caller}"}.items()]


def logged_once(proxy: Groundwire, before: str, words: str) -> str:
    """The one line about it that the log has now and had not before."""

    def new() -> list[str]:
        log = proxy.log.read_text().removeprefix(before)
        return [line for line in log.splitlines() if words in line and " seconds=" in line]

    (line,) = eventually(new)
    assert "gw-alice" not in line
    return line


def resident(proxy: Groundwire) -> float:
    """MB"""
    assert proxy.process is not None
    return int(Path(f"/proc/{proxy.process.pid}/statm").read_text().split()[1]) * 4096 / 2**20


@fault(65, *BOTH)
def test_a_reader_that_stands_still(hasty: Groundwire, model: ModelServer, road: str) -> None:
    pieces = 300
    model.script(text("word ", *["x" * 100_000] * pieces))
    before, memory, open_before = hasty.log.read_text(), resident(hasty), sockets(hasty)
    with connect(hasty, receive_buffer=32_768) as connection:
        connection.sendall(chat_request(*lines_of(road), stream=True))
        assert b"200 OK" in connection.recv(100)
        line = logged_once(hasty, before, "outcome=client_stalled")
        assert " 200 " in line
        assert "key=alice" in line
        assert model.sent_pieces < pieces, "the upstream was held back"
        assert resident(hasty) - memory < 20
        eventually(lambda: sockets(hasty) == open_before)  # the client's is closed, and so is the upstream's
        assert b"[DONE]" not in read_to_end(connection)


@fault(66, *BOTH)
def test_a_client_that_closes_its_half(hasty: Groundwire, model: ModelServer, road: str) -> None:
    model.script(ENDLESS)
    before, open_before = hasty.log.read_text(), sockets(hasty)
    with connect(hasty) as connection:
        connection.sendall(chat_request(*lines_of(road), stream=True))
        assert connection.recv(100)
        connection.shutdown(1)
        assert model.left.wait(LONG)
        assert b"[DONE]" not in read_to_end(connection)
    assert "key=alice" in logged_once(hasty, before, "outcome=client_left")
    eventually(lambda: sockets(hasty) == open_before)


@fault(67)
@pytest.mark.parametrize("sent", [b"G", GET[:-2], b"GET /healthz HTTP/1.1\r\nX: "])
def test_a_head_that_comes_slowly(hasty: Groundwire, sent: bytes) -> None:
    before = hasty.log.read_text()
    answer = exchange(hasty, sent)
    assert (status_of(answer), error_in(answer)["code"]) == (408, "request_timeout")
    assert " 408 " in logged_once(hasty, before, "outcome=request_timeout")
    assert exchange(hasty, b"") == b"", "who says nothing at all is told nothing"


@fault(67, *BOTH)
def test_a_body_that_comes_slowly(hasty: Groundwire, model: ModelServer, road: str) -> None:
    model.script(text("Hello."))
    before = hasty.log.read_text()
    answer = exchange(hasty, chat_request(*lines_of(road))[:-1])
    assert (status_of(answer), error_in(answer)["code"]) == (408, "request_timeout")
    assert "key=alice" in logged_once(hasty, before, "outcome=request_timeout")
    assert not model.requests


@fault(68, *BOTH)
def test_a_body_without_length_and_without_end(hasty: Groundwire, model: ModelServer, road: str) -> None:
    model.script(text("Hello."))
    head, _, _ = chat_request(*lines_of(road), "Transfer-Encoding: chunked").partition(b"Content-Length")
    before, memory = hasty.log.read_text(), resident(hasty)
    with connect(hasty) as connection:
        connection.sendall(head + b"\r\n")
        sent = 0
        try:
            while sent < 200_000_000:
                connection.sendall(b"4000\r\n" + b" " * 0x4000 + b"\r\n")
                sent += 0x4000
        except OSError:
            pass  # it hung up
        answer = read_to_end(connection)
    assert sent < 50_000_000, "the rest is not read"
    assert (status_of(answer), error_in(answer)["code"]) == (413, "request_too_large")
    assert resident(hasty) - memory < 20
    assert "key=alice" in logged_once(hasty, before, "outcome=request_too_large")
    assert not model.requests


@fault(70)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_head_that_two_servers_read_differently(proxy: Groundwire, model: ModelServer, shape: str) -> None:
    before = proxy.log.read_text()
    answer = exchange(proxy, SHAPES[shape] + GET)
    assert status_of(answer) == 400
    assert answer.count(b"content-length: ") == 1, "what stands behind it is not answered"
    assert error_in(answer)["code"] in ("bad_request", "bad_host")
    assert " 400 " in logged_once(proxy, before, "request=")
    assert not model.requests


@fault(72, *BOTH)
def test_several_requests_at_once_on_one_connection(hasty: Groundwire, model: ModelServer, road: str) -> None:
    for name in ("first", "second", "third"):
        model.part(name, text(f"I am {name}."))
    model.part("first", text("I am first.", delay=0.2))  # the others could overtake it
    callers = {"first": "alice", "second": "bob", "third": "alice"}
    sent = [chat_request(*lines_of(road, caller), model=name) for name, caller in callers.items()]
    sent[-1] = sent[-1].replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    answer = exchange(hasty, b"".join(sent))
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    places = [answer.index(f"I am {name}.".encode()) for name in callers]
    assert places == sorted(places), "in the order in which they were asked"
    for name, caller in callers.items():
        assert f" key={caller} " in eventually(lambda name=name: hasty.logged(f"model={name} "))  # type: ignore[misc]


@fault(72)
def test_and_one_of_them_is_none(hasty: Groundwire) -> None:
    answer = exchange(hasty, GET + GET + b"\xff" + GET)
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert answer.count(b"HTTP/1.1 ") == 3
    assert json.loads(answer.rpartition(b"\r\n\r\n")[2])["error"]["code"] == "bad_request"


def test_the_server_is_well_after_all_that(hasty: Groundwire) -> None:
    began = time.monotonic()
    assert httpx.get(f"{hasty.root}/readyz", timeout=LONG).status_code == 200
    assert time.monotonic() - began < LONG
