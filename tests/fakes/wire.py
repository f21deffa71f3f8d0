"""A connection without a network: the real protocol behind the real edge, around an application that says back what it
was sent. Handed pieces of bytes as reads of a socket would bring them; hands on what the client would have got.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from proxy.callers.keys import ClientKeys
from proxy.config.settings import ServerConfig
from proxy.dialects.chat import ChatDialect
from proxy.serving.connection import Connection
from proxy.serving.edge import Edge
from proxy.serving.open_connections import ConnectionLimits, OpenConnections
from proxy.watching.observer import Listener

_ANSWER = re.compile(rb"HTTP/1\.1 (\d{3}) .*?\r\ncontent-length: (\d+)\r\n.*?\r\n\r\n", re.S)
_ID = re.compile(rb"req_[0-9a-f]{24}")


class Transport(asyncio.Transport):
    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self.sent = b""
        self.over = False  # nothing more will be sent

    def write(self, data: Any) -> None:
        assert not self.over, "written after the end"
        self.sent += data

    def write_eof(self) -> None:
        self.over = True

    def close(self) -> None:
        if not self.is_closing():
            self.over = True
            asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self.over

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


@dataclass(frozen=True)
class Heard:
    """`answers` are statuses with their bodies; `closed` says that the server hung up."""

    answers: list[tuple[int, bytes]]
    closed: bool
    held: int  # bytes of heads that the connection kept at most

    @property
    def statuses(self) -> list[int]:
        return [status for status, _ in self.answers]


async def say_back(scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + message.get("body", b""), message["more_body"]
    said = orjson.dumps(
        [scope["method"], scope["raw_path"].decode(), scope["query_string"].decode(), body.decode("latin-1")]
    )
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(said))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": said})


async def _secret() -> bytes:
    return b"s"


def heard(
    pieces: Iterable[bytes], *, listeners: Sequence[Listener] = (), kind: type[Connection] = Connection, **server: Any
) -> Heard:
    """What is answered if exactly these pieces are read, one after the other."""
    return asyncio.run(_talk(pieces, listeners, kind, ServerConfig(**server)))


def accepted(
    server: ServerConfig,
    state: ServerState,
    listeners: Sequence[Listener] = (),
    app: ASGIApp = say_back,
    kind: type[Connection] = Connection,
) -> tuple[Connection, OpenConnections, Transport]:
    """A connection that the listener has taken in, and that the event loop has not made yet."""
    keys = ClientKeys(server.keys, _secret)
    edge = Edge(app, server, keys, lambda path, headers: ChatDialect(), listeners)
    config = uvicorn.Config(edge, http="httptools", ws="none", lifespan="off", log_config=None, proxy_headers=False)
    others = OpenConnections(ConnectionLimits.of(server, 1024))
    connection = kind(config, state, {}, edge, others, "10.0.0.1")
    others.add(connection)
    return connection, others, Transport(connection)


async def _talk(
    pieces: Iterable[bytes], listeners: Sequence[Listener], kind: type[Connection], server: ServerConfig
) -> Heard:
    state = ServerState()
    connection, others, transport = accepted(server, state, listeners, kind=kind)
    connection.connection_made(transport)
    held = 0
    for piece in pieces:
        await received(connection, piece)
        await _settle(state)
        headers = [*connection.headers, *connection._own]
        held = max(held, len(connection.url) + sum(map(len, map(b"".join, headers))))
        if transport.over:
            break
    closed = transport.over
    transport.close()
    connection.connection_lost(None)
    await _settle(state)
    assert not state.tasks
    assert not len(others)
    connection.config.app.tell_ends()  # type: ignore[union-attr]
    return Heard(_answers(_ID.sub(b"req", transport.sent)), closed, held)


async def received(connection: Connection, *pieces: bytes) -> None:
    """In one callback of the event loop, as it comes from a socket: there no task is being run."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def callback() -> None:
        for piece in pieces:
            connection.data_received(piece)
        done.set_result(None)

    loop.call_soon(callback)
    await done


async def _settle(state: ServerState) -> None:
    """Until nothing moves any more: whoever is left waits for more of the request."""
    seen, quiet = -1, 0
    while quiet < 8:
        await asyncio.sleep(0)
        quiet = quiet + 1 if seen == state.total_requests else 0
        seen = state.total_requests


def _answers(sent: bytes) -> list[tuple[int, bytes]]:
    found = []
    while sent:
        head = _ANSWER.match(sent)
        assert head, f"no answer of ours: {sent!r}"
        end = head.end() + int(head[2])
        assert len(sent) >= end, f"half an answer: {sent!r}"
        found.append((int(head[1]), sent[head.end() : end]))
        sent = sent[end:]
    return found
