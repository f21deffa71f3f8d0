"""A limit of what is under way at once: in all, and of one caller. Handed who comes, on the event loop; lets it in, or
lets it wait for a while, or raises `Full`. Where a place is free nothing is awaited. Whose turn it is, is for
`providers/fair_line.py` to say: callers come in turn.

Where several workers serve, what is under way in the others counts too. Who waits looks every few milliseconds whether
a place has become free there. Two that come in the same microsecond may both find the last place.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from typing import Protocol

from providers.fair_line import FairLine, Ticket

_LOOK_EVERY = 0.01  # seconds


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


class SharedPlaces(Protocol):
    """What is under way in all workers, by the name of the limit that it counts for."""

    def add(self, name: str, by: int) -> None:
        """In this one."""

    def elsewhere(self, name: str) -> int:
        """In all others."""


class _SharedLine(FairLine):
    """A line whose places are those of all workers."""

    def __init__(self, most: int, name: str, places: SharedPlaces) -> None:
        super().__init__(most)
        self._name = name
        self._places = places

    def look_again(self) -> list[Ticket]:
        """Who goes in because somebody has left elsewhere."""
        return self._let_in()

    def leave(self, ticket: Ticket) -> list[Ticket]:
        if ticket in self._inside:
            self._count(ticket, -1)
        return super().leave(ticket)

    def inside_of(self, caller: str) -> int:
        return super().inside_of(caller) + self._places.elsewhere(self._name_of(caller))

    def _let_in(self) -> list[Ticket]:
        entering = super()._let_in()
        for ticket in entering:
            self._count(ticket, 1)
        return entering

    def _count(self, ticket: Ticket, by: int) -> None:
        if self._most != sys.maxsize:
            self._places.add(self._name, by)
        if ticket.most_of_caller is not None:
            self._places.add(self._name_of(ticket.caller), by)

    def _is_full(self) -> bool:
        return self._most != sys.maxsize and len(self._inside) + self._places.elsewhere(self._name) >= self._most

    def _is_full_of(self, ticket: Ticket) -> bool:
        return ticket.most_of_caller is not None and self.inside_of(ticket.caller) >= ticket.most_of_caller

    def _name_of(self, caller: str) -> str:
        return f"{self._name} {caller}"


class ConcurrencyLimit:
    """`most` in all, None for any number; nobody waits for longer than `patience`. `name` and `places` say where what
    other workers have under way is counted.

    `place = limit.arrive(line)`, then `if not place.inside: await limit.wait(place)`, and whatever happens
    `limit.leave(place)`."""

    def __init__(
        self, most: int | None, patience: float, *, name: str = "", places: SharedPlaces | None = None
    ) -> None:
        self.bounded = most is not None
        self._shared = None if places is None else _SharedLine(most or sys.maxsize, name, places)
        self._line = self._shared or FairLine(most or sys.maxsize)
        self._patience = patience
        self._looking: asyncio.TimerHandle | None = None
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
        self._look_later()
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

    def _look_later(self) -> None:
        if self._shared is not None and self._looking is None and self.waiting:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_EVERY, self._look, self._shared)

    def _look(self, line: _SharedLine) -> None:
        self._looking = None
        self._let_in(line.look_again())
        self._look_later()

    def _let_in(self, tickets: Iterable[Ticket]) -> None:
        for place in tickets:
            assert isinstance(place, Place)
            place.inside = True
            if place.called and not place.called.done():  # else it is cancelled, and about to leave again
                place.called.set_result(None)


def _give_up(called: asyncio.Future[None]) -> None:
    if not called.done():
        called.set_result(None)
