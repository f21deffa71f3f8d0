"""One connection to a model's server or a service: HTTP/1.1, read by httptools. Handed bytes by the event loop and a
question to write; hands on an `Answer`, whose body is read as it comes. Who reads slowly lets the server wait.

Why not a client library: what a proxied token and a search cost is decided here. aiohttp took half of the CPU time of a
forwarded request and of a chunk (`bench/results/`), httpx ten times as much. What we need of HTTP is little: one
question at a time, an answer by length, by chunks or to the end, and a connection that is kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import httptools

from .answer import Answer, BrokenOff, HungUp, NotHTTP, ReadTimeout, Take, WireError

log = logging.getLogger("groundwire")

_MOST_WAITING = 32 * 1024  # bytes that may wait for a slow client before the model's server has to
_LARGEST_HEAD = 64 * 1024
_MOST_HEADERS = 200
_STATUSES = range(600)  # that HTTP knows
_NO_STATUS = 502  # what any other one counts as (RFC 9110, 15): nobody could hand it on
# Headers that have one value: where a server repeats one, the last counts.
_SINGLE = frozenset(
    {
        b"content-type",
        b"content-length",
        b"content-disposition",
        b"date",
        b"location",
        b"retry-after",
        b"retry-after-ms",
        b"x-should-retry",
        b"openai-processing-ms",
    }
)
_LOOK_EVERY = 5.0  # seconds between two looks at how long somebody has waited
_FOREVER = float("inf")


class Wire(asyncio.BaseProtocol):
    """`freed` is told when it may be asked again. One question at a time. How bytes come is its subclasses' affair."""

    def __init__(self, freed: Callable[[Wire], None]) -> None:
        self.loop = asyncio.get_running_loop()
        self._freed = freed
        self._transport: asyncio.Transport | None = None
        self._source: asyncio.Transport | None = None  # what is paused where nobody takes what comes
        self._parts: list[bytes] = []  # of the body, not read yet
        self._headers: list[tuple[bytes, bytes]] = []
        self.on_body = self._parts.append  # called by the parser for every piece, without a function of ours between
        self._parser = httptools.HttpResponseParser(self)
        self._head: asyncio.Future[Answer] | None = None  # awaited by whoever has asked
        self._answer: Answer | None = None  # whose body is under way
        self._bodiless = False
        self._unmoved = 0  # bytes since the question, or since the last of the body, that were nothing of a body
        self._waiting = 0  # bytes that were not taken
        self._paused = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[bool] | None = None  # for more of a body
        self._take: Take | None = None  # or who is handed what comes, until `_waiter` is done
        self._patience = _FOREVER
        self._until = _FOREVER  # when whoever waits has waited long enough
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = _FOREVER
        self.free_since = 0.0

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    # Whoever asks

    async def ask(self, question: Sequence[bytes], patience: float | None, *, bodiless: bool = False) -> Answer:
        """`bodiless`: the answer has no body, whatever its head says."""
        assert self._transport is not None
        head: asyncio.Future[Answer] = self.loop.create_future()
        self._head = head
        self._bodiless, self._unmoved = bodiless, 0
        self._transport.writelines(question)
        self._watch(patience)
        try:
            return await head
        except BaseException:
            if head.done() and not head.cancelled() and not head.exception():
                head.result().close()
            else:
                self.abort()
            raise

    def more(self, patience: float | None) -> asyncio.Future[bool]:
        """Done when more of the body has come, or its end."""
        if self._error is not None:
            raise self._error
        self._take = None
        self._waiter = self.loop.create_future()
        self._watch(patience)
        return self._waiter

    def fed(self, take: Take, patience: float | None) -> asyncio.Future[bool]:
        """Done when the body has come to its end, or `take` wants no more of it: then it is False."""
        waiter = self.more(patience)
        self._take, self._patience = take, _FOREVER if patience is None else patience
        return waiter

    def taken(self) -> bytes:
        parts = self._parts
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._waiting = 0
        if self._paused and self._transport is not None and self._source is not None:
            self._paused = False
            self._source.resume_reading()
        return data

    def abort(self) -> None:
        self._head = self._answer = None
        if self._transport is not None:
            self._transport.abort()

    # The event loop's side

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._source = self._source or transport

    def _read(self, data: bytes | memoryview) -> None:
        nbytes = len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(_failure_of(error))
            return
        if self._answer is None:
            if self._head is not None:
                self._bound(nbytes, "its head is too large")
        elif not self._parts:
            self._bound(nbytes, "it says too much between the pieces of its body, or behind it")
        else:
            self._unmoved = 0
            if self._take is not None and self._waiter is not None and not self._waiter.done():
                self._feed(self._take, self._waiter)
            else:
                self._hold(nbytes)

    def _bound(self, size: int, excess: str) -> None:
        """Nothing of a body was in it, so nobody counts it: the parser would keep headers without end."""
        self._unmoved += size
        if self._unmoved > _LARGEST_HEAD:
            self._fail(NotHTTP(excess))

    def _hold(self, size: int) -> None:
        """More of the body is here."""
        self._waiting += size
        if self._waiting > _MOST_WAITING and not self._paused and self._transport is not None and self._source:
            self._paused = True
            self._source.pause_reading()
        self._wake()

    def _feed(self, take: Take, waiter: asyncio.Future[bool]) -> None:
        """And is handed on at once. Nothing has waited before it, so nothing was paused."""
        parts = self._parts
        data = parts.pop() if len(parts) == 1 else self.taken()
        self._until = self.loop.time() + self._patience
        try:
            if not take(data):
                waiter.set_result(False)
        except Exception as error:  # it is raised where whoever takes it waits
            waiter.set_exception(error)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if self._head is None and self._answer is None:
            return
        if error is not None and not isinstance(error, OSError):  # we raised it, and the event loop closed
            self._fail(_bug(error))
        elif self._head is not None:
            self._fail(HungUp("the server closed the connection"))
        elif self._answer is not None and error is None and not self._answer.has_length:
            self._complete(self._answer)
        else:
            self._fail(BrokenOff("the connection ended in the middle of the answer"))

    # The parser's side

    def on_message_begin(self) -> None:
        if self._head is None:
            raise NotHTTP("it sent what nobody had asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if len(self._headers) > _MOST_HEADERS or sum([len(value) for _, value in self._headers]) > _LARGEST_HEAD:
            raise NotHTTP("its head is too large")
        headers: dict[bytes, bytes] = {}
        for spelling, value in self._headers:
            name = spelling.lower()
            if name in headers and name not in _SINGLE:  # RFC 9110, 5.3: the same as one line
                value = headers[name] + b", " + value
            headers[name] = value
        self._headers.clear()
        if status < 200 or self._head is None:  # the answer is still to come
            return
        self._answer = answer = Answer(self, status if status in _STATUSES else _NO_STATUS, headers)
        if not self._head.done():
            self._head.set_result(answer)
        self._head = None
        if self._bodiless:
            self._complete(answer)

    def on_message_complete(self) -> None:
        self._headers.clear()  # what was said behind the body belongs to nobody, least of all to the next answer
        if self._answer is not None:
            self._complete(self._answer)

    def _complete(self, answer: Answer) -> None:
        self._answer = self._take = None
        answer.complete(self.taken())
        self._wake()
        if self._transport is None:
            return
        if self._transport.get_write_buffer_size():  # it has not heard all: what it takes the rest for, nobody knows
            self._transport.abort()
        elif self._parser.should_keep_alive() and not self._bodiless:
            self._freed(self)
        else:
            self._transport.close()

    def _fail(self, error: Exception) -> None:
        self._error = error
        for waiter in (self._head, self._waiter):
            if waiter is not None and not waiter.done():
                waiter.set_exception(error)
        self._head = None
        if self._transport is not None:
            self._transport.abort()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    # Patience: one timer that looks now and then. One for each piece of an answer would cost more than reading it.

    def _watch(self, patience: float | None) -> None:
        if patience is None:
            self._until = _FOREVER
            return
        now = self.loop.time()
        self._until = now + patience
        if self._timer is None or self._until < self._looks_at:
            self._look_in(min(patience, _LOOK_EVERY), now)

    def _look_in(self, seconds: float, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = now + seconds
        self._timer = self.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        waiter = self._head or self._waiter
        if waiter is None or waiter.done() or self._until == _FOREVER:
            return
        now = self.loop.time()
        if now < self._until:
            self._look_in(min(self._until - now, _LOOK_EVERY), now)
        else:
            waiter.set_exception(ReadTimeout())


class ClearWire(Wire, asyncio.BufferedProtocol):
    """`room` is where what comes is read into: no more than that at once, or a client that reads slowly would have a
    quarter of a megabyte here. Nothing in it is needed any more when the next comes, so that all connections of one
    loop can share it."""

    def __init__(self, freed: Callable[[Wire], None], room: memoryview) -> None:
        super().__init__(freed)
        self._room = room

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        self._read(self._room[:nbytes])


class SecureWire(Wire, asyncio.Protocol):
    """Within TLS. Both event loops throw away what they have unpacked and nobody has taken when the server hangs up:
    what did not fit into a room, and all that comes while the connection is paused. So it takes all that there is, and
    what is paused is the connection below."""

    def below(self, transport: asyncio.Transport) -> None:
        """Told before there is TLS."""
        self._source = transport

    def data_received(self, data: bytes) -> None:
        self._read(data)


def _failure_of(error: Exception) -> Exception:
    """What the parser's error means. It wraps what a callback raises: a `WireError` of ours, or a bug, which must not
    look like an answer that is not HTTP."""
    reason = error.__context__
    if isinstance(reason, WireError):
        return reason
    if isinstance(error, httptools.HttpParserCallbackError) and not isinstance(reason, httptools.HttpParserError):
        log.error("reading an answer failed", exc_info=reason or error)  # here, because nobody may be waiting
        return _bug(reason)
    return NotHTTP(str(error))


def _bug(cause: BaseException | None) -> RuntimeError:
    """Raised to the caller: a class that no handler takes for an error of the server."""
    bug = RuntimeError("reading an answer failed")
    bug.__cause__ = cause
    return bug
