"""One request on a connection and its answer. Handed a scope, the body as it comes, and the connection's way out; runs
the application, hands it the body or raises what is wrong with that, and writes its answer as HTTP/1.1.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from starlette.types import ASGIApp, Message, Receive, Scope
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

from ..values.errors import RequestError
from ..values.events import Failed
from .early_start import start_now
from .pieces import SENT, Write, as_message

log = logging.getLogger("groundwire")

_TEXT = bytes([0x09, *range(0x20, 0x7F), *range(0x80, 0x100)])  # what a line of a head may hold
_as_line = b"%b: %b\r\n".__mod__  # of a pair, its name and its value
_CHUNK = b"%x\r\n%b\r\n"
_CLOSE, _CHUNKED = (b"connection", b"close"), (b"transfer-encoding", b"chunked")
_BODILESS = (204, 304)
_STREAM = b'"stream"'  # in a body that asks for one, in every dialect; or that says it wants none
_CRASH = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"21"), (b"connection", b"close")]


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


class Exchange:
    """A body that turns out to be none is refused where it is being read. The head of an answer leaves together with
    the first of its body: two writes would cost a fifth of a short answer. If none comes at once, it leaves alone.
    Whoever sends the head may say that `body_follows` at once, which saves a round of the event loop. The last words of
    a stream wait for its end where their sender says that its `end_follows`, but no longer than this round.

    `continues`: the client waits for our word before it sends the body. `kept`: the connection stays open afterwards.
    `on_response` is called when all of the answer was written."""

    __slots__ = (
        "_begun_reading",
        "_chunked",
        "_continues",
        "_flow",
        "_held",
        "_left",
        "_news",
        "_on_leaving",
        "_on_response",
        "_outlet",
        "_parts",
        "_refused",
        "_server",
        "_unsent",
        "_waiter",
        "disconnected",
        "keep_alive",
        "more_body",
        "response_complete",
        "response_started",
        "scope",
        "task",
    )

    def __init__(
        self,
        scope: Scope,
        outlet: Outlet,
        flow: FlowControl,
        server: ServerState,
        on_response: Callable[[], None],
        continues: bool,
        kept: bool,
    ) -> None:
        self.scope = scope
        self.task: asyncio.Task[None] | None = None  # which runs it
        self._outlet = outlet
        self._flow = flow
        self._server = server
        self._on_response = on_response
        self._continues = continues
        self.keep_alive = kept
        self.disconnected = False
        self.more_body = True
        self._parts: list[bytes] = []  # of the body, that nobody has read
        self._held = 0  # their bytes
        self._begun_reading = False
        self._refused: Failed | None = None
        self._news = False  # something has come since somebody looked
        self._waiter: asyncio.Event | None = None  # for that
        self._on_leaving: Callable[[], None] | None = None
        self.response_started = self.response_complete = False
        self._chunked = False
        self._left = 0  # bytes of the answer that its length promises
        self._unsent = b""  # of the answer: it leaves with what comes next, or soon

    def start(self, app: ASGIApp, loop: asyncio.AbstractEventLoop) -> None:
        """Who wants a stream waits for its first word: that is begun at once. All others begin together in the next
        round of the loop, which costs each of them a tenth less."""
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)  # the word may lie across two of them
        if body.find(_STREAM) >= 0:
            start_now(self.run(app), loop, self._serve_by)
        else:
            self._serve_by(loop.create_task(self.run(app)))

    def _serve_by(self, task: asyncio.Task[None]) -> None:
        self.task = task
        self._server.tasks.add(task)

    async def run(self, app: ASGIApp) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        except BaseException as error:
            log.error("Exception in ASGI application", exc_info=error)
            await self._break_off()
        else:
            if not self.response_complete and not self.disconnected:
                log.error("a request was left without an answer, or with half of one")
                await self._break_off()
        finally:
            self._server.tasks.discard(self.task)
            self._on_response = _nothing

    async def _break_off(self) -> None:
        if self.response_started:
            self._put_unsent()  # behind the close nothing leaves
            self._outlet.close()
            return
        await self.send({"type": "http.response.start", "status": 500, "headers": _CRASH})
        await self.send({"type": "http.response.body", "body": b"Internal Server Error"})

    # What the client sends

    def feed(self, part: bytes) -> None:
        """The next part of the body."""
        self._parts.append(part)
        self._held += len(part)
        if self._held > HIGH_WATER_LIMIT:
            self._flow.pause_reading()
        self.wake()

    def end_body(self) -> None:
        self.more_body = False
        self.wake()

    def refuse(self, failed: Failed) -> None:
        self._refused = failed
        self.keep_alive = False
        self.wake()

    def wake(self) -> None:
        """There is something for who waits in `receive`."""
        self._news = True
        if self._waiter is not None:
            self._waiter.set()

    async def receive(self) -> Message:
        self._begun_reading = True
        if self._continues and not self._outlet.is_closing():
            self._outlet.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._continues = False
        if not self.disconnected and not self.response_complete:
            self._flow.resume_reading()
            await self._await_news()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        if self._refused:
            raise RequestError(self._refused)
        return {"type": "http.request", "body": self._taken(), "more_body": self.more_body}

    async def _await_news(self) -> None:
        if not self._news:
            self._waiter = self._waiter or asyncio.Event()
            await self._waiter.wait()
        self._news = False
        if self._waiter is not None:
            self._waiter.clear()

    def _taken(self) -> bytes:
        parts, self._parts, self._held = self._parts, [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def whole_body(self) -> bytes | None:
        """The body, if all of it is here and nobody has read any of it."""
        if self.more_body or self.disconnected or self._refused or self._begun_reading:
            return None
        self._begun_reading = True
        self._news = False
        return self._taken()

    # The client leaves

    def when_client_leaves(self, leaving: Callable[[], None] | None) -> None:
        """What is to be done then; None: nothing any more. Cheaper than a task that waits in `receive`."""
        self._on_leaving = leaving
        if leaving is not None:
            if self._flow.read_paused:  # else nobody would see it
                self._flow.resume_reading()
            if self.disconnected:
                self.client_left()

    def client_left(self) -> None:
        """The connection is lost."""
        if not self.response_complete:
            self.disconnected = True
        self.wake()
        leaving, self._on_leaving = self._on_leaving, None
        if leaving is not None and not self.response_complete:
            leaving()

    # The answer

    def send(self, message: Message) -> Awaitable[None]:
        """No coroutine where nothing is to be waited for: every piece of an answer passes here."""
        if self.disconnected:
            return SENT
        if self._flow.write_paused:
            return self._send_later(message)
        if message["type"] == "http.response.start" and not self.response_started:
            self._begin(message["status"], message["headers"])
            if not message.get("body_follows"):
                self._put_soon()
        elif message["type"] == "http.response.body" and self.response_started and not self.response_complete:
            last = not message.get("more_body")
            self._put(message.get("body", b""), last=last, waits=not last and message.get("end_follows", False))
        else:
            raise RuntimeError(f"an answer cannot go on with {message['type']}")
        return SENT

    def piece_writer(self) -> Write:
        return self._write

    def _write(self, piece: bytes) -> Awaitable[None]:
        """A piece of a body that goes on. Nearly always it is the next chunk, with nothing unsent before it: that is
        framed here, because every piece of every stream passes."""
        goes_on = self._chunked and not self._unsent and not self.response_complete
        if not goes_on or self._flow.write_paused or self.disconnected:
            return self.send(as_message(piece))
        if piece:
            self._outlet.write(_CHUNK % (len(piece), piece))
        return SENT

    async def _send_later(self, message: Message) -> None:
        await self._flow.drain()
        await self.send(message)

    def _begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.response_started = True
        self._continues = False
        said = [*self._server.default_headers, *headers]
        named = dict(said)
        if named.get(b"connection") == b"close":
            self.keep_alive = False
        elif not self.keep_alive:
            said.append(_CLOSE)
        if b"content-length" in named:
            self._left = int(named[b"content-length"])
        elif self.scope["method"] != "HEAD" and status not in _BODILESS:
            self._chunked = True
            said.append(_CHUNKED)
        lines = [STATUS_LINE[status], *map(_as_line, said), b"\r\n"]
        head = b"".join(lines)
        if head.translate(None, _TEXT) != b"\r\n" * len(lines):  # all that is left are the ends of our lines
            raise RuntimeError("a header of the answer holds what no header may")
        self._unsent = head

    def _put_soon(self) -> None:
        """What is unsent waits no longer than this round of the loop."""
        asyncio.get_running_loop().call_soon(self._put_unsent)

    def _put_unsent(self) -> None:
        if self._unsent and not self.disconnected:
            self._outlet.write(self._unsent)
        self._unsent = b""

    def _put(self, body: bytes, *, last: bool, waits: bool) -> None:
        framed = body
        if self.scope["method"] == "HEAD":
            framed = b""
        elif self._chunked:
            framed = _CHUNK % (len(body), body) if body else b""
            if last:
                framed += b"0\r\n\r\n"
        else:
            self._left -= len(body)
            if self._left < 0 or (last and self._left):
                raise RuntimeError("the answer is longer or shorter than its Content-Length says")
        if self._unsent:
            framed, self._unsent = self._unsent + framed, b""
        if waits:
            self._unsent = framed
            self._put_soon()
        elif framed:
            self._outlet.write(framed)
        if last:
            self._complete()

    def _complete(self) -> None:
        self.response_complete = True
        self.wake()
        if not self.keep_alive:
            self._outlet.close()
        self._on_response()


def exchange_behind(receive: Receive) -> Exchange | None:
    """The exchange whose `receive` this is; None where somebody reads in between, or another server serves."""
    owner = getattr(receive, "__self__", None)
    return owner if type(owner) is Exchange else None
