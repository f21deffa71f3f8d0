"""An answer on its way to the wire: how it is framed, when its head and its last words leave, and what is wrong with
one that no client could read. Played without a connection, on a list that takes what is written.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from uvicorn.server import ServerState

from proxy.serving.exchange import Exchange
from proxy.serving.pieces import SENT

START = "http.response.start"
BODY = "http.response.body"


class Wire:
    """What an exchange sees of a connection."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False
        self.completed = 0
        self.read_paused = self.write_paused = False
        self.drained = asyncio.Event()

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def complete(self) -> None:
        self.completed += 1

    def pause_reading(self) -> None:
        self.read_paused = True

    def resume_reading(self) -> None:
        self.read_paused = False

    async def drain(self) -> None:
        await self.drained.wait()
        self.write_paused = False

    def exchange(self, method: str = "GET", *, continues: bool = False, kept: bool = True) -> Exchange:
        outlet: Any = self
        scope = {"type": "http", "method": method}
        return Exchange(scope, outlet, outlet, ServerState(), self.complete, continues=continues, kept=kept)


@pytest.fixture
def wire() -> Wire:
    return Wire()


def head(status: int = 200, *headers: tuple[bytes, bytes], **more: Any) -> dict[str, Any]:
    return {"type": START, "status": status, "headers": list(headers), **more}


def body(data: bytes = b"", more: bool = False) -> dict[str, Any]:
    return {"type": BODY, "body": data, "more_body": more}


SIZED = (b"content-length", b"4")


async def test_a_head_leaves_with_the_first_of_its_body(wire: Wire) -> None:
    exchange = wire.exchange()
    await exchange.send(head(200, (b"a", b"b"), SIZED))
    await exchange.send(body(b"Blue"))
    await asyncio.sleep(0)
    assert wire.written == [b"HTTP/1.1 200 OK\r\na: b\r\ncontent-length: 4\r\n\r\nBlue"]
    assert (wire.completed, wire.closed) == (1, False)


