"""A server that writes exactly what a test tells it, and the connections to it. Handed what to say to each question;
hands on a `Server` that is asked, and knows what it was asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from providers.web.answer import Answer
from providers.web.connections import Connections
from providers.web.egress import DIRECT

SIZED = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 11\r\n\r\nhello world"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nEnd: yes\r\n\r\n"
TO_THE_END = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello world"
EARLY = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"

Say = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """`heads` are those of the questions that came, `opened` how many connections."""

    connections: Connections
    port: int
    heads: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    opened: int = 0
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, method: str = "POST", body: bytes = b"{}", patience: float | None = 30.0) -> Answer:
        return await self.connections.ask(method, "/v1/chat", {"x-test": "yes"}, body, patience)


@asynccontextmanager
async def serving(say: Say, connect_timeout: float = 5.0) -> AsyncIterator[Server]:
    """`say` is called for each question, until it closes the connection."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.opened += 1
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                server.heads.append(head)
                size = next(
                    (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-len")), 0
                )
                server.bodies.append(await reader.readexactly(size))
                await say(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            server.closed.set()
            writer.close()

    listener = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    always = {"User-Agent": "test", "Authorization": "Bearer ours"}
    server = Server(Connections(f"http://127.0.0.1:{port}", always, DIRECT, connect_timeout), port)
    try:
        yield server
    finally:
        server.connections.close()
        listener.close()
        await listener.wait_closed()


def saying(*parts: bytes, close: bool = False) -> Say:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        if close:
            writer.close()

    return say


async def whole(answer: Answer) -> bytes:
    parts = []
    with answer:
        while data := await answer.read(30.0):
            parts.append(data)
    return b"".join(parts)


class Flood:
    """It says `size` bytes, faster than anybody reads; `stuck` is set when nobody took them for half a second."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.sent = 0
        self.stuck = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % self.size)
        while self.sent < self.size:
            writer.write(b"x" * 65536)
            self.sent += 65536
            try:
                async with asyncio.timeout(0.5):
                    await writer.drain()
            except TimeoutError:
                self.stuck.set()
                await writer.drain()
