"""Who may come in, in pure ASGI, between the edge and the routes: as many at once as the operator said, in all and of
one key, and no more than the event loop can serve. Handed requests whose caller is known, before their body is read;
lets them in at once, lets them wait for a short time in their caller's line, or refuses them with 503 or 429. What is
under way takes its turn with every piece that it sends.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..callers.concurrency import ConcurrencyLimit, Full, Place, SharedPlaces
from ..config.settings import ServerConfig
from ..context import RequestContext, context_of
from ..values.errors import RequestError, overloaded, refuse, too_many
from ..values.response_paths import is_about_stored_response
from ..watching.steps import Queued
from .pieces import Write, writer_behind
from .turns import Turns

NextTurn = Callable[[], Awaitable[None]]
ALWAYS_OPEN = frozenset({"/healthz", "/readyz", "/metrics"})  # who watches over us must hear of trouble, not wait in it
_TURNS = "groundwire.turns"
_READ_AHEAD = 64 * 1024  # bytes of a body that are read while its request waits


def next_turn_of(scope: Scope) -> NextTurn:
    """What is to be awaited after each piece of an answer that is sent to nobody."""
    return partial(_next_turn, scope[_TURNS], context_of(scope).caller.line)


class Admission:
    """`places` are those of all workers, where there are several."""

    def __init__(self, app: ASGIApp, server: ServerConfig, places: SharedPlaces | None = None) -> None:
        self._app = app
        self._limit = ConcurrencyLimit(server.max_requests, server.queue, name="server", places=places)
        self._turns = Turns(server.queue)

    @property
    def waiting(self) -> int:
        return self._limit.waiting + self._turns.waiting

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http" or scope["path"] in ALWAYS_OPEN:
            return self._app(scope, receive, send)
        context = context_of(scope)
        most = context.caller.policy.concurrency
        if most is None and not self._limit.bounded:
            return self._in_turn(context, scope, receive, send)
        # A response needs no place: the work in the background that it is about may hold the caller's only one.
        if is_about_stored_response(scope["method"], scope["path"]):
            return self._in_turn(context, scope, receive, send)
        return self._in_place(most, context, scope, receive, send)

    async def _in_place(
        self, most: int | None, context: RequestContext, scope: Scope, receive: Receive, send: Send
    ) -> None:
        place = self._limit.arrive(context.caller.line, most)
        try:
            if not place.inside:
                receive = await self._wait_for(place, context, receive)
            await self._in_turn(context, scope, receive, send)
        finally:
            self._limit.leave(place)

    def _in_turn(self, context: RequestContext, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        turns = scope[_TURNS] = self._turns
        send = _SendingInTurn(turns, context.caller.line, send).send
        if not turns.open():
            return self._after_waiting(context, scope, receive, send)
        turns.note_start()
        return self._app(scope, receive, send)

    async def _after_waiting(self, context: RequestContext, scope: Scope, receive: Receive, send: Send) -> None:
        turns, began = self._turns, time.perf_counter()
        in_time = await turns.start(context.caller.line)
        context.observer.tell(Queued("turn", time.perf_counter() - began, "" if in_time else "waiting"))
        if not in_time:
            raise overloaded(turns.time_away())
        turns.note_start()
        await self._app(scope, receive, send)

    async def _wait_for(self, place: Place, context: RequestContext, receive: Receive) -> Receive:
        """Waits for a place, as long as the client does. What it sends meanwhile comes with the `receive` handed on."""
        began = time.perf_counter()
        ahead = _ReadAhead(receive)
        waiting = asyncio.current_task()
        assert waiting is not None
        watcher = asyncio.create_task(ahead.watch(waiting))
        shed = ""
        try:
            await self._limit.wait(place)
        except Full as full:
            shed = "key" if full.own else "server"
            raise _too_many(place.most_of_caller) if full.own else overloaded(_a_moment()) from None
        except asyncio.CancelledError:
            if not ahead.left or waiting.uncancel():
                raise
            raise refuse(400, "The client left while it waited.", code="client_left") from None
        finally:
            watcher.cancel()
            context.observer.tell(Queued("server", time.perf_counter() - began, shed))
        return ahead


class _SendingInTurn:
    """The way out for a request that is under way. `line` is its caller's."""

    __slots__ = ("_line", "_send", "_turns")

    def __init__(self, turns: Turns, line: str, send: Send) -> None:
        self._turns = turns
        self._line = line
        self._send = send

    def send(self, message: Message) -> Awaitable[None]:
        if message.get("more_body") and not self._turns.open():  # one caller's streams must not keep others waiting
            return self._send_and_wait(partial(self._send, message))
        return self._send(message)

    def piece_writer(self) -> Write:
        return partial(self._write, writer_behind(self._send))

    def _write(self, write: Write, piece: bytes) -> Awaitable[None]:
        return write(piece) if self._turns.open() else self._send_and_wait(partial(write, piece))

    async def _send_and_wait(self, sending: Callable[[], Awaitable[None]]) -> None:
        """`sending` is called here: of a piece that is dropped before, nothing may be left that nobody awaits."""
        await sending()
        await self._turns.go_on(self._line)


async def _next_turn(turns: Turns, line: str) -> None:
    if not turns.open():  # in a line of its own: what its caller asks meanwhile, such as to cancel it, goes before it
        await turns.go_on(f"background {line}")


def _too_many(most: int | None) -> RequestError:
    text = f"This key may have {most} requests under way at once: wait until one of them has ended."
    return too_many(text, _a_moment())


def _a_moment() -> float:
    """Not the same for all, or they would come back together."""
    return random.uniform(1.0, 2.0)


class _ReadAhead:
    """What a client sends while its request waits, kept for who reads it later: without reading on nobody would see
    that it has left."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept: deque[Message] = deque()
        self._refused: RequestError | None = None
        self.left = False

    async def __call__(self) -> Message:
        if self._kept:
            return self._kept.popleft()
        if self._refused:
            raise self._refused
        return await self._receive()

    async def watch(self, waiting: asyncio.Task[None]) -> None:
        size = 0
        while size < _READ_AHEAD:
            try:
                message = await self._receive()
            except RequestError as error:  # the body is none
                self._refused = error
                return
            self._kept.append(message)
            size += len(message.get("body", b""))
            if message["type"] == "http.disconnect":
                self.left = True
                waiting.cancel()
                return
