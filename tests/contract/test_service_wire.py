"""The wire to a service, on a scripted server: what is sent, kept, tried again and refused; and the same below a
vendor's SDK."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from providers.errors import Unavailable
from providers.web.answer import BrokenOff, HungUp, NotHTTP, WireError
from providers.web.connections import NotConnected
from providers.web.egress import DIRECT
from providers.web.sdk_transport import SdkTransport
from providers.web.service_wire import ServiceAnswer, ServiceWire

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nSet-Cookie: a=b\r\nX-Odd: \xe9\r\n\r\nok"
TARGET = "/search?q=a%20b%2Fc&x=%E9"
MOST = 1 << 20


class Server:
    """A server whose every connection is answered by `talk`; the heads that it was sent, by connection."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self.heads: list[list[bytes]] = []
        self.closed = 0
        self.news = asyncio.Condition()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads: list[bytes] = []
        self.heads.append(heads)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                heads.append(head)
                await self._talk(reader, writer)
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            async with self.news:
                self.closed += 1
                self.news.notify_all()


@asynccontextmanager
async def serving(talk: Talk, headers: dict[str, str] | None = None) -> AsyncIterator[tuple[Server, ServiceWire]]:
    scripted = Server(talk)
    server = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
    scripted.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    wire = ServiceWire("Test", scripted.url, headers or {}, DIRECT, timeout=5.0, most=MOST)
    try:
        yield scripted, wire
    finally:
        wire.close()
        server.close()


async def ask(wire: ServiceWire, method: str = "GET", body: bytes = b"") -> ServiceAnswer:
    return await wire.ask(method, TARGET, {}, body)


async def say(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(ANSWER)


async def test_a_connection_is_used_again_and_nothing_is_remembered() -> None:
    async with serving(say, {"X-Key": "k"}) as (server, wire):
        for _ in range(3):
            answer = await ask(wire)
            assert (answer.status, answer.content) == (200, b"ok")
            assert answer.headers[b"x-odd"] == b"\xe9"
            assert answer.header(b"x-none") == ""
        assert [len(heads) for heads in server.heads] == [3]
        last = server.heads[0][-1].lower()
        assert b"cookie" not in last
        assert b"x-key: k" in last


async def test_the_question_is_sent_as_it_is_and_nothing_is_added() -> None:
    async with serving(say, {"Accept": "a/b"}) as (server, wire):
        await ask(wire)
        line, *headers = server.heads[0][0].decode().strip().split("\r\n")
        assert line == f"GET {TARGET} HTTP/1.1"
        assert {name for name, _, _ in (header.partition(":") for header in headers)} == {"host", "accept"}


async def test_a_body_is_sent_with_its_length() -> None:
    sent: list[bytes] = []

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent.append(await reader.readexactly(7))
        writer.write(ANSWER)

    async with serving(read) as (server, wire):
        await ask(wire, "POST", b'{"a":1}')
        assert sent == [b'{"a":1}']
        assert b"content-length: 7" in server.heads[0][0].lower()


async def test_a_connection_that_the_server_has_closed_meanwhile_costs_no_error() -> None:
    async def say_and_leave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(ANSWER)
        writer.close()

    async with serving(say_and_leave) as (server, wire):
        for asked in range(1, 4):
            await ask(wire)
            async with server.news:
                await server.news.wait_for(lambda asked=asked: server.closed >= asked)  # type: ignore[misc]


async def test_what_is_packed_is_unpacked_and_what_was_not_asked_for_is_refused() -> None:
    packed = gzip.compress(b"hello world")
    encodings = iter([b"gzip", b"x-gzip", b"identity, GZip", b"br", b"gzip, gzip", b"deflate"])

    async def pack(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told = b"Content-Encoding: %s\r\nContent-Length: %d" % (next(encodings), len(packed))
        writer.write(b"HTTP/1.1 200 OK\r\n" + told + b"\r\n\r\n" + packed)

    async with serving(pack) as (_, wire):
        for _ in range(3):
            assert (await ask(wire)).content == b"hello world"
        for _ in range(3):
            with pytest.raises(Unavailable, match="the answer of Test came in an encoding that was not asked for"):
                await ask(wire)


@pytest.mark.parametrize("packed", [True, False])
async def test_what_is_too_large_is_not_read_to_its_end(packed: bool) -> None:
    body = gzip.compress(bytes(MOST + 1)) if packed else bytes(64 * MOST)
    told = b"Content-Length: %d\r\n" % len(body) + (b"Content-Encoding: gzip\r\n" if packed else b"")

    async def say_much(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + told + b"\r\n")
        writer.write(body)

    async with serving(say_much) as (_, wire):
        with pytest.raises(Unavailable, match="Test sent more than 1 MB"):
            await ask(wire)


async def test_who_gives_up_closes_the_connection() -> None:
    async def without_end(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nbeginning")

    async with serving(without_end) as (server, wire):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await ask(wire)
        async with server.news:
            await server.news.wait_for(lambda: server.closed == 1)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"", HungUp),
        (b"nonsense\r\n\r\n", NotHTTP),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", BrokenOff),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", NotHTTP),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", NotHTTP),
    ],
)
async def test_what_a_broken_answer_becomes(said: bytes, error: type[WireError]) -> None:
    async def break_off(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        writer.close()

    async with serving(break_off) as (_, wire):
        with pytest.raises(error):
            await ask(wire)


async def test_nobody_there() -> None:
    wire = ServiceWire("Test", "http://127.0.0.1:1", {}, DIRECT, timeout=5.0, most=MOST)
    with pytest.raises(NotConnected):
        await ask(wire)


async def test_below_an_sdk_the_request_is_sent_as_httpx_wrote_it() -> None:
    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(7) == b'{"a":1}'
        writer.write(ANSWER)

    async with serving(read) as (server, wire):
        client = httpx.AsyncClient(transport=SdkTransport(wire, server.url), headers={"User-Agent": "us"})
        for _ in range(2):
            answer = await client.post(f"{server.url}{TARGET}", json={"a": 1}, headers={"X-Key": "k"})
            assert (answer.status_code, answer.content, answer.headers["set-cookie"]) == (200, b"ok", "a=b")
        line, *headers = server.heads[0][0].decode().strip().split("\r\n")
        assert line == f"POST {TARGET} HTTP/1.1"
        assert {"user-agent: us", "x-key: k", "content-type: application/json", "content-length: 7"} < set(headers)
        assert len([header for header in headers if header.startswith(("host:", "content-length:"))]) == 2
        with pytest.raises(httpx.UnsupportedProtocol):
            await client.get("http://127.0.0.1:1/")
