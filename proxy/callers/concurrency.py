"""A limit of what is under way at once: in all, and of one caller. Handed who comes, on the event loop; lets it in, or
lets it wait for a while, or raises `Full`. Where a place is free nothing is awaited. Whose turn it is, is for
`providers/fair_line.py` to say: callers come in turn.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable

from providers.fair_line import FairLine, Ticket


class Full(Exception):
    """No place became free in time. `own`: of those that the caller itself may have at once."""

    def __init__(self, own: bool) -> None:
        super().__init__("full")
        self.own = own


class Place(Ticket):
    __slots__ = ("called", "inside")

    def __init__(self, line: str, most: int | None) -> None:
        super().__init__(line, most_of_caller=most)
        self.inside = False
        self.called: asyncio.Future[None] | None = None  # of one that waits


class ConcurrencyLimit:
    """`most` in all, None for any number; nobody waits for longer than `patience`.

    `place = limit.arrive(line)`, then `if not place.inside: await limit.wait(place)`, and whatever happens
    `limit.leave(place)`."""

    def __init__(self, most: int | None, patience: float) -> None:
        self.bounded = most is not None
        self._line = FairLine(most or sys.maxsize)
        self._patience = patience
        self.waiting = 0

    @property
    def inside(self) -> int:
        return self._line.inside

    def arrive(self, line: str, most: int | None = None) -> Place:
        """`most`: of this line alone."""
        place = Place(line, most)
        self._let_in(self._line.arrive(place))
        return place

    async def wait(self, place: Place, *, patient: bool = False) -> None:
        """`patient`: for as long as it takes."""
        loop = asyncio.get_running_loop()
        called = place.called = loop.create_future()
        given_up = None if patient else loop.call_later(self._patience, _give_up, called)
        self.waiting += 1
        try:
            await called
        finally:
            self.waiting -= 1
            if given_up:
                given_up.cancel()
        if not place.inside:
            most = place.most_of_caller
            raise Full(most is not None and self._line.inside_of(place.caller) >= most)

    def leave(self, place: Place) -> None:
        """From inside, or from the line."""
        self._let_in(self._line.leave(place))

    def _let_in(self, tickets: Iterable[Ticket]) -> None:
        for place in tickets:
            assert isinstance(place, Place)
            place.inside = True
            if place.called and not place.called.done():  # else it is cancelled, and about to leave again
                place.called.set_result(None)


def _give_up(called: asyncio.Future[None]) -> None:
    if not called.done():
        called.set_result(None)
