"""Answers whose pieces are handed on in the moment in which they come, against servers that write what a test says."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from providers.web.answer import Answer, BrokenOff
from proxy.upstreams.answer_body import read_to_the_end
from tests.fakes.scripted_server import CHUNKED, SIZED, TO_THE_END, Flood, Say, Server, saying, serving

END = b"0\r\nEnd: yes\r\n\r\n"  # of what is `CHUNKED`


class Taker:
    """Takes pieces, so many of them at once."""

    def __init__(self, most: int = 100_000) -> None:
        self.pieces: list[bytes] = []
        self._left = self._most = most

    def __call__(self, data: bytes) -> bool:
        self.pieces.append(data)
        self._left = (self._left or self._most) - 1
        return self._left > 0

    @property
    def taken(self) -> bytes:
        return b"".join(self.pieces)


@asynccontextmanager
async def answered(say: Say) -> AsyncIterator[tuple[Server, Answer]]:
    async with serving(say) as server:
        with await server.ask() as answer:
            yield server, answer


@pytest.mark.parametrize("most", [1, 2, 1000])
@pytest.mark.parametrize("told", [SIZED, CHUNKED, TO_THE_END])
async def test_all_of_a_body_is_handed_on_however_it_is_cut(told: bytes, most: int) -> None:
    for cut in range(told.index(b"\r\n\r\n"), len(told)):
        async with answered(saying(told[:cut], told[cut:], close=told is TO_THE_END)) as (_, answer):
            taker = Taker(most)
            while await answer.feed(taker, 30.0):
                assert len(taker.pieces) % most == 0
            assert taker.taken == b"hello world"
            assert answer.is_whole


async def test_a_connection_whose_answer_was_handed_on_is_kept() -> None:
    async with serving(saying(SIZED)) as server:
        for _ in range(3):
            with await server.ask() as answer:
                assert not await answer.feed(Taker(), 30.0)
    assert server.opened == 1


async def test_nobody_waits_for_long_behind_a_body_that_unpacks_to_nothing() -> None:
    """What comes keeps a reader waiting, and none of it is a byte of the body."""
    packing = zlib.compressobj(wbits=31)
    first = packing.compress(b"all is said") + packing.flush(zlib.Z_SYNC_FLUSH)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head + b"%x\r\n%b\r\n" % (len(first), first))
        while not writer.is_closing():
            await writer.drain()
            await asyncio.sleep(0.005)
            writer.write(b"5\r\n\x00\x00\x00\xff\xff\r\n")  # a block of nothing

    async with answered(say) as (_, answer):
        assert await answer.read(30.0) == b"all is said"
        async with asyncio.timeout(30):
            await read_to_the_end(answer)
        assert not answer.is_whole


async def test_a_connection_whose_answer_has_said_all_is_kept_once_its_end_has_come() -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED.removesuffix(END))
        await asyncio.sleep(0.01)
        writer.write(END)

    async with serving(say) as server:
        for _ in range(3):
            with await server.ask() as answer:
                assert await answer.read(30.0)
                assert not answer.is_whole
                await read_to_the_end(answer)
                assert answer.is_whole
    assert server.opened == 1


async def test_an_end_that_does_not_come_is_awaited_for_a_moment_alone() -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED.removesuffix(END))
        while True:
            writer.write(b"1\r\n \r\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with answered(say) as (_, answer):
        async with asyncio.timeout(5.0):
            await read_to_the_end(answer)
        assert not answer.is_whole


async def test_a_piece_is_handed_on_without_a_task_being_woken_for_it() -> None:
    more = asyncio.Event()
    by: list[asyncio.Task[object] | None] = []

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SIZED[:-2])
        await more.wait()
        writer.write(SIZED[-2:-1])
        await reader.read()

    def take(data: bytes) -> bool:
        by.append(asyncio.current_task())
        more.set()
        return len(by) == 1

    async with answered(say) as (server, answer):
        assert await answer.feed(take, 30.0)
        assert len(by) == 2
        assert by[1] is None
        answer.close()
        await server.closed.wait()


async def test_who_takes_no_more_lets_the_server_wait_and_reads_on_as_he_likes() -> None:
    flood = Flood(64 << 20)
    async with answered(flood) as (_, answer):
        one, rest = Taker(1), Taker()
        assert await answer.feed(one, 30.0)
        await flood.stuck.wait()
        assert flood.sent < flood.size / 2
        read = await answer.read(30.0)
        assert not await answer.feed(rest, 30.0)
        assert len(one.pieces) == 1
        assert sum(map(len, (*one.pieces, read, *rest.pieces))) == flood.size


async def test_what_came_before_a_break_is_handed_on_first() -> None:
    async with answered(saying(SIZED[:-1], close=True)) as (server, answer):
        taker = Taker()
        with pytest.raises(BrokenOff):
            await answer.feed(taker, 30.0)
        assert taker.taken == b"hello worl"
        await server.closed.wait()
        with pytest.raises(BrokenOff):
            await answer.feed(taker, 30.0)


async def test_silence_has_an_end_and_each_piece_puts_it_off() -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SIZED[:-5])
        for letter in SIZED[-5:-1]:
            await asyncio.sleep(0.1)
            writer.write(bytes([letter]))
        await reader.read()

    async with answered(say) as (server, answer):
        taker = Taker()
        with pytest.raises(TimeoutError):
            await answer.feed(taker, 0.3)
        assert taker.taken == b"hello worl"
        answer.close()
        await server.closed.wait()


async def test_a_fault_of_who_takes_is_raised_where_he_waits() -> None:
    def take(data: bytes) -> bool:
        if data == b"d":
            raise ZeroDivisionError
        return True

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SIZED[:-2])
        for letter in b"dd":
            await asyncio.sleep(0.01)
            writer.write(bytes([letter]))
        await reader.read()

    async with answered(say) as (server, answer):
        with pytest.raises(ZeroDivisionError):
            await answer.feed(take, 30.0)
        answer.close()
        await server.closed.wait()


async def test_who_is_cancelled_is_handed_nothing_more() -> None:
    more = asyncio.Event()

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SIZED[:-1])
        await more.wait()
        writer.write(SIZED[-1:])

    async with answered(say) as (_, answer):
        taker = Taker()
        feeding = asyncio.create_task(answer.feed(taker, 30.0))
        while not taker.pieces:
            await asyncio.sleep(0.001)
        feeding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await feeding
        more.set()
        while not answer.is_whole:
            await asyncio.sleep(0.001)
        assert taker.taken == b"hello worl"
        assert await answer.read(30.0) == b"d"


async def test_what_is_packed_is_unpacked_before_it_is_handed_on() -> None:
    packed = gzip.compress(b"hello world")
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    async with answered(saying(head, packed[:9], packed[9:])) as (_, answer):
        taker = Taker(1)
        while await answer.feed(taker, 30.0):
            pass
        assert taker.taken == b"hello world"
