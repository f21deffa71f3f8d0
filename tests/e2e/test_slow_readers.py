"""A client that takes nothing for a while, on both roads: the model's server has to wait, nothing is lost and nothing
is kept; and what becomes of it when the client leaves or the server breaks off meanwhile.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.groundwire import Groundwire
from tests.fakes.log_lines import eventually
from tests.fakes.raw_client import chat_request, connect, read_to_end
from tests.faults.table import BOTH, FORWARDED
from tests.faults.trouble import SocketServer, impatient, peak_memory, read_request, reset

EVENTS = 4_000
TEXT = "x" * 10_000


def event(number: int) -> bytes:
    said = {"choices": [{"index": 0, "delta": {"content": f"<{number}>{TEXT}"}, "finish_reason": None}]}
    return b"data: " + json.dumps(said).encode() + b"\n\n"


class Talkative:
    """Says 40 MB as fast as they are taken. The model `breaking` breaks off behind the first thousand."""

    def __init__(self) -> None:
        self.sent = 0  # events, of the last answer
        self.hung_up = threading.Event()  # on it

    def serve(self, connection: socket.socket) -> None:
        asked = json.loads(read_request(connection).partition(b"\r\n\r\n")[2])
        self.sent = 0
        self.hung_up.clear()
        try:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            for number in range(EVENTS):
                connection.sendall(event(number))
                self.sent += 1
                if number == 1_000 and asked["model"] == "breaking":
                    reset(connection)
                    return
            over = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
            connection.sendall(b"data: " + json.dumps(over).encode() + b"\n\ndata: [DONE]\n\n")
        except OSError:
            self.hung_up.set()

    def stands_still(self) -> int:
        """How much it has said when it has to wait."""

        def stood() -> int:
            before = self.sent
            time.sleep(0.3)
            return before if self.sent == before else 0

        return eventually(stood)


@pytest.fixture(scope="module")
def talkative() -> Talkative:
    return Talkative()


@pytest.fixture(scope="module")
def proxy(config: dict[str, Any], talkative: Talkative) -> Iterator[Groundwire]:
    with SocketServer(talkative.serve) as server:
        upstream = {"name": "talkative", "base_url": server.url, "models": ["talkative", "breaking"]}
        with impatient(config, upstream) as running:
            yield running


def asking(proxy: Groundwire, road: str, model: str = "talkative") -> socket.socket:
    connection = connect(proxy, receive_buffer=32_768)
    headers = ["X-Groundwire-Search: off"] if road == FORWARDED else []
    connection.sendall(chat_request("Connection: close", *headers, stream=True, model=model))
    return connection


def numbers(answer: bytes) -> list[int]:
    """Of the events that came."""
    return [int(number) for number in re.findall(rb"<([0-9]+)>x", answer)]


@pytest.mark.parametrize("road", BOTH)
def test_the_server_waits_and_nothing_is_lost(proxy: Groundwire, talkative: Talkative, road: str) -> None:
    before = peak_memory(proxy)
    with asking(proxy, road) as connection:
        assert talkative.stands_still() < EVENTS / 2, "what the sockets hold is more than was read"
        assert peak_memory(proxy) - before < 20_000_000
        answer = read_to_end(connection)
    assert numbers(answer) == list(range(EVENTS))
    assert answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


@pytest.mark.parametrize("road", BOTH)
def test_who_leaves_then_is_heard(proxy: Groundwire, talkative: Talkative, road: str) -> None:
    with asking(proxy, road):
        talkative.stands_still()
    assert talkative.hung_up.wait(20)
    proxy.logged("outcome=client_left")


@pytest.mark.parametrize("road", BOTH)
def test_a_break_is_told_behind_all_that_came_before_it(proxy: Groundwire, talkative: Talkative, road: str) -> None:
    with asking(proxy, road, "breaking") as connection:
        time.sleep(0.5)
        answer = read_to_end(connection)
    told = numbers(answer)
    assert told == list(range(len(told)))
    assert b"upstream_truncated" in answer.rsplit(b"data: ", 1)[1]
