"""The last requests, in one process's memory. Handed records as they end; hands back what they show, the last first."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from ..values.request_records import KEPT_REQUESTS, KEPT_SECONDS, RequestRecord, Row


class MemoryRequests:
    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._records: deque[RequestRecord] = deque(maxlen=KEPT_REQUESTS)
        self._now = now

    def note(self, record: RequestRecord) -> None:
        self._records.append(record)

    async def flush(self) -> None: ...

    async def rows(self, most: int) -> tuple[list[Row], bool]:
        return [record.row() for record in islice(self._kept(), most)], True

    async def find(self, request_id: str) -> tuple[Row | None, bool]:
        for record in self._kept():
            if record.id == request_id:
                return {**record.row(), "steps": record.steps()}, True
        return None, True

    def _kept(self) -> Iterator[RequestRecord]:
        """Those that are not too old, the last first."""
        oldest = self._now() - KEPT_SECONDS
        return (record for record in reversed(self._records) if record.ended >= oldest)
