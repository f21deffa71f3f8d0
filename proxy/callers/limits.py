"""The limits of one key, made once of its policy: what may be used in a minute, a day and a month. Handed what is owed
and what a request needs; hands on charges for the counters, and when each limit ends. It does no I/O.
"""

from __future__ import annotations

import calendar
import time
from collections.abc import Mapping, Sequence
from typing import Literal

from providers.records import dataclass

from ..config.keys import Allowance, KeyPolicy
from ..values.meters import Charge, Meter, wait

Unit = Literal["requests", "tokens", "searches", "cost"]
Span = Literal["minute", "day", "month"]

DAY = 86_400.0
_KEPT: Mapping[Span, float] = {"minute": 0.0, "day": 2 * DAY, "month": 33 * DAY}  # seconds, by a clock that may jump
# What there must be for a request, and what it takes at once. All else is known when its answer ends.
_NEEDS: Mapping[Unit, float] = {"requests": 1.0, "tokens": 1.0, "searches": 1.0, "cost": 1e-12}
_TAKES: Mapping[Unit, float] = {"requests": 1.0}


@dataclass(frozen=True, slots=True)
class Limit:
    unit: Unit
    span: Span
    most: float

    @property
    def is_budget(self) -> bool:
        return self.span != "minute"


@dataclass(slots=True)
class Used:
    """What answers cost that have ended."""

    tokens: float = 0.0
    searches: float = 0.0
    cost: float = 0.0
    at: float = 0.0  # when the last of them ended

    def add(self, tokens: float, searches: float, cost: float, at: float) -> None:
        self.tokens += tokens
        self.searches += searches
        self.cost += cost
        self.at = at

    def is_of_another_day(self, now: float) -> bool:
        return bool(self) and self.at // DAY != now // DAY

    def __bool__(self) -> bool:
        return bool(self.tokens or self.searches or self.cost)


class KeyLimits:
    """`key` is its name, under which it is counted wherever it is named."""

    def __init__(self, key: str, limits: Sequence[Limit]) -> None:
        self.key = key
        self.limits = tuple(limits)
        self._today = -1
        self._meters: tuple[Meter, ...] = ()
        self._without_debts: dict[frozenset[Unit], list[Charge]] = {}  # most requests come when nothing is owed

    @classmethod
    def of(cls, key: str, policy: KeyPolicy) -> KeyLimits | None:
        """None: it has no limits."""
        minute = _all("minute", policy.requests_per_minute, policy.tokens_per_minute, policy.searches_per_minute, None)
        budgets: list[tuple[Span, Allowance]] = [("day", policy.budget.day), ("month", policy.budget.month)]
        sums = [limit for span, of in budgets for limit in _all(span, None, of.tokens, of.searches, of.cost)]
        return cls(key, [*minute, *sums]) if minute or sums else None

    def charges(self, now: float, owed: Used, needed: frozenset[Unit]) -> Sequence[Charge]:
        """`now` is the time of day, which says what day it is."""
        today = int(now // DAY)
        if today != self._today:
            self._today, self._meters = today, self._named(now)
            self._without_debts.clear()
        charges = self._without_debts.get(needed)
        if charges is None:
            charges = self._without_debts[needed] = [
                Charge(meter, 0.0, _NEEDS[limit.unit], _TAKES.get(limit.unit, 0.0))
                if limit.unit in needed
                else Charge(meter)
                for limit, meter in zip(self.limits, self._meters, strict=True)
            ]
        if not owed:
            return charges
        amounts = {"tokens": owed.tokens, "searches": owed.searches, "cost": owed.cost, "requests": 0.0}
        return [
            Charge(meter, amounts[limit.unit], need, take)
            for limit, (meter, _, need, take) in zip(self.limits, charges, strict=True)
        ]

    def _named(self, now: float) -> tuple[Meter, ...]:
        """A day and a month are counted under their own names, so that a clock that jumps and comes back finds them."""
        names = {"minute": "", "day": time.strftime("%Y-%m-%d", time.gmtime(now)), "month": _month(now)}
        return tuple(
            Meter(self.key, f"{limit.unit} {limit.span} {names[limit.span]}", limit.most, _KEPT[limit.span])
            for limit in self.limits
        )


def seconds_left(limit: Limit, charge: Charge, room: float, now: float) -> float:
    """How long it takes until there is room for what was refused."""
    if not limit.is_budget:
        return wait(charge.meter, room, charge.need)
    return _end_of(limit.span, now) - now


def _all(span: Span, *amounts: float | None) -> list[Limit]:
    units: Sequence[Unit] = ("requests", "tokens", "searches", "cost")
    return [Limit(unit, span, most) for unit, most in zip(units, amounts, strict=True) if most is not None]


def _month(now: float) -> str:
    return time.strftime("%Y-%m", time.gmtime(now))


def _end_of(span: Span, now: float) -> float:
    """The first moment of the next day or month, in UTC."""
    if span == "day":
        return (now // DAY + 1) * DAY
    today = time.gmtime(now)
    days = calendar.monthrange(today.tm_year, today.tm_mon)[1]
    return float(calendar.timegm((today.tm_year, today.tm_mon, days, 0, 0, 0))) + DAY
