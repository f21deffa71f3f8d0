"""All connections that clients hold: how many there may be, which of them wait for what since when, and who goes first
when there is no room. Handed connections by the listener and by themselves; tells each when its time is over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from enum import Enum
from ipaddress import IPv6Address
from typing import Generic, Protocol, TypeVar

from providers.records import dataclass

from ..config.settings import ServerConfig

SWEEP_EVERY = 0.25
FRESH = 1.0  # seconds for which nobody is made to go for another one: under load, even a quick client waits that long
LINGER = 1.0  # how long a client that was refused may take to read why
_LATE = 2.0  # a look that comes this late says that we were busy, not that clients were slow
_DESCRIPTORS_OF_OURS = 64  # files, pipes, the listener, Redis and the like
_FEW = 128  # connections of one address that may wait for their heads, however few there may be in all

T = TypeVar("T")


class ByAge(Generic[T]):
    """Things in the order in which they came, each with the moment at which it did."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[T, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, thing: T) -> bool:
        return thing in self._since

    def add(self, thing: T) -> None:
        """Whoever was there already is young again."""
        self._since.pop(thing, None)
        self._since[thing] = self._clock()

    def discard(self, thing: T) -> None:
        self._since.pop(thing, None)

    def age(self, thing: T) -> float:
        return self._clock() - self._since[thing]

    def oldest(self, at_least: float = 0.0) -> T | None:
        """The first one, if it is this old."""
        for thing, since in self._since.items():
            return thing if self._clock() - since >= at_least else None
        return None

    def older_than(self, seconds: float) -> list[T]:
        due = self._clock() - seconds
        found = []
        for thing, since in self._since.items():
            if since > due:
                break
            found.append(thing)
        return found


class Held(Protocol):
    """What this room asks of a connection."""

    address: str

    def make_room(self) -> None: ...

    def head_is_late(self) -> None: ...

    def leave(self) -> None: ...

    def cut_off(self) -> None: ...

    def has_moved(self) -> bool: ...

    def stands_still(self) -> None: ...


