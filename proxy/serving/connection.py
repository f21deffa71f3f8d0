"""One connection of a client: uvicorn's HTTP/1.1 protocol, with limits. Handed bytes by the event loop; hands requests
whose heads are sound to the edge, and answers itself what never becomes a request, in the edge's words.

A head is bounded before anybody asks for a key, and so is everything else that is no body: no more than `max_head`
bytes may come without a whole head or a byte of a body among them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from contextlib import suppress
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from ..context import context_of
from ..values.errors import crashed
from ..values.events import Failed
from . import heads
from .admission import ALWAYS_OPEN
from .edge import Edge
from .exchange import Exchange, Outlet
from .heads import HeadRefused
from .last_body import last_body_parser
from .open_connections import ByAge, Held, OpenConnections, PendingHeads
from .request_head import OF_ONE_REQUEST, RequestHead, read_head
from .unsent_bytes import bytes_unsent

log = logging.getLogger("groundwire")

_BETWEEN, _HEAD, _BODY = range(3)  # where in a message the parser stands
_WRITE_BUFFER = 16 * 1024  # bytes that wait for a slow reader before whoever writes has to wait too
_LEAST_DISCARDED = 1 << 20  # bytes that a client may still send while it has its answer, however small bodies must be
_PROBES = frozenset(path.encode() for path in ALWAYS_OPEN)


class Connection(HttpToolsProtocol):
    """`first` is what had come when the connection was accepted. One that is `spare` may only ask how we are."""

    cycle: Exchange  # type: ignore[assignment]  # of our own, with all of it that uvicorn's protocol uses

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        edge: Edge,
        others: OpenConnections,
        address: str,
        *,
        first: bytes = b"",
        spare: bool = False,
    ) -> None:
        super().__init__(config, server_state, app_state, asyncio.get_running_loop())
        self.address = address
        self._edge = edge
        self._others = others
        self._first = first
        self._spare = spare
        self._max_head = others.limits.max_head
        self._began = time.perf_counter()
        self._waits: ByAge[Held] | PendingHeads | None = others.pending
        self._at = _BETWEEN
        self._moved = False  # whether a head, or a byte of a body, was among what the parser was given last
        self._unmoved = 0  # bytes since the last time that it was
        self.url, self.headers = b"", []
        self._own: list[tuple[bytes, bytes]] = []  # headers of this request alone
        self._lines = 0  # headers, or trailers behind the body
        self._answering: Exchange | None = None  # the last one that was begun; `cycle` is the last one that came
        self._ahead: deque[Exchange] = deque()  # requests that wait until those before them are answered
        self._next: Exchange | None = None  # one that can be begun as soon as all is read that came with it
        self._known: dict[tuple[object, ...], RequestHead] = {}  # the head before it
        self._chunks = self._body_size = self._discarded = self._unsent = 0
        self._continues = False  # the client waits for our word before it sends the body
        self._upgrading = False
        self._deaf = False  # nothing that comes now is read
        self._last_words: Failed | None = None  # said when what came before it is answered
        self._made = False  # by the event loop, after the listener has taken it in
        self._left = False

    # The event loop's side

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=_WRITE_BUFFER, low=_WRITE_BUFFER // 4)
        self._outlet = Outlet(transport, self.hang_up)
        self._base = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": "",
        }
        self._made = True
        if self._left:
            transport.close()
        elif self._first:
            self.data_received(self._first)
            self._first = b""
            self.flow.read_paused = False  # reading only begins after this, whatever was said so far

    def connection_lost(self, exc: Exception | None) -> None:
        self._left = self._deaf = True
        self._others.remove(self)
        self._outlet.forget()
        self.connections.discard(self)
        if self._answering is not None:
            self._answering.client_left()
        self.flow.resume_writing()
        if exc is None:
            self.transport.close()
        self.parser = None  # type: ignore[assignment]  # it holds us

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            self._discard(len(data))
        elif len(data) <= self._max_head - self._unmoved:
            self._take(data)
        else:
            self._take_in_pieces(memoryview(data))
        if self._next is not None:
            cycle, self._next = self._next, None
            self._start(cycle)
        if self._at == _HEAD and self._answered and not self._deaf:
            self._wait_in(self._others.pending)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unsent = bytes_unsent(self.transport)
        self._others.unsent.add(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._others.unsent.discard(self)

    # What comes in

    def _take_in_pieces(self, data: memoryview) -> None:
        """No piece is larger than what may still come, so that the parser never holds more than that."""
        while data and not self._deaf:
            room = self._max_head - self._unmoved
            self._take(data[:room])
            data = data[room:]

    def _take(self, data: bytes | memoryview) -> None:
        self._moved = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as error:
            self._refuse(_failure_of(error))
            return
        if self._moved:
            self._unmoved = 0
            return
        self._unmoved += len(data)
        if self._unmoved >= self._max_head:
            self._refuse(self._too_large())

    def _too_large(self) -> Failed:
        if self._at == _BODY:
            return heads.framing_too_large(self._max_head)
        in_target = self._at == _HEAD and len(self.url) > self._max_head // 2
        return (heads.target_too_long if in_target else heads.head_too_large)(self._max_head)

    def _ignore_upgrade(self, rest: bytes | memoryview) -> None:
        """The parser takes an upgrade for the end of HTTP. We upgrade to nothing, so the body follows as it would have
        without, and is read by a parser of its own; after it the connection is closed."""
        if self._at == _BETWEEN:  # that body has been read: this is an upgrade behind it, and not of our request
            self._deaf = True
            return
        self._unmoved = 0
        headers = self.cycle.scope["headers"]
        self.parser = last_body_parser(headers, self.on_chunk_header, self.on_body, self.on_message_complete)
        self._take(rest)

    def _discard(self, size: int) -> None:
        """What a client still sends that has its answer. Read, because it would not see the answer else; but not for
        ever."""
        self._discarded += size
        if self._discarded > max(self._others.limits.max_body, _LEAST_DISCARDED):
            self.transport.abort()

    # The parser's side

    def on_message_begin(self) -> None:
        if len(self._ahead) >= heads.MOST_AHEAD:
            raise heads.too_far_ahead()
        self.url, self.headers, self._own = b"", [], []
        self._at = _HEAD
        self._began = time.perf_counter()
        self._lines = self._chunks = self._body_size = self._discarded = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self._lines += 1
        if self._lines > heads.MOST_HEADERS:
            raise heads.too_many_headers()
        if self._at == _BODY:  # nobody reads it: what is said behind a body was not there when its request was let in
            return
        if name in OF_ONE_REQUEST:
            self._own.append((OF_ONE_REQUEST[name], value))
        else:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        parser = self.parser
        method, version = parser.get_method(), parser.get_http_version()
        sent = (method, version, self.url, *self.headers)
        head = self._known.get(sent)
        if head is None:
            head = read_head(method, version, self.url, self.headers, self._base)
            self._known = {sent: head}
        scope = head.request(self._own)
        if self._spare and scope["raw_path"] not in _PROBES:
            raise heads.no_place()
        self._lines = 0
        self._continues, self._upgrading = head.continues, parser.should_upgrade()
        last = self._upgrading or self._spare or self._others.draining or version == "1.0"
        kept = not last and parser.should_keep_alive()
        complete = self.on_response_complete
        cycle = Exchange(scope, self._outlet, self.flow, self.server_state, complete, head.continues, kept)
        self._at, self._moved = _BODY, True
        self._begin(cycle)

    def _begin(self, cycle: Exchange) -> None:
        answered, self.cycle = self._answered, cycle
        if answered:
            self._wait_in(None)
            self._answering = self._next = cycle
        else:
            self.flow.pause_reading()
            self._ahead.append(cycle)

    def _start(self, cycle: Exchange) -> None:
        self._answering = cycle
        cycle.start(self.app, self.loop)

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if self._chunks > heads.MOST_SMALL_CHUNKS and self._body_size < heads.SMALL_CHUNK * self._chunks:
            raise heads.chunks_too_small()

    def on_body(self, body: bytes) -> None:
        self._moved = True
        self._body_size += len(body)
        if self.cycle.response_complete:
            self._discard(len(body))
        else:
            self.cycle.feed(body)

    def on_message_complete(self) -> None:
        self._moved = True
        if self._upgrading:  # the parser's mistake
            self._upgrading = False
            return
        if self.cycle.response_complete:
            self._wait_in(self._others.idle)
        else:
            self.cycle.end_body()
        self._at = _BETWEEN  # last: if anything above raises, it is this request that is answered with a 500

    # The answer's side

    @property
    def _answered(self) -> bool:
        return (self.cycle is None or self.cycle.response_complete) and not self._ahead

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self._left or self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self._ahead:
            self._start(self._ahead.popleft())
        elif self._last_words:
            self._say(self._last_words)
        elif self._at == _BODY and self._continues:
            self.hang_up()  # whether the body comes that we did not ask for, nobody knows
        else:
            self._wait_in((self._others.idle, self._others.pending, self._others.leftover)[self._at])

    def hang_up(self) -> None:
        """Closes the connection, once all is sent."""
        self._close(linger=self._at == _BODY)

    def _close(self, *, linger: bool) -> None:
        """A client that is still sending reads first what it was told: closed at once, its bytes would be answered with
        a reset, which takes our last words away from it."""
        if self._left:
            return
        self._left = self._deaf = True
        if not self._made:  # on a busy machine a second may pass until it is, and then it is closed
            self._wait_in(None)
            return
        if linger and not self.transport.is_closing():
            self.transport.write_eof()
            self.flow.resume_reading()
            self._wait_in(self._others.lingering)
        else:
            self._wait_in(None)
            self.transport.close()
        if self.transport.get_write_buffer_size():
            self._unsent = bytes_unsent(self.transport)
            self._others.unsent.add(self)

    def _refuse(self, failed: Failed) -> None:
        """What came is no request, or no end of one. Those before it are answered all the same, and until they are no
        more is read."""
        self._deaf = True
        self.flow.pause_reading()
        if self._at == _BODY:
            self.cycle.refuse(failed)
            if self._answered:
                self.hang_up()
        elif self._answered:
            self._say(failed)
        else:
            self._last_words = failed

    def _say(self, failed: Failed, *, linger: bool = True) -> None:
        seconds = time.perf_counter() - self._began
        known = [(name.lower(), value) for name, value in self.headers] if self._at == _HEAD else []
        self.transport.write(self._edge.refuse_head(failed, *self._request_line, seconds, known))
        self._close(linger=linger)

    @property
    def _request_line(self) -> tuple[str, str]:
        """Method and path, as far as they are known: the parser knows the method once the path has begun."""
        if self._at != _HEAD or not self.url:
            return "", ""
        return self.parser.get_method().decode("ascii"), self.url.partition(b"?")[0].decode("latin-1")

    # What all connections are told

    def _wait_in(self, place: ByAge[Held] | PendingHeads | None) -> None:
        if place is self._waits:
            return
        if self._waits is not None:
            self._waits.discard(self)
        self._waits = place
        if place is not None:
            place.add(self)

    @property
    def _has_begun(self) -> bool:
        return self._at == _HEAD or self._unmoved > 0

    def head_is_late(self) -> None:
        """A client that said nothing at all is not told anything either."""
        if self._has_begun:
            self._refuse(heads.too_slow())
        else:
            self.hang_up()

    def make_room(self) -> None:
        """It has done nothing for a while, and somebody else needs its place."""
        if self._has_begun:
            self._say(heads.too_slow(), linger=False)
        else:
            self._close(linger=False)

    def leave(self) -> None:
        self.hang_up()

    def cut_off(self) -> None:
        self.transport.abort()

    def has_moved(self) -> bool:
        before, self._unsent = self._unsent, bytes_unsent(self.transport)
        return self._unsent < before

    def stands_still(self) -> None:
        """The client takes nothing of what was sent to it. Whoever answers it hears that it has left."""
        if self._answering is not None and not self._answering.response_complete:
            with suppress(KeyError):  # refused before it had a context
                context_of(self._answering.scope).observer.fail("client_stalled")
        log.info("a client took nothing for %g s and was cut off", self._others.limits.write_timeout)
        self.transport.abort()


def _failure_of(error: httptools.HttpParserError) -> Failed:
    """What the client is answered when the parser gives up. The parser wraps what a callback raises: our refusals, the
    parser's own errors, and anything else, which is a bug of ours."""
    reason = error.__context__
    if isinstance(reason, HeadRefused):
        return reason.failed
    if isinstance(error, httptools.HttpParserCallbackError) and not isinstance(reason, httptools.HttpParserError):
        log.error("reading a request failed", exc_info=reason or error)
        return crashed()
    return heads.malformed()
