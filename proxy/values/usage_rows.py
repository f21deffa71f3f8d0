"""What callers used: one row of figures for each day, key and model. Handed figures request by request; adds them up,
and hands on the rows of some days. Bounded, and without I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

FIGURES = (
    "requests",
    "failed",
    "input_tokens",
    "output_tokens",
    "estimated_tokens",
    "searches",
    "pages",
    "cost",
)
KEPT_DAYS = 92
MOST_ROWS = 50_000  # in the memory of one process; then the oldest day goes


class RowName(NamedTuple):
    day: str  # 2027-12-31, in UTC
    key: str
    model: str


Figures = list[float]  # in the order of FIGURES
Rows = Mapping[RowName, Figures]


class UsageStore(Protocol):
    async def add(self, rows: Rows, batch: str) -> bool:
        """Whether they are counted. If not, they should be brought again under the same name, and count once. Never
        raises."""

    async def read(self, days: Iterable[str]) -> dict[RowName, Figures] | None:
        """The rows of these days; None if they cannot be read now."""


class UsageTable:
    """Rows by day."""

    def __init__(self, most_rows: int = MOST_ROWS) -> None:
        self._days: dict[str, dict[RowName, Figures]] = {}
        self._most_rows = most_rows
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, name: RowName, figures: Figures) -> None:
        day = self._days.setdefault(name.day, {})
        known = day.get(name)
        if known is None:
            day[name] = list(figures)
            self._count += 1
            self._prune()
        else:
            known[:] = [old + new for old, new in zip(known, figures, strict=True)]

    def rows(self, days: Iterable[str]) -> Iterator[tuple[RowName, Figures]]:
        for day in days:
            yield from self._days.get(day, {}).items()

    def _prune(self) -> None:
        while len(self._days) > KEPT_DAYS or (self._count > self._most_rows and len(self._days) > 1):
            self._count -= len(self._days.pop(min(self._days)))
