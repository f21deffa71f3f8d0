"""Connections to a running Groundwire: how many there may be, how long each may take for what, and who gets through all
the same.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import httpx
import uvloop

from proxy.config.settings import ServerConfig
from proxy.serving.listener import AT_ONCE, Listener, listen
from proxy.serving.open_connections import ConnectionLimits, OpenConnections
from tests.fakes.bad_heads import GET
from tests.fakes.groundwire import Groundwire
from tests.fakes.log_lines import eventually
from tests.fakes.model import ModelServer, text
from tests.fakes.raw_client import PATIENCE, chat_request, connect, error_in, exchange, read_to_end, status_of
from tests.fakes.samples import Samples

ENDLESS = text("word ", end="hang", finish=None, usage=None)
CLOSING = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")


@contextmanager
def serving(config: dict[str, Any], **server: Any) -> Iterator[Groundwire]:
    with Groundwire({**config, "server": server}) as running:
        yield running


def answered(connection: socket.socket) -> bytes:
    """One answer on a connection that stays open."""
    found = b""
    while b'{"status":"ok"}' not in found:
        part = connection.recv(65536)
        assert part, found
        found += part
    return found


def is_open(connection: socket.socket) -> bool:
    """Whether the server still waits for it: it has neither said anything nor hung up."""
    connection.settimeout(0.01)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    except ConnectionResetError:
        pass
    return False


def healthy(proxy: Groundwire) -> bool:
    answer = exchange(proxy, CLOSING)
    return bool(answer) and status_of(answer) == 200


# How many


def test_silent_connections_do_not_keep_others_out(config: dict[str, Any]) -> None:
    """Nobody waits for the ten seconds that a head may take: the silent ones make room."""
    with serving(config, max_connections=20) as proxy, ExitStack() as stack:
        silent = [stack.enter_context(connect(proxy)) for _ in range(60)]
        eventually(lambda: healthy(proxy))
        assert sum(is_open(connection) for connection in silent) <= 22
        proxy.logged("turned away")
        seen = Samples(httpx.get(f"{proxy.root}/metrics").content)
        assert seen("groundwire_connections_turned_away_total") > 0
        assert 0 < seen("groundwire_connections") <= 22


def test_one_address_has_only_so_many_that_say_nothing(config: dict[str, Any]) -> None:
    with serving(config, max_connections=1000, max_pending_per_address=5) as proxy, ExitStack() as stack:
        for _ in range(10):
            kept = stack.enter_context(connect(proxy))
            kept.sendall(GET)
            answered(kept)
        assert healthy(proxy), "connections that were served do not count"
        silent = [stack.enter_context(connect(proxy)) for _ in range(30)]
        eventually(lambda: healthy(proxy))
        assert sum(is_open(connection) for connection in silent) <= 5


def test_who_finds_no_place_is_told_so_and_a_probe_gets_through(config: dict[str, Any], model: ModelServer) -> None:
    model.script(ENDLESS)
    with serving(config, max_connections=3) as proxy, ExitStack() as stack:
        for _ in range(3):
            busy = stack.enter_context(connect(proxy))
            busy.sendall(chat_request(stream=True))
            assert busy.recv(100)
        refused = exchange(proxy, chat_request())
        assert status_of(refused) == 503
        assert error_in(refused)["code"] == "overloaded"
        assert b"x-should-retry: false" not in refused
        for path in ("healthz", "readyz", "metrics"):
            assert httpx.get(f"{proxy.root}/{path}").status_code == 200
        assert " 503 " in proxy.logged("outcome=overloaded")
        stack.close()
        eventually(lambda: status_of(exchange(proxy, chat_request("Connection: close")[:-1] + b"]")) == 400)


def test_a_kept_connection_makes_room_for_one_that_has_something_to_say(config: dict[str, Any]) -> None:
    with serving(config, max_connections=2) as proxy, connect(proxy) as first, connect(proxy) as second:
        for connection in (first, second):
            connection.sendall(GET)
            answered(connection)
        eventually(lambda: status_of(exchange(proxy, CLOSING.replace(b"/healthz", b"/v1/models"))) == 200)
        assert read_to_end(first) == b""


# How long


def test_heads_that_do_not_come(config: dict[str, Any]) -> None:
    with serving(config, head_timeout=0.6) as proxy, ExitStack() as stack:
        silent, begun, drip, kept = (stack.enter_context(connect(proxy)) for _ in range(4))
        begun.sendall(GET[:-2])
        kept.sendall(GET)
        answered(kept)
        kept.sendall(GET[:20])
        began = time.monotonic()
        with suppress(OSError):
            drip.sendall(b"GET /")
            while time.monotonic() < began + PATIENCE:  # a byte now and then does not help
                drip.sendall(b"x")
                time.sleep(0.05)
        assert time.monotonic() < began + PATIENCE
        assert read_to_end(silent) == b"", "who said nothing is told nothing"
        for connection in (begun, kept):
            late = read_to_end(connection)
            assert status_of(late) == 408
            assert error_in(late)["code"] == "request_timeout"
        assert " GET /healthz 408 " in proxy.logged("outcome=request_timeout")


def test_a_kept_connection_is_closed_in_the_end(config: dict[str, Any]) -> None:
    with serving(config, keep_alive_timeout=0.5) as proxy, connect(proxy) as connection:
        for _ in range(3):
            connection.sendall(GET)
            answered(connection)
        connection.sendall(b"\r\n")  # blank lines keep nothing open
        assert read_to_end(connection) == b""


def test_the_rest_of_a_body_that_was_refused_is_not_awaited_for_ever(config: dict[str, Any]) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
    with serving(config, body_timeout=0.5) as proxy, connect(proxy) as connection, connect(proxy) as other:
        connection.sendall(head + b"Content-Length: 5\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 415"
        connection.sendall(b"hello" + GET)
        assert b'{"status":"ok"}' in answered(connection), "it came, and the connection is as good as new"
        other.sendall(head + b"Content-Length: 5\r\n\r\n")
        assert read_to_end(other).startswith(b"HTTP/1.1 415")


def test_a_body_that_was_announced_and_refused_closes_the_connection(config: dict[str, Any]) -> None:
    """Whether it still comes, nobody knows: what is sent next could be either."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
    with serving(config) as proxy, connect(proxy) as connection:
        connection.sendall(head + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        answer = connection.recv(12)
        connection.sendall(GET)
        answer += read_to_end(connection)
    assert status_of(answer) == 415
    assert answer.count(b"HTTP/1.1") == 1


# New ones while the old ones are busy


def test_many_are_accepted_in_one_turn_of_the_loop() -> None:
    """One for each turn, as the event loop does it itself, makes a new client wait for as many turns as there are
    clients before it; and a turn is long where there is much to do."""
    assert AT_ONCE >= 50

    async def turns_for(count: int) -> int:
        opened: list[socket.socket] = []
        listening = listen("127.0.0.1", 0)
        connections = OpenConnections(ConnectionLimits.of(ServerConfig(), 1024))
        listener = Listener(listening, connections, lambda client, *_: opened.append(client))
        with ExitStack() as stack:
            for _ in range(count):
                stack.enter_context(socket.create_connection(listening.getsockname()))
            listener.open()
            turns = 0
            while len(opened) < count:
                await asyncio.sleep(0)
                turns += 1
            listener.close()
            for client in opened:
                client.close()
        return turns

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(turns_for(50)) < 10


# Readers


def test_a_reader_that_is_slow_and_moves_is_served_to_the_end(config: dict[str, Any], model: ModelServer) -> None:
    model.script(text(*["x" * 50_000] * 80))
    with serving(config, write_timeout=3) as proxy, connect(proxy, receive_buffer=32_768) as connection:
        connection.sendall(chat_request("Connection: close", stream=True))
        found, began = b"", time.monotonic()
        while part := connection.recv(65_536):
            found += part
            time.sleep(0.07)
        assert time.monotonic() - began > 3, "longer than it may stand still"
    assert found.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_an_answer_that_was_finished_long_ago_is_not_kept_for_a_client_that_does_not_take_it(
    config: dict[str, Any], model: ModelServer
) -> None:
    model.script(text("x" * 4_000_000))
    with serving(config, write_timeout=0.5) as proxy, connect(proxy, receive_buffer=32_768) as connection:
        connection.sendall(chat_request())
        assert "outcome=ok" in proxy.logged("outcome=ok")
        proxy.logged("took nothing for 0.5 s and was cut off")
        assert len(read_to_end(connection)) < 4_000_000
