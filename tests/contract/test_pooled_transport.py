"""The pool below httpx, on a scripted wire: what is kept, what is tried again, and what errors become."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from providers.web.pooled import PooledTransport

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nSet-Cookie: a=b\r\nX-Odd: \xe9\r\n\r\nok"
SHORT = {"timeout": {"connect": 5.0, "read": 0.05, "write": 5.0, "pool": 5.0}}


class Wire:
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
async def wire(talk: Talk) -> AsyncIterator[tuple[Wire, PooledTransport]]:
    scripted = Wire(talk)
    server = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
    scripted.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/search?q=a%20b%2Fc&x=%E9"
    transport = PooledTransport(ssl.create_default_context())
    try:
        yield scripted, transport
    finally:
        await transport.aclose()
        server.close()


async def ask(transport: PooledTransport, url: str, method: str = "GET", **more: object) -> httpx.Response:
    response = await transport.handle_async_request(httpx.Request(method, url, **more))  # type: ignore[arg-type]
    try:
        await response.aread()
    finally:
        await response.aclose()
    return response


async def say(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(ANSWER)


async def test_a_connection_is_used_again_and_nothing_is_remembered() -> None:
    async with wire(say) as (server, transport):
        for _ in range(3):
            answer = await ask(transport, server.url, headers={"X-Key": "k"})
            assert (answer.status_code, answer.content) == (200, b"ok")
            assert answer.headers["x-odd"] == "é"
        assert [len(heads) for heads in server.heads] == [3]
        last = server.heads[0][-1].lower()
        assert b"cookie" not in last
        assert b"x-key: k" in last


async def test_the_request_is_sent_as_httpx_wrote_it() -> None:
    async with wire(say) as (server, transport):
        request = httpx.Request("GET", server.url, headers={"Accept": "a/b"})
        response = await transport.handle_async_request(request)
        await response.aread()
        await response.aclose()
        line, *headers = server.heads[0][0].decode().strip().split("\r\n")
        assert line == "GET /search?q=a%20b%2Fc&x=%E9 HTTP/1.1"
        assert {name.lower() for name, _, _ in (header.partition(":") for header in headers)} == {"host", "accept"}


async def test_a_body_is_sent_with_its_length() -> None:
    sent: list[bytes] = []

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent.append(await reader.readexactly(7))
        writer.write(ANSWER)

    async with wire(read) as (server, transport):
        await ask(transport, server.url, "POST", json={"a": 1})
        assert sent == [b'{"a":1}']
        head = server.heads[0][0].lower()
        assert b"content-length: 7" in head
        assert b"content-type: application/json" in head


async def test_a_connection_that_the_server_has_closed_meanwhile_costs_no_error() -> None:
    async def say_and_leave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(ANSWER)
        writer.close()

    async with wire(say_and_leave) as (server, transport):
        for asked in range(1, 4):
            await ask(transport, server.url)
            async with server.news:
                await server.news.wait_for(lambda asked=asked: server.closed >= asked)  # type: ignore[misc]


async def test_a_body_that_is_left_unread_closes_its_connection() -> None:
    async def without_end(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nbeginning")

    async with wire(without_end) as (server, transport):
        response = await transport.handle_async_request(httpx.Request("GET", server.url))
        await response.aclose()
        async with server.news:
            await server.news.wait_for(lambda: server.closed == 1)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"", httpx.RemoteProtocolError),
        (b"nonsense\r\n\r\n", httpx.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", httpx.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", httpx.RemoteProtocolError),
    ],
)
async def test_what_a_broken_answer_becomes(said: bytes, error: type[httpx.RequestError]) -> None:
    async def break_off(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        writer.close()

    async with wire(break_off) as (server, transport):
        with pytest.raises(error):
            await ask(transport, server.url)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"])
async def test_silence_is_a_timeout(said: bytes) -> None:
    async def be_silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)

    async with wire(be_silent) as (server, transport):
        with pytest.raises(httpx.ReadTimeout):
            await ask(transport, server.url, extensions=SHORT)


async def test_nobody_there() -> None:
    async with wire(say) as (_, transport):
        with pytest.raises(httpx.ConnectError):
            await ask(transport, "http://127.0.0.1:1/")
        with pytest.raises(httpx.UnsupportedProtocol):
            await ask(transport, "ftp://127.0.0.1/")
