"""Places that only so many may hold at once, given out fairly between those who ask: `fair_line` says who is next.

`async with places.place()` waits for one and gives it back, however the work ends. In whose name somebody asks is said
once, by `asked_by` around the work, and goes with every task that the work starts: a provider's contract has no room
for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import NamedTuple

from .fair_line import FairLine, Ticket


class Asker(NamedTuple):
    caller: str = ""  # whose request it is
    request: str = ""  # which of the caller's


_asker: ContextVar[Asker] = ContextVar("asker", default=Asker())  # noqa: B039 - a value that cannot change


def asked_by(caller: str, request: str) -> _Asking:
    return _Asking(Asker(caller, request))


class _Asking:
    __slots__ = ("_asker", "_token")

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    def __enter__(self) -> None:
        self._token = _asker.set(self._asker)

    def __exit__(self, *_: object) -> None:
        _asker.reset(self._token)


class _Waiting(Ticket):
    __slots__ = ("entered",)

    def __init__(self, asker: Asker) -> None:
        super().__init__(*asker)
        self.entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Places:
    """`most` of them; one caller, and one request, may hold fewer, so that others find a free one."""

    def __init__(self, most: int, *, most_of_caller: int | None = None, most_of_request: int | None = None) -> None:
        self._line = FairLine(most, most_of_caller=most_of_caller, most_of_request=most_of_request)
        self._wanted = asyncio.Event()

    @property
    def unused(self) -> bool:
        return not self._line.inside and not self._line.waits

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        ticket = _Waiting(_asker.get())
        self._let_in(self._line.arrive(ticket))
        try:
            await ticket.entered
            yield
        finally:
            # Also for one that is cancelled while it waits, or in the moment in which it was let in.
            self._let_in(self._line.leave(ticket))

    def ahead(self) -> int:
        """How many go first if the one who asks stands in line now."""
        return self._line.inside + self._line.ahead_of(_asker.get().caller)

    async def wanted(self) -> None:
        """Comes back when somebody waits for a place."""
        await self._wanted.wait()

    def _let_in(self, tickets: Iterable[Ticket]) -> None:
        for ticket in tickets:
            assert isinstance(ticket, _Waiting)
            if not ticket.entered.done():  # cancelled: it is about to leave again
                ticket.entered.set_result(None)
        if self._line.waits:
            self._wanted.set()
        else:
            self._wanted.clear()


class PlacesByHost:
    """So many places at each host; a host that nobody asks for is forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._hosts: dict[str, Places] = {}

    @asynccontextmanager
    async def place(self, host: str) -> AsyncIterator[None]:
        places = self._hosts.setdefault(host, Places(self._most))
        try:
            async with places.place():
                yield
        finally:
            if places.unused:
                self._hosts.pop(host, None)

    def __len__(self) -> int:
        return len(self._hosts)