class PendingHeads:
    """Connections whose request is not here yet, those of each address apart too."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._all: ByAge[Held] = ByAge(clock)
        self._by_address: dict[str, ByAge[Held]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, connection: Held) -> None:
        self._all.add(connection)
        self._by_address.setdefault(connection.address, ByAge(self._clock)).add(connection)

    def discard(self, connection: Held) -> None:
        self._all.discard(connection)
        of_address = self._by_address.get(connection.address)
        if of_address is not None:
            of_address.discard(connection)
            if not of_address:
                del self._by_address[connection.address]

    def of(self, address: str) -> ByAge[Held]:
        return self._by_address.get(address) or ByAge(self._clock)

    def oldest(self, at_least: float) -> Held | None:
        return self._all.oldest(at_least)

    def older_than(self, seconds: float) -> list[Held]:
        return self._all.older_than(seconds)


class Place(Enum):
    """What a new connection gets."""

    YES = "yes"
    SPARE = "spare"  # all are taken: only a probe is served, the rest is told so
    NO = "no"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    most: int
    most_pending: int  # of one address
    spare: int  # beyond `most`: a probe must get through where everybody else has to wait
    max_head: int
    max_body: int
    head_timeout: float
    body_timeout: float
    keep_alive_timeout: float
    write_timeout: float

    @classmethod
    def of(cls, server: ServerConfig, descriptors: int, workers: int = 1) -> ConnectionLimits:
        """Of one of so many workers: what the operator allows is divided among them, as connections are."""
        most = _part(server.max_connections, workers) or most_connections(descriptors)
        return cls(
            most=most,
            most_pending=_part(server.max_pending_per_address, workers) or min(most, max(_FEW, most // 4)),
            spare=max(2, min(32, most // 8)),
            max_head=server.max_head,
            max_body=server.max_body,
            head_timeout=server.head_timeout,
            body_timeout=server.body_timeout,
            keep_alive_timeout=server.keep_alive_timeout,
            write_timeout=server.write_timeout,
        )


def _part(most: int | None, workers: int) -> int | None:
    return None if most is None else -(-most // workers)


def most_connections(descriptors: int) -> int:
    """So many that each of them finds a descriptor for its upstream too."""
    return max(descriptors // 8, (descriptors - _DESCRIPTORS_OF_OURS) // 2)


def address_of(peer: str) -> str:
    """Who counts as one: an IPv6 client owns a whole network of 64 bits."""
    return peer if ":" not in peer else str(IPv6Address(int(IPv6Address(peer.partition("%")[0])) >> 64 << 64))


class OpenConnections:
    """Each connection is in at most one of `pending`, `idle`, `leftover` and `lingering`: the ones that wait for their
    client. Those in `unsent` wait until it takes what was written."""

    def __init__(
        self,
        limits: ConnectionLimits,
        clock: Callable[[], float] = time.monotonic,
        *,
        counted: Callable[[int], None] | None = None,
    ) -> None:
        """`counted` is told how many there are, each time that changes."""
        self.limits = limits
        self._counted = counted
        self.draining = False  # no connection is kept after its answer
        self.turned_away = 0
        self.pending = PendingHeads(clock)
        self.idle: ByAge[Held] = ByAge(clock)
        self.leftover: ByAge[Held] = ByAge(clock)  # answered, and the rest of the body still comes
        self.lingering: ByAge[Held] = ByAge(clock)
        self.unsent: ByAge[Held] = ByAge(clock)
        self._clock = clock
        self._open: set[Held] = set()
        self._looked = clock()
        self._skipped = False
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def place_for(self, address: str) -> Place:
        """Whether one more may come. One that waits without doing anything goes for it, the one that waits longest."""
        of_address = self.pending.of(address)
        if len(of_address) >= self.limits.most_pending and not _gone(of_address.oldest(FRESH)):
            return Place.NO
        if len(self._open) < self.limits.most:
            return Place.YES
        if _gone(self.pending.oldest(FRESH) or self.idle.oldest(FRESH)):
            return Place.YES
        return Place.SPARE if len(self._open) < self.limits.most + self.limits.spare else Place.NO

    def add(self, connection: Held) -> None:
        self._open.add(connection)
        self.pending.add(connection)
        if self._counted is not None:
            self._counted(len(self._open))

    def remove(self, connection: Held) -> None:
        self._open.discard(connection)
        for waiting in (self.pending, self.idle, self.leftover, self.lingering, self.unsent):
            waiting.discard(connection)
        if self._counted is not None:
            self._counted(len(self._open))

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SWEEP_EVERY, self._ring)

    def stop(self) -> None:
        if self._timer:
            self._timer.cancel()

    def _ring(self) -> None:
        late, self._looked = self._clock() - self._looked > _LATE, self._clock()
        self._skipped = late and not self._skipped  # once; then what clients sent meanwhile has been read
        try:
            if not self._skipped:
                self.look()
        finally:
            self.start()

    def look(self) -> None:
        """Tells everybody whose time is over."""
        limits = self.limits
        for connection in self.pending.older_than(limits.head_timeout):
            connection.head_is_late()
        for connection in self.idle.older_than(limits.keep_alive_timeout):
            connection.leave()
        for connection in self.leftover.older_than(limits.body_timeout):
            connection.leave()
        for connection in self.lingering.older_than(LINGER):
            connection.cut_off()
        for connection in self.unsent.older_than(min(1.0, limits.write_timeout / 2)):
            if connection.has_moved():
                self.unsent.add(connection)
        for connection in self.unsent.older_than(limits.write_timeout):
            connection.stands_still()


def _gone(connection: Held | None) -> bool:
    if connection is not None:
        connection.make_room()
    return connection is not None
