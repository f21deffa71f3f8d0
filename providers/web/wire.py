"""One connection to a model's server or a service: HTTP/1.1, read by httptools. Handed bytes by the event loop and a
question to write; hands on an `Answer`, whose body is read as it comes. Who reads slowly lets the server wait.

Why not a client library: what a proxied token and a search cost is decided here. aiohttp took half of the CPU time of a
forwarded request and of a chunk (`bench/results/`), httpx ten times as much. What we need of HTTP is little: one
question at a time, an answer by length, by chunks or to the end, and a connection that is kept.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import httptools

_MOST_WAITING = 32 * 1024  # bytes that may wait for a slow client before the model's server has to
_LARGEST_HEAD = 64 * 1024
_MOST_HEADERS = 200
_STATUSES = range(600)  # that HTTP knows
_NO_STATUS = 502  # what any other one counts as (RFC 9110, 15): nobody could hand it on
_MOST_INFLATED = 1 << 20  # bytes at once of a body that was compressed
_PACKED = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}  # as zlib knows them
_LOOK_EVERY = 5.0  # seconds between two looks at how long somebody has waited
_FOREVER = float("inf")

Take = Callable[[bytes], bool]  # takes a piece of a body; whether it can take the next one at once


class WireError(Exception):
    """Something broke that is neither a timeout nor the system's own error."""


class NotHTTP(WireError):
    """What came is no answer in HTTP/1.1, or not one that we can read."""


class HungUp(WireError):
    """The connection ended before there was an answer."""


class BrokenOff(WireError):
    """The connection ended before the answer did."""


class Answer:
    """An answer whose head is here. `with` leaves the connection to the next question, or closes it where the body was
    not read to its end. Names of headers are in lower case."""

    __slots__ = ("_inflating", "_rest", "_wire", "headers", "status")

    def __init__(self, wire: Wire, status: int, headers: Mapping[bytes, bytes]) -> None:
        self._wire: Wire | None = wire  # None: all of the body has come
        self._rest = b""
        self.status = status
        self.headers = headers
        self._inflating: _Inflating | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._wire is not None:
            self._wire.abort()
            self._wire = None

    @property
    def is_whole(self) -> bool:
        """Has all of its body come?"""
        return self._wire is None

    @property
    def is_read(self) -> bool:
        """Has all of its body been handed on?"""
        return self._wire is None and not self._rest and self._inflating is None

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("utf-8", "surrogateescape")

    @property
    def has_length(self) -> bool:
        """Does its head say where the body ends? If not, it ends with the connection."""
        chunked = b"chunked" in self.headers.get(b"transfer-encoding", b"").lower()
        return chunked or b"content-length" in self.headers

    @property
    def media_type(self) -> str:
        return self.header(b"content-type").partition(";")[0].strip().lower()

    def unpack(self) -> None:
        """From here on `read` hands on what was packed in the body. Before this it hands on the body as it came."""
        encoding = self.headers.get(b"content-encoding")
        if not encoding or encoding == b"identity":
            return
        bits = _PACKED.get(encoding.strip().lower())
        if bits is None:
            self.close()
            raise NotHTTP("its body has an encoding that was not asked for")
        self._inflating = _Inflating(bits)

    async def read(self, patience: float | None) -> bytes:
        """What has come by now; nothing at the end. `TimeoutError` where nothing comes for `patience` seconds."""
        if self._inflating is not None:
            return await self._read_inflated(self._inflating, patience)
        while self._wire is not None:
            if data := self._wire.taken():
                return data
            await self._wire.more(patience)
        data, self._rest = self._rest, b""
        return data

    async def feed(self, take: Take, patience: float | None) -> bool:
        """Hands each piece to `take` in the very moment in which it comes: a task that waits for it would cost a round
        of the event loop and as much time again. True when `take` wants no more for now, False at the end."""
        while self._wire is not None and self._inflating is None:
            data = self._wire.taken()
            if not (take(data) if data else await self._wire.fed(take, patience)):
                return True
        while data := await self.read(patience):
            if not take(data):
                return True
        return False

    async def _read_inflated(self, inflating: _Inflating, patience: float | None) -> bytes:
        self._inflating = None  # read as it comes
        try:
            while not (data := inflating.take()):
                if not (packed := await self.read(patience)):
                    return inflating.end()
                inflating.feed(packed)
        finally:
            self._inflating = inflating
        return data

    def complete(self, rest: bytes) -> None:
        """All of it has come, and this was not read yet: the connection may serve somebody else."""
        self._wire, self._rest = None, rest


class _Inflating:
    """A body that was compressed although we asked for none that is. A little of it may hold very much, so no more is
    unpacked at once than a reader takes."""

    def __init__(self, bits: int) -> None:
        self._inflate = zlib.decompressobj(bits)
        self._packed = b""

    def feed(self, packed: bytes) -> None:
        self._packed += packed

    def take(self) -> bytes:
        if not self._packed:
            return b""
        try:
            data = self._inflate.decompress(self._packed, _MOST_INFLATED)
        except zlib.error as error:
            raise BrokenOff(f"its body cannot be unpacked: {error}") from None
        self._packed = self._inflate.unconsumed_tail
        return data

    def end(self) -> bytes:
        if not self._inflate.eof:
            raise BrokenOff("its body ended before what was packed in it")
        return b""


class Wire(asyncio.BaseProtocol):
    """`freed` is told when it may be asked again. One question at a time. How bytes come is its subclasses' affair."""

    def __init__(self, freed: Callable[[Wire], None]) -> None:
        self.loop = asyncio.get_running_loop()
        self._freed = freed
        self._transport: asyncio.Transport | None = None
        self._source: asyncio.Transport | None = None  # what is paused where nobody takes what comes
        self._parts: list[bytes] = []  # of the body, not read yet
        self._headers: dict[bytes, bytes] = {}
        # Called by the parser for every header and every piece of a body, without a function of ours between.
        self.on_header = self._headers.__setitem__
        self.on_body = self._parts.append
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
            reason = error.__context__
            self._fail(reason if isinstance(reason, WireError) else NotHTTP(str(error)))
            return
        if self._answer is not None:
            if not self._parts:
                self._bound(nbytes, "it says too much between the pieces of its body, or behind it")
            elif self._take is not None and self._waiter is not None and not self._waiter.done():
                self._unmoved = 0
                self._feed(self._take, self._waiter)
            else:
                self._unmoved = 0
                self._hold(nbytes)
        elif self._head is not None:
            self._bound(nbytes, "its head is too large")

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
        """And is handed on at once."""
        data = self.taken()
        self._until = self.loop.time() + self._patience
        try:
            if data and not take(data):
                waiter.set_result(False)
        except Exception as error:  # it is raised where whoever takes it waits
            waiter.set_exception(error)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if self._head is not None:
            self._fail(HungUp("the server closed the connection"))
        elif self._answer is not None:
            if error is None and not self._answer.has_length:
                self._complete(self._answer)
            else:
                self._fail(BrokenOff("the connection ended in the middle of the answer"))

    # The parser's side

    def on_message_begin(self) -> None:
        if self._head is None:
            raise NotHTTP("it sent what nobody had asked for")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        headers = {name.lower(): value for name, value in self._headers.items()}
        self._headers.clear()
        if len(headers) > _MOST_HEADERS or sum(map(len, headers.values())) > _LARGEST_HEAD:
            raise NotHTTP("its head is too large")
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
            waiter.set_exception(TimeoutError())


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
