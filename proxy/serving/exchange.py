"""One request on a connection and its answer, as uvicorn's cycle runs them, and what of the connection they may touch.
Handed a scope and the connection's way out; hands the body to the application, or raises what is wrong with it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from starlette.types import Receive
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from ..values.errors import RequestError
from ..values.events import Failed

_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|(?<!\r)\n")  # all that no head may hold
_BODILESS = (204, 304)


class _Sent:
    """Has been done: to await it takes no time."""

    def __await__(self) -> Iterator[None]:
        return iter(())


_SENT = _Sent()


class Outlet:
    """The transport as an answer sees it: closing is the connection's affair."""

    __slots__ = ("close", "is_closing", "write")

    def __init__(self, transport: asyncio.Transport, hang_up: Callable[[], None]) -> None:
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.close = hang_up

    def forget(self) -> None:
        """The connection is gone, and nothing need keep it."""
        self.close = _nothing


def _nothing() -> None: ...


class Exchange(RequestResponseCycle):
    """A body that turns out to be none is refused where it is being read. The head of an answer leaves together with
    the first of its body: two writes would cost a fifth of a short answer. If none comes at once, it leaves alone."""

    def __init__(self, connection: HttpToolsProtocol, outlet: Outlet, *, continues: bool, kept: bool) -> None:
        super().__init__(
            scope=connection.scope,
            transport=outlet,  # type: ignore[arg-type]  # all of it that a cycle uses
            flow=connection.flow,
            logger=connection.logger,
            access_logger=connection.access_logger,
            access_log=False,
            default_headers=connection.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=continues,
            keep_alive=kept,
            on_response=connection.on_response_complete,
        )
        self._loop = connection.loop
        self._refused: Failed | None = None
        self._begun_reading = False
        self._head = b""  # that is still to be sent
        self._head_leaves: asyncio.Handle | None = None
        self._on_leaving: Callable[[], None] | None = None

    def refuse(self, failed: Failed) -> None:
        self._refused = failed
        self.keep_alive = False
        self.message_event.set()

    async def receive(self) -> Any:
        self._begun_reading = True
        message = await super().receive()
        if self._refused and message["type"] == "http.request":
            raise RequestError(self._refused)
        return message

    def whole_body(self) -> bytes | None:
        """The body, if all of it is here and nobody has read any of it."""
        if self.more_body or self.disconnected or self._refused or self._begun_reading:
            return None
        self._begun_reading = True
        self.message_event.clear()
        body, self.body = bytes(self.body), bytearray()
        return body

    # The client leaves

    def when_client_leaves(self, leaving: Callable[[], None] | None) -> None:
        """What is to be done then; None: nothing any more. Cheaper than a task that waits in `receive`."""
        self._on_leaving = leaving
        if leaving is not None:
            self.flow.resume_reading()  # else nobody would see it
            if self.disconnected:
                self.client_left()

    def client_left(self) -> None:
        leaving, self._on_leaving = self._on_leaving, None
        if leaving is not None and not self.response_complete:
            leaving()

    # The answer

    def send(self, message: Any) -> Any:
        """No coroutine where nothing is to be waited for: every piece of an answer passes here."""
        if self.flow.write_paused and not self.disconnected:
            return self._send_later(message)
        if self.disconnected:
            return _SENT
        if message["type"] == "http.response.start" and not self.response_started:
            self._begin(message["status"], message["headers"])
        elif self._is_plain_part(message):
            self._put(message.get("body", b""), last=not message.get("more_body", False))
        else:
            self._put_head()
            return super().send(message)
        return _SENT

    async def _send_later(self, message: Any) -> None:
        await self.flow.drain()
        await self.send(message)

    def _begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.response_started = True
        self.waiting_for_100_continue = False
        lines = [STATUS_LINE[status].removesuffix(b"\r\n")]
        for name, value in (*self.default_headers, *headers):
            if name == b"content-length":
                self.expected_content_length, self.chunked_encoding = int(value), False
            elif name == b"connection" and value == b"close":
                self.keep_alive = False
                continue
            lines.append(name + b": " + value)
        if not self.keep_alive:
            lines.append(b"connection: close")
        if self.chunked_encoding is None and self.scope["method"] != "HEAD" and status not in _BODILESS:
            self.chunked_encoding = True
            lines.append(b"transfer-encoding: chunked")
        self._head = b"\r\n".join(lines) + b"\r\n\r\n"
        if _CONTROL.search(self._head) or self._head.count(b"\n") != len(lines) + 1:
            raise RuntimeError("a header of the answer holds what no header may")
        self._head_leaves = self._loop.call_soon(self._put_head)

    def _put_head(self) -> None:
        if self._head and not self.disconnected:
            self.transport.write(self._head)
        self._head = b""

    def _is_plain_part(self, message: Any) -> bool:
        """What is no such part is left to the cycle, which knows what else there is, and what is wrong with it."""
        plain = self.response_started and not self.response_complete and message["type"] == "http.response.body"
        return plain and self.scope["method"] != "HEAD" and self.chunked_encoding is not None

    def _put(self, body: bytes, *, last: bool) -> None:
        if self.chunked_encoding:
            framed = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            if last:
                framed += b"0\r\n\r\n"
        else:
            framed = body
            self.expected_content_length -= len(body)
            if self.expected_content_length < 0 or (last and self.expected_content_length):
                raise RuntimeError("the answer is longer or shorter than its Content-Length says")
        if self._head:
            framed, self._head = self._head + framed, b""
            if self._head_leaves is not None:
                self._head_leaves.cancel()
        if framed:
            self.transport.write(framed)
        if last:
            self._complete()

    def _complete(self) -> None:
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


def exchange_behind(receive: Receive) -> Exchange | None:
    """The exchange whose `receive` this is; None where somebody reads in between, or another server serves."""
    owner = getattr(receive, "__self__", None)
    return owner if isinstance(owner, Exchange) else None


class LastBody:
    """What a parser calls that reads the body of one request and nothing after it."""

    def __init__(
        self, on_chunk_header: Callable[[], None], on_body: Callable[[bytes], None], on_end: Callable[[], None]
    ) -> None:
        self.on_chunk_header = on_chunk_header
        self._on_body = on_body
        self._on_end = on_end
        self._over = False

    def on_body(self, body: bytes) -> None:
        if not self._over:
            self._on_body(body)

    def on_message_complete(self) -> None:
        if not self._over:
            self._over = True
            self._on_end()
