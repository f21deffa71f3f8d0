"""What callers used, in one process's memory. Handed rows; hands back those of some days, until it is stopped."""

from __future__ import annotations

from collections.abc import Iterable

from ..values.usage_rows import Figures, RowName, Rows, UsageTable


class MemoryUsage:
    def __init__(self) -> None:
        self._table = UsageTable()

    async def add(self, rows: Rows, batch: str) -> bool:
        for name, figures in rows.items():
            self._table.add(name, figures)
        return True

    async def read(self, days: Iterable[str]) -> dict[RowName, Figures] | None:
        return {name: list(figures) for name, figures in self._table.rows(days)}
