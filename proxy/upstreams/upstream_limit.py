"""How many questions one upstream is asked at once, where the operator set a limit. Handed a request's line before it
asks; gives it a place at once or after a wait, or says that the upstream is full.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..callers.concurrency import ConcurrencyLimit, Full, Place, SharedPlaces
from ..values.errors import busy
from ..values.events import Failed
from ..watching.observer import Observer
from ..watching.steps import Queued

FULL = "upstream_full"  # the code of a failure that is not the upstream's


class UpstreamLimit:
    def __init__(self, name: str, most: int, patience: float, places: SharedPlaces | None = None) -> None:
        self._name = name
        self._limit = ConcurrencyLimit(most, patience, name=f"upstream {name}", places=places)

    @property
    def waiting(self) -> int:
        return self._limit.waiting

    @asynccontextmanager
    async def place(self, line: str, observer: Observer, *, waits: bool, patient: bool) -> AsyncIterator[Failed | None]:
        """A place for as long as the context lasts, or why there is none. `waits`: a short time for one to come free;
        `patient`: as long as it takes."""
        place = self._limit.arrive(line)
        try:
            free = place.inside or (waits and await self._comes_free(place, observer, patient=patient))
            yield None if free else self._full()
        finally:
            self._limit.leave(place)

    async def _comes_free(self, place: Place, observer: Observer, *, patient: bool) -> bool:
        began = time.perf_counter()
        try:
            await self._limit.wait(place, patient=patient)
        except Full:
            observer.tell(Queued("upstream", time.perf_counter() - began, "upstream"))
            return False
        observer.tell(Queued("upstream", time.perf_counter() - began))
        return True

    def _full(self) -> Failed:
        text = f"Upstream '{self._name}' has as many requests as it may have at once: ask again in a moment."
        return busy(503, text, code=FULL, wait=random.uniform(1.0, 2.0))
