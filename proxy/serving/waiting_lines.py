"""Who waits, in lines that take turns: a pure machine without a clock of its own. Handed items, each with the name of
its line and the time; hands them back one line after the other, or as overdue. However long one line is, the others
move on as if it held one. Unlike in `providers/fair_line.py` no places are counted: what is waited for is time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

# Of the patience, in an overload: after the first of these an item may be refused, after the second it is not served.
# Between them it is served if nobody newer is there: then there is time for it.
_REFUSED_AFTER, _SERVED_UNTIL = 0.075, 0.1
_FEW = 2  # who stands in a line as short as this is not to blame for an overload


class _Line(Generic[T]):
    """`begun` go first, in their order, and are never overdue; `new` behind them, each with the time when it came."""

    __slots__ = ("begun", "new")

    def __init__(self) -> None:
        self.begun: OrderedDict[T, None] = OrderedDict()
        self.new: OrderedDict[T, float] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self.begun or self.new)

    def oldest(self) -> float:
        """When the first one came who is new."""
        return next(iter(self.new.values()))

    def newest(self) -> float:
        return next(reversed(self.new.values()))


class WaitingLines(Generic[T]):
    """`patience` is the longest that an item waits, in seconds. It is meant for a burst, which passes. Where more comes
    all the time than can be served, `overloaded` is set: then those in long lines have little of it left, and there the
    newest go first. They can be served soon, the others are told soon, and nobody's answer is late."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.overloaded = False
        self._lines: OrderedDict[str, _Line[T]] = OrderedDict()  # the first one's turn is next
        self.size = 0  # how many wait, in all lines

    def join(self, name: str, item: T, now: float, *, begun: bool = False) -> None:
        """At the end of its line; `begun`: before all that are new there, and for as long as it takes."""
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = _Line()
        if begun:
            line.begun[item] = None
        else:
            line.new[item] = now
        self.size += 1

    def leave(self, name: str, item: T) -> None:
        """Out of its line, if it is still there."""
        line = self._lines.get(name)
        if line is None:
            return
        for part in (line.begun, line.new):
            if item in part:
                del part[item]
                self.size -= 1
        if not line:
            del self._lines[name]

    def pop(self, now: float) -> T | None:
        """Whose turn it is. Nobody's who has waited for too long."""
        for name, line in self._lines.items():
            if self._has_time(line, now):
                return self._take(name, line)
        return None

    def overdue(self, now: float, most: int) -> list[T]:
        """Those that have waited for too long, taken out: the oldest of each line first, and no more than `most`."""
        found: list[T] = []
        emptied: list[str] = []
        for name, line in self._lines.items():
            while len(found) < most and line.new and now - line.oldest() >= self._refused_after(line):
                found.append(line.new.popitem(last=False)[0])
            if not line:
                emptied.append(name)
        for name in emptied:
            del self._lines[name]
        self.size -= len(found)
        return found

    def longest_wait(self, now: float) -> float:
        return max((now - line.oldest() for line in self._lines.values() if line.new), default=0.0)

    def _is_to_blame(self, line: _Line[T]) -> bool:
        return self.overloaded and len(line.new) > _FEW

    def _refused_after(self, line: _Line[T]) -> float:
        return self.patience * _REFUSED_AFTER if self._is_to_blame(line) else self.patience

    def _has_time(self, line: _Line[T], now: float) -> bool:
        if line.begun:
            return True
        if self._is_to_blame(line):
            return now - line.newest() < self.patience * _SERVED_UNTIL
        return now - line.oldest() < self.patience

    def _take(self, name: str, line: _Line[T]) -> T:
        newest_first = self._is_to_blame(line)
        item = line.begun.popitem(last=False)[0] if line.begun else line.new.popitem(last=newest_first)[0]
        self.size -= 1
        if line:
            self._lines.move_to_end(name)
        else:
            del self._lines[name]
        return item