async def test_a_head_without_a_body_in_sight_leaves_alone(wire: Wire) -> None:
    exchange = wire.exchange()
    await exchange.send(head(200))
    assert wire.written == []
    await asyncio.sleep(0)
    assert wire.written == [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"]
    await exchange.send(body(b"Blue", more=True))
    await exchange.send(body())
    assert wire.written[1:] == [b"4\r\nBlue\r\n", b"0\r\n\r\n"]


async def test_who_says_that_a_body_follows_asks_nothing_of_the_loop(wire: Wire) -> None:
    exchange = wire.exchange()
    await exchange.send(head(200, SIZED, body_follows=True))
    await asyncio.sleep(0)
    assert wire.written == []
    await exchange.send(body(b"Blue"))
    assert wire.written == [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nBlue"]


def last_words(data: bytes) -> dict[str, Any]:
    return {**body(data, more=True), "end_follows": True}


async def test_the_last_words_leave_with_the_end(wire: Wire) -> None:
    exchange = wire.exchange()
    await exchange.send(head(200, body_follows=True))
    await exchange.send(body(b"Bl", more=True))
    await exchange.send(last_words(b"ue"))
    assert len(wire.written) == 1
    await exchange.send(body())
    assert wire.written[1:] == [b"2\r\nue\r\n0\r\n\r\n"]
    await asyncio.sleep(0)
    assert (len(wire.written), wire.completed) == (2, 1)


async def test_last_words_without_an_end_in_sight_leave_alone(wire: Wire) -> None:
    exchange = wire.exchange()
    await exchange.send(head(200, body_follows=True))
    await exchange.send(last_words(b"Blue"))
    await asyncio.sleep(0)
    assert b"".join(wire.written).endswith(b"\r\n\r\n4\r\nBlue\r\n")
    await exchange.send(body())
    assert wire.written[1:] == [b"0\r\n\r\n"]


async def test_what_is_said_behind_last_words_comes_behind_them(wire: Wire) -> None:
    exchange = wire.exchange()
    await exchange.send(head(200, body_follows=True))
    await exchange.send(last_words(b"one"))
    await exchange.piece_writer()(b"two")
    await exchange.send(last_words(b"three"))
    await exchange.send(body(b"four"))
    said = b"3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n4\r\nfour\r\n0\r\n\r\n"
    assert b"".join(wire.written).endswith(b"\r\n\r\n" + said)
    await asyncio.sleep(0)
    assert b"".join(wire.written).endswith(said)


async def test_last_words_are_nothing_to_a_client_that_left(wire: Wire) -> None:
    exchange = wire.exchange()
    await exchange.send(head(200, body_follows=True))
    await exchange.send(last_words(b"Blue"))
    exchange.client_left()
    await asyncio.sleep(0)
    assert wire.written == []


PIECES = [b"Bl", b"", b"ue", b"\r\n" * 40]


@pytest.mark.parametrize("headers", [(), ((b"content-length", b"84"),)], ids=["chunked", "sized"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("head_left", [False, True])
async def test_a_piece_that_is_written_is_one_that_is_sent(
    headers: tuple[tuple[bytes, bytes], ...], method: str, head_left: bool
) -> None:
    async def written(by_message: bool) -> bytes:
        wire = Wire()
        exchange = wire.exchange(method)
        write = exchange.piece_writer()
        await exchange.send(head(200, *headers))
        if head_left:
            await asyncio.sleep(0)
        for piece in PIECES:
            sent = exchange.send(body(piece, more=True)) if by_message else write(piece)
            assert sent is SENT
        await exchange.send(body())
        assert wire.completed == 1
        return b"".join(wire.written)

    assert await written(by_message=False) == await written(by_message=True)


async def test_a_piece_waits_for_a_client_that_takes_none_and_is_nothing_to_one_that_left(wire: Wire) -> None:
    exchange = wire.exchange()
    write = exchange.piece_writer()
    await exchange.send(head(200, body_follows=True))
    await write(b"one")
    wire.write_paused = True
    waits = asyncio.ensure_future(write(b"two"))
    await asyncio.sleep(0)
    assert b"two" not in b"".join(wire.written)
    wire.drained.set()
    await waits
    assert b"".join(wire.written).endswith(b"3\r\none\r\n3\r\ntwo\r\n")
    exchange.client_left()
    assert write(b"three") is SENT
    assert b"three" not in b"".join(wire.written)


async def test_no_piece_is_written_before_the_head_or_behind_the_end(wire: Wire) -> None:
    exchange = wire.exchange()
    write = exchange.piece_writer()
    with pytest.raises(RuntimeError):
        await write(b"early")
    await exchange.send(head(200))
    await exchange.send(body(b"Blue"))
    with pytest.raises(RuntimeError):
        await write(b"late")


@pytest.mark.parametrize("status", [200, 204, 304])
async def test_what_has_no_body_is_not_chunked(wire: Wire, status: int) -> None:
    exchange = wire.exchange("HEAD" if status == 200 else "GET")
    await exchange.send(head(status))
    await exchange.send(body())
    assert re.fullmatch(rb"HTTP/1.1 %d [A-Za-z ]+\r\n\r\n" % status, b"".join(wire.written))
    assert wire.completed == 1


async def test_of_an_answer_to_head_only_the_head_leaves(wire: Wire) -> None:
    exchange = wire.exchange("HEAD")
    await exchange.send(head(200, SIZED))
    await exchange.send(body(b"Blue"))
    assert b"".join(wire.written) == b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"


@pytest.mark.parametrize("kept", [False, True])
async def test_the_last_answer_of_a_connection_says_so(wire: Wire, kept: bool) -> None:
    exchange = wire.exchange(kept=kept)
    await exchange.send(head(200, SIZED, *([(b"connection", b"close")] if kept else [])))
    await exchange.send(body(b"Blue"))
    assert b"".join(wire.written).count(b"\r\nconnection: close\r\n") == 1
    assert wire.closed


@pytest.mark.parametrize("sign", [*range(0x20), 0x7F])
@pytest.mark.parametrize("place", ["name", "value"])
async def test_a_header_that_would_make_another_head_is_not_sent(wire: Wire, sign: int, place: str) -> None:
    text = b"a%cb" % sign
    header = (text, b"v") if place == "name" else (b"n", text)
    if sign == 0x09:
        await wire.exchange().send(head(200, header))
    else:
        with pytest.raises(RuntimeError):
            wire.exchange().send(head(200, header))
        assert wire.written == []


@pytest.mark.parametrize("text", [b"a\r\nb: c", b"\r\n", b"a\r\n\r\nb"])
async def test_nor_is_one_that_holds_lines(wire: Wire, text: bytes) -> None:
    with pytest.raises(RuntimeError):
        wire.exchange().send(head(200, (b"n", text)))


@pytest.mark.parametrize("parts", [[b"Blu"], [b"Blue!"], [b"Bl", b"ue!"], [b"Bl", b""]])
async def test_an_answer_is_as_long_as_it_says(wire: Wire, parts: list[bytes]) -> None:
    exchange = wire.exchange()
    await exchange.send(head(200, SIZED))
    for part in parts[:-1]:
        await exchange.send(body(part, more=True))
    with pytest.raises(RuntimeError):
        await exchange.send(body(parts[-1]))
    assert not wire.completed


@pytest.mark.parametrize("messages", [[body()], [head(), head()], [head(204), body(), body()], [head(204), body(b"x")]])
async def test_an_answer_has_one_head_and_one_end(wire: Wire, messages: list[Any]) -> None:
    exchange = wire.exchange()
    for message in messages[:-1]:
        await exchange.send(message)
    with pytest.raises(RuntimeError):
        await exchange.send(messages[-1])


async def test_who_is_told_to_wait_sends_when_the_client_has_taken_the_rest(wire: Wire) -> None:
    exchange = wire.exchange()
    await exchange.send(head(200))
    wire.write_paused = True
    waiting = asyncio.ensure_future(exchange.send(body(b"Blue")))
    await asyncio.sleep(0.01)
    assert not wire.completed
    wire.drained.set()
    await waiting
    assert wire.completed


async def test_to_a_client_that_has_left_nothing_is_sent(wire: Wire) -> None:
    exchange = wire.exchange()
    exchange.client_left()
    await exchange.send(head(200))
    await exchange.send(body(b"Blue"))
    assert wire.written == []
    assert (await exchange.receive())["type"] == "http.disconnect"


# The body of the request


async def test_a_body_that_is_here_is_read_at_once(wire: Wire) -> None:
    exchange = wire.exchange("POST")
    assert exchange.whole_body() is None
    exchange.feed(b"Bl")
    exchange.feed(b"ue")
    exchange.end_body()
    assert exchange.whole_body() == b"Blue"
    assert exchange.whole_body() is None


async def test_a_body_is_read_as_it_comes_and_after_it_the_end(wire: Wire) -> None:
    exchange = wire.exchange("POST", continues=True)
    first = asyncio.ensure_future(exchange.receive())
    await asyncio.sleep(0)
    assert wire.written == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    exchange.feed(b"Bl")
    assert await first == {"type": "http.request", "body": b"Bl", "more_body": True}
    exchange.feed(b"u" * 100_000)
    assert wire.read_paused
    exchange.end_body()
    assert await exchange.receive() == {"type": "http.request", "body": b"u" * 100_000, "more_body": False}
    assert not wire.read_paused
    leaves = asyncio.ensure_future(exchange.receive())
    await asyncio.sleep(0)
    assert not leaves.done()
    exchange.client_left()
    assert (await leaves)["type"] == "http.disconnect"


@pytest.mark.parametrize("started", [False, True])
async def test_whatever_breaks_the_client_is_not_left_waiting(
    wire: Wire, caplog: pytest.LogCaptureFixture, started: bool
) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        if started:
            await send(head(200))
        raise KeyError

    await wire.exchange().run(broken)
    assert "Exception in ASGI application" in caplog.text
    assert wire.closed
    assert b"".join(wire.written).startswith(b"HTTP/1.1 200 " if started else b"HTTP/1.1 500 ")


async def test_what_breaks_behind_the_last_words_does_not_take_them_away(wire: Wire) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await send(head(200))
        await send(last_words(b"Blue"))
        raise KeyError

    await wire.exchange().run(broken)
    assert wire.closed
    assert b"".join(wire.written).endswith(b"\r\n\r\n4\r\nBlue\r\n")


async def test_a_head_that_is_no_head_is_not_sent_in_the_end_either(wire: Wire) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await send(head(200, (b"n", b"a\r\nb: c")))

    await wire.exchange().run(broken)
    await asyncio.sleep(0)
    assert (wire.written, wire.closed) == ([], True)
