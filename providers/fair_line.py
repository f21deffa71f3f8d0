"""Who goes in next, where only so many fit: callers in turn, the requests of a caller in turn, and what one request
asks for in the order it came. So nobody waits behind all that somebody else has asked for.

Handed tickets that arrive and leave; hands on those that go in. Pure: it waits for nothing and knows no time.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TypeVar

Key = TypeVar("Key")


class Ticket:
    """One that wants in, or is in; known by what it is, not by whose. It may bring its caller's own limit."""

    __slots__ = ("caller", "most_of_caller", "request")

    def __init__(self, caller: str = "", request: str = "", most_of_caller: int | None = None) -> None:
        self.caller = caller
        self.request = request
        self.most_of_caller = most_of_caller


Tickets = OrderedDict[Ticket, None]  # as a set that keeps the order


class FairLine:
    """At most `most` are inside. The other two say how much of that one caller, or one request, may take: less than all
    of it, and whoever comes next finds a free place. Callers without a name are many, and not held to be one."""

    def __init__(self, most: int, *, most_of_caller: int | None = None, most_of_request: int | None = None) -> None:
        self._most = most
        self._most_of_caller = most_of_caller or most
        self._most_of_request = most_of_request or most
        self._inside: set[Ticket] = set()
        self._of_caller: Counter[str] = Counter()
        self._of_request: Counter[tuple[str, str]] = Counter()
        # Whose turn it is stands first, among the callers and among the requests of each.
        self._line: OrderedDict[str, OrderedDict[str, Tickets]] = OrderedDict()

    @property
    def inside(self) -> int:
        return len(self._inside)

    def inside_of(self, caller: str) -> int:
        return self._of_caller[caller]

    @property
    def waits(self) -> bool:
        """Whether anybody stands in the line."""
        return bool(self._line)

    def ahead_of(self, caller: str) -> int:
        """How many that wait now go in before one that this caller adds, at the most."""
        waiting = {name: sum(map(len, requests.values())) for name, requests in self._line.items()}
        own = waiting.pop(caller, 0)
        return own + sum(min(others, own + 1) for others in waiting.values())

    def arrive(self, ticket: Ticket) -> list[Ticket]:
        """Who goes in now: the ticket, if there is a place for it."""
        self._line.setdefault(ticket.caller, OrderedDict()).setdefault(ticket.request, OrderedDict())[ticket] = None
        return self._let_in()

    def leave(self, ticket: Ticket) -> list[Ticket]:
        """Who goes in now that this one has left, from inside or from the line."""
        if ticket in self._inside:
            self._inside.remove(ticket)
            _subtract(self._of_caller, ticket.caller)
            _subtract(self._of_request, (ticket.caller, ticket.request))
        else:
            self._take_out(ticket)
        return self._let_in()

    def _let_in(self) -> list[Ticket]:
        entering = []
        while not self._is_full() and (ticket := self._next()):
            self._take_out(ticket)
            self._inside.add(ticket)
            self._of_caller[ticket.caller] += 1
            self._of_request[ticket.caller, ticket.request] += 1
            self._pass_turn(ticket)
            entering.append(ticket)
        return entering

    def _is_full(self) -> bool:
        return len(self._inside) >= self._most

    def _is_full_of(self, ticket: Ticket) -> bool:
        """Whether its caller has all the places that it may have."""
        return self._of_caller[ticket.caller] >= (ticket.most_of_caller or self._most_of_caller)

    def _next(self) -> Ticket | None:
        for caller, requests in self._line.items():
            for request, tickets in requests.items():
                ticket = next(iter(tickets))
                if caller and self._is_full_of(ticket):
                    break
                if self._of_request[caller, request] < self._most_of_request:
                    return ticket
        return None

    def _take_out(self, ticket: Ticket) -> None:
        requests = self._line[ticket.caller]
        del requests[ticket.request][ticket]
        if not requests[ticket.request]:
            del requests[ticket.request]
        if not requests:
            del self._line[ticket.caller]

    def _pass_turn(self, ticket: Ticket) -> None:
        if ticket.caller in self._line:
            self._line.move_to_end(ticket.caller)
            requests = self._line[ticket.caller]
            if ticket.request in requests:
                requests.move_to_end(ticket.request)


def _subtract(counter: Counter[Key], key: Key) -> None:
    """What has come to nothing is forgotten: callers and requests are without number."""
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
