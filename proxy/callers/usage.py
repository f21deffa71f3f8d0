"""What each key used, per model and day. A listener that adds up every request that has ended, and brings the sums to
the store from time to time; asked by the route and the command of the same name.

Names of models are the clients' words: a key and a day know only so many, and only of models that answered. The rest
is counted as `other`.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from operator import add
from typing import Any

from ..values.usage_rows import FIGURES, KEPT_DAYS, Figures, RowName, UsageStore
from ..watching.counted import is_counted
from ..watching.observer import Listener, Observer
from .limits import DAY

OTHER = "other"
_MOST_MODELS = 20
_LONGEST_NAME = 200
_MOST_WAITING = 5000  # rows that are not in the store yet
_WELL = ("ok", "client_left")


class UsageBook(Listener):
    """`anonymous`: who has no key is counted too, under no name, because there are no keys. `now` is the time of
    day."""

    def __init__(self, store: UsageStore, anonymous: Callable[[], bool], now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._anonymous = anonymous
        self._now = now
        self._waiting: dict[RowName, Figures] = {}
        self._batch: tuple[str, dict[RowName, Figures]] | None = None  # brought to the store, and not yet known there
        self._flushing = asyncio.Lock()
        self._models: dict[str, set[str]] = {}  # of each key, today
        self._today = -1
        self._day = ""

    def ended(self, request: Observer) -> None:
        if not is_counted(request) or not (request.caller or self._anonymous()):
            return
        today = int(self._now() // DAY)
        if today != self._today:
            self._today, self._day = today, time.strftime("%Y-%m-%d", time.gmtime(today * DAY))
            self._models.clear()
        summary = request.summary
        name = RowName(self._day, request.caller, self._model(request))
        figures = (
            1,
            request.ending not in _WELL,
            summary.input_tokens,
            summary.output_tokens,
            summary.estimated_tokens,
            summary.searches,
            summary.pages,
            summary.cost if summary.costs else 0.0,
        )
        _add(self._waiting, name, figures)

    def _model(self, request: Observer) -> str:
        model = request.summary.model
        known = self._models.get(request.caller)
        if not model or (known and model in known):
            return model
        if known is None:
            known = self._models[request.caller] = set()
        served = request.ending in _WELL and 0 < request.status < 400
        full = len(known) >= _MOST_MODELS or len(self._waiting) >= _MOST_WAITING
        if not served or full or len(model) > _LONGEST_NAME:
            return OTHER
        known.add(model)
        return model

    async def flush(self) -> bool:
        """Whether all that was counted is in the store. What could not be brought there is brought the next time."""
        async with self._flushing:
            if self._batch is None and self._waiting:
                self._batch, self._waiting = (secrets.token_hex(16), self._waiting), {}
            if self._batch is not None and await self._store.add(self._batch[1], self._batch[0]):
                self._batch = None
            return self._batch is None

    async def read(self, first: date | None, last: date | None, key: str | None) -> tuple[list[dict[str, Any]], bool]:
        """The rows of these days, of all that are kept if none are named; and whether they are all there are."""
        complete = await self.flush()
        days = _days(first, last, self._now())
        rows = await self._store.read(days)
        if rows is None:
            rows, complete = {}, False
        for waiting in (self._batch[1] if self._batch else {}, self._waiting):
            for name, figures in waiting.items():
                if name.day in days:
                    _add(rows, name, figures)
        shown = [_row(name, rows[name]) for name in sorted(rows) if key is None or name.key == key]
        return shown, complete


def _add(rows: dict[RowName, Figures], name: RowName, figures: Sequence[float]) -> None:
    row = rows.get(name)
    if row is None:
        rows[name] = [float(figure) for figure in figures]
        return
    row[:] = map(add, row, figures)


def _days(first: date | None, last: date | None, now: float) -> Sequence[str]:
    today = datetime.fromtimestamp(now, UTC).date()
    oldest = today - timedelta(days=KEPT_DAYS - 1)
    begin, end = max(first or oldest, oldest), min(last or today, today)
    return [(begin + timedelta(days=day)).isoformat() for day in range((end - begin).days + 1)]


def _row(name: RowName, figures: Figures) -> dict[str, Any]:
    counted = dict(zip(FIGURES, figures, strict=True))
    cost = round(counted.pop("cost"), 8)
    return {**name._asdict(), **{figure: int(value) for figure, value in counted.items()}, "cost": cost}
