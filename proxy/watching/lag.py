"""How late the event loop is: a timer that should ring ten times a second says how much later it did. Handed a
callback; calls it with the seconds, until it is stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

EVERY = 0.1  # seconds: what is shorter may be missed


class LoopLag:
    def __init__(self, report: Callable[[float], None], every: float = EVERY) -> None:
        self._report = report
        self._every = every
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._set()

    def stop(self) -> None:
        if self._timer:
            self._timer.cancel()

    def _set(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self._every
        self._timer = loop.call_at(due, self._ring, due)

    def _ring(self, due: float) -> None:
        self._report(max(0.0, asyncio.get_running_loop().time() - due))
        self._set()
