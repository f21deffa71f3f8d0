"""Whose turn it is on the event loop, so that nobody's work keeps another's waiting for long. Handed the caller of each
piece of work before it is done: the start of a request, the next piece of a stream. As long as the loop keeps up, every
one goes on at once. When it does not, the rest waits here, one line for each caller, where the wait can be seen: the
loop's own list is blind, and first come is first served.

A turn is one round of the loop: what is ready is run, then the sockets are looked at. To hear of the end of every one
would cost a look at the sockets more for each, so a timer is asked instead: it rings between two turns, and one that
should have rung by now says that this turn has lasted since.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from .overload import Overload
from .waiting_lines import WaitingLines

_FREE = 0.01  # seconds: the longest turn in which everyone goes on at once, and half of it the shortest that is cut
_SHORT, _LONG = 0.001, 0.003  # seconds: turns are kept between these while somebody waits
_LOOK_EVERY = 0.01
_MOST = 64  # pieces of work that are let go in one turn
# Refusing takes a fifth of the time that serving takes. Many may be refused at once, so that they hear of it soon and
# stay away for a while. Those who come again at once, whatever they are told, must not take the time of the others.
_REFUSALS_FOR_A_PIECE = 4
_REFUSALS_PER_PIECE = 0.25
_REFUSALS_AT_ONCE = 2000


class Turns:
    """`if not turns.open(): await turns.start(line)`, or `.go_on(line)` for what has begun. Nobody waits to start for
    longer than `patience`."""

    def __init__(self, patience: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines: WaitingLines[asyncio.Future[bool]] = WaitingLines(patience)
        self._overload = Overload(patience)
        self.note_start = self._overload.served  # a request is let in
        self._timer: asyncio.TimerHandle | None = None  # while nobody waits
        self._due = 0.0  # when it should ring
        self._began = 0.0  # this turn, while somebody waits
        self._lost = 0.0  # seconds in which the loop stood still, whoever was to blame: no line has grown by them
        self._in_turn = False
        self._allowance = 4  # pieces that the next turn may begin with
        self._look_at = 0.0  # at how long people wait
        self._refusals = float(_REFUSALS_AT_ONCE)

    @property
    def waiting(self) -> int:
        return self._lines.size

    def open(self) -> bool:
        """Is there time left in this turn, and does nobody wait? Then go on at once."""
        if self._lines.size:
            return False
        now = self._clock()
        if self._timer is not None:
            return now < self._due + _FREE / 2
        self._due = now + _FREE / 2
        self._timer = asyncio.get_running_loop().call_later(_FREE / 2, self._ring)
        return True

    def _ring(self) -> None:
        self._timer = None

    async def start(self, line: str) -> bool:
        """Waits for the turn of a request; whether it has come in time."""
        return await self._wait(line, begun=False)

    def time_away(self) -> float:
        """How many seconds a request should stay away whose turn did not come in time."""
        return self._overload.refused(self._clock() - self._lost)

    async def go_on(self, line: str) -> None:
        """Waits for the turn of what has begun: that is never given up, and goes before what is new in its line."""
        await self._wait(line, begun=True)

    async def _wait(self, line: str, *, begun: bool) -> bool:
        loop, now = asyncio.get_running_loop(), self._clock()
        if not self._in_turn:
            self._begin(loop, now if self._timer is None else min(self._due, now))
        ticket: asyncio.Future[bool] = loop.create_future()
        self._lines.join(line, ticket, now - self._lost, begun=begun)
        try:
            return await ticket
        except asyncio.CancelledError:
            self._lines.leave(line, ticket)
            raise

    def _begin(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        self._began = now
        self._in_turn = True
        loop.call_soon(self._end, loop)

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        """A turn is over: lets those go on whose turn comes next, as many as keep it short."""
        self._in_turn = False
        if not self._lines.size:
            return
        now = self._clock()
        took = now - self._began
        self._begin(loop, now)
        self._adapt(took)
        if took > self._lines.patience / 2:
            self._lost += took
        self._move_on(now - self._lost)

    def _move_on(self, now: float) -> None:
        if now >= self._look_at:
            self._look_at = now + _LOOK_EVERY
            self._lines.overloaded = self._overload.look(now, self._lines.size, self._lines.longest_wait(now))
        let_go = 0
        while let_go < self._allowance and (ticket := self._lines.pop(now)):
            _tell(ticket, True)
            let_go += 1
        self._refuse(now, let_go)

    def _adapt(self, took: float) -> None:
        if took > _LONG:
            self._allowance = max(1, self._allowance // 2)
        elif took < _SHORT:
            self._allowance = min(_MOST, self._allowance + 1)

    def _refuse(self, now: float, let_go: int) -> None:
        self._refusals = min(_REFUSALS_AT_ONCE, self._refusals + let_go * _REFUSALS_PER_PIECE)
        spare = _REFUSALS_FOR_A_PIECE * (self._allowance - let_go)
        most = min(spare + int(self._refusals), _REFUSALS_FOR_A_PIECE * self._allowance)
        overdue = self._lines.overdue(now, most) if most else []
        self._refusals -= max(0, len(overdue) - spare)
        for ticket in overdue:
            _tell(ticket, False)


def _tell(ticket: asyncio.Future[bool], its_turn: bool) -> None:
    if not ticket.done():  # else its request was cancelled in this very turn
        ticket.set_result(its_turn)
