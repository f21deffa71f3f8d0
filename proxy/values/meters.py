"""Counting with an end: what was used of an amount that refills within a minute, or of one that does not. Handed what
is owed, needed and taken; hands on how much room is left. It does no I/O and is told the time.

The amount of a minute is a bucket: it refills evenly, so that in any stretch of time at most one bucket more is taken
than refilled in it, and whoever is refused knows the very moment to come back. `proxy/store/redis_counters.py` holds
the same rules for a Redis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from providers.records import dataclass

MINUTE = 60.0
MOST_DEBT = 1.0  # buckets: whatever an answer cost, nobody waits longer than that takes to refill
NEARLY = 1 - 1e-6  # of what is needed: numbers are rounded
REFILLING = 2 * MINUTE  # seconds after which an untouched bucket is full, and need not be kept
PRUNE_EVERY = 600.0
_UNUSED = (0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Meter:
    """One amount of one owner. `kept`: for how many seconds a sum is kept that never refills; 0 for a bucket."""

    owner: str
    name: str
    most: float
    kept: float = 0.0


class Charge(NamedTuple):
    """`owed` is counted in any case. If every meter of a request has the room that it needs, all is taken; else
    nothing."""

    meter: Meter
    owed: float = 0.0
    need: float = 0.0
    take: float = 0.0


class Charged(NamedTuple):
    taken: bool
    rooms: Sequence[float]  # what is left in each meter; less than nothing where it was overdrawn


class Counters(Protocol):
    async def charge(self, charges: Sequence[Charge]) -> Charged:
        """All of one request at once. Never raises."""

    async def flush(self) -> None:
        """Brings what was counted elsewhere to where all count. Never raises."""


class MeterStates:
    """The meters of one process: what was used of each, when that was true, and until when it is kept."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, str], tuple[float, float, float]] = {}
        self._next_pruning = 0.0

    def __len__(self) -> int:
        return len(self._states)

    def charge(self, charges: Sequence[Charge], now: float) -> Charged:
        if now >= self._next_pruning:
            self._prune(now)
        taken = True
        used = []
        for charge in charges:
            before = self._used(charge.meter, now) + charge.owed
            used.append(before)
            if charge.need and lacks(charge, charge.meter.most - before):
                taken = False
        rooms = []
        for (meter, owed, _, take), before in zip(charges, used, strict=True):
            if take and taken:
                before = self.note(meter, before + take, now)
            elif owed:
                before = self.note(meter, before, now)
            rooms.append(meter.most - before)
        return Charged(taken, rooms)

    def note(self, meter: Meter, used: float, now: float) -> float:
        """What is used of it from now on."""
        if not meter.kept:
            used = min(used, meter.most * (1 + MOST_DEBT))
        self._states[meter.owner, meter.name] = used, now, now + (meter.kept or REFILLING)
        return used

    def _used(self, meter: Meter, now: float) -> float:
        used, at, _ = self._states.get((meter.owner, meter.name), _UNUSED)
        if meter.kept:
            return used
        if at > now:  # a clock that went back refills nothing, and begins anew
            return self.note(meter, used, now)
        return max(0.0, used - (now - at) * meter.most / MINUTE)

    def _prune(self, now: float) -> None:
        self._next_pruning = now + PRUNE_EVERY
        for name in [name for name, (_, _, until) in self._states.items() if now >= until]:
            del self._states[name]


def lacks(charge: Charge, room: float) -> bool:
    """Is there less room than it needs? Where it needs none, an overdrawn meter is no hindrance."""
    return charge.need > 0 and room < charge.need * NEARLY


def wait(meter: Meter, room: float, need: float) -> float:
    """Seconds until a bucket has the room that is needed, if nobody takes anything meanwhile."""
    return max(0.0, (need - room) * MINUTE / meter.most)
