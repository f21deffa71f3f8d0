"""A block of work that must be over by a certain time. Handed the running loop and that time; raises `TimeoutError` in
a block that takes longer, as `asyncio.timeout_at` does, for a small part of its cost: no coroutine is made, nobody asks
which loop runs, which is a system call each time up to Python 3.11, and all blocks of a loop share one timer.

A `TimeoutError` may also come from inside of the block: the system raises it, libraries do, and bugs. Only one that a
deadline of ours raised says that something took too long, so ask `expired`, or use `time_limit`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from math import inf
from types import TracebackType
from typing import Any

_GRAIN = 0.01  # seconds between two looks at who is late: where thousands are, each look is at all of them


class Deadline:
    """`with Deadline(loop, when): …`"""

    __slots__ = ("_alarm", "_cancelled_before", "_has_expired", "_loop", "_task", "when")

    def __init__(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        self._loop = loop
        self.when = when
        self._has_expired = False

    def __enter__(self) -> None:
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._task: asyncio.Task[Any] = task
        self._cancelled_before = task.cancelling()
        self._alarm = _alarm_of(self._loop)
        self._alarm.add(self)

    @property
    def expired(self) -> bool:
        """Was its block broken off, because it took too long?"""
        return self._has_expired

    def expire(self) -> None:
        """Breaks its block off."""
        self._has_expired = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._has_expired:
            self._alarm.waiting.discard(self)
            return
        # Who is cancelled by others too is not late, but gone.
        ours_alone = self._task.uncancel() <= self._cancelled_before
        if ours_alone and kind is asyncio.CancelledError:
            raise TimeoutError from error


@asynccontextmanager
async def time_limit(seconds: float, late: Exception) -> AsyncIterator[None]:
    """Raises `late` in a block that takes longer. A `TimeoutError` that is raised inside of it passes as it is."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise late from None


class _Alarm:
    """The timer of all blocks of one loop, set for the first of them. When that is over in time, as nearly all are, the
    timer is left as it is: it rings for nobody, and is set for the first of those that are there by then."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self.waiting: set[Deadline] = set()
        self._rings_at = inf

    def add(self, deadline: Deadline) -> None:
        self.waiting.add(deadline)
        if deadline.when < self._rings_at:
            self._set(deadline.when)

    def _set(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = when
        self._timer = self._loop.call_at(when, self._ring)

    def _ring(self) -> None:
        now = max(self._rings_at, self._loop.time())  # it may ring a moment too early, by its clock's grain
        self._timer, self._rings_at = None, inf
        for deadline in [deadline for deadline in self.waiting if deadline.when <= now]:
            self.waiting.discard(deadline)
            deadline.expire()
        first = min([deadline.when for deadline in self.waiting], default=inf)
        if first < inf:
            self._set(max(first, self._loop.time() + _GRAIN))


_alarm_of = lru_cache(maxsize=4)(_Alarm)  # a process has one loop, but for tests: those that are closed are not kept
