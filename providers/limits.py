"""How often and how many at once: a provider's calls wait for their turn here.

Handed the limits of one provider; `slot` lets a call go when they allow it, or says `RateLimited` if that would take
longer than the call is ready to wait. Turns are fair between callers. `Pace` is pure: it is told the time. A call that
leaves gives its turn back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from .deadlines import time_limit
from .errors import RateLimited
from .places import Places
from .records import dataclass

_TOO_MANY = "too many calls are waiting for it"


@dataclass(frozen=True, slots=True)
class Limits:
    rate: float | None = None  # calls that start in any second; 0.5 is one in two
    concurrency: int | None = None  # calls under way at once
    min_gap: float | None = None  # seconds from one start to the next


# In how many seconds the next call of all processes may start, given burst, window, gap and patience; see `Neighbours`.
SharedStart = Callable[[int, float, float, float], Awaitable[float | None]]


class Pace:
    """When calls may start: at most `rate` in a second, at least `min_gap` apart."""

    def __init__(self, rate: float | None, min_gap: float | None) -> None:
        # Whole seconds full of calls, if they can be whole; otherwise one call at a time.
        burst = int(rate) if rate and rate == int(rate) else 1
        self.burst = burst
        self.window = burst / rate if rate else 0.0
        self.gap = min_gap or 0.0
        self._starts: deque[float] = deque(maxlen=burst)  # of the last calls, the oldest first

    def started(self, now: float) -> None:
        self._starts.append(now)

    def earliest(self, now: float, ahead: int = 0) -> float:
        """When a call that comes now may start, if `ahead` others start before it, each as soon as it may."""
        starts = self._starts.copy()
        for _ in range(ahead + 1):
            full = len(starts) == starts.maxlen
            at = max(now, starts[0] + self.window if full else now, starts[-1] + self.gap if starts else now)
            starts.append(at)
        return starts[-1]


class Throttle:
    """`shared_start` is for the pace that many processes keep together; of the calls at once this one has its `share`,
    and one at least."""

    def __init__(self, limits: Limits, shared_start: SharedStart | None = None, share: float = 1.0) -> None:
        self._pace = Pace(limits.rate, limits.min_gap) if limits.rate or limits.min_gap else None
        self._shared_start = shared_start
        self._free = asyncio.Semaphore(max(1, int(limits.concurrency * share))) if limits.concurrency else None
        self._head = Places(1)  # of the line: held by the call that starts next; the others queue up behind it

    @property
    def unbounded(self) -> bool:
        """Whether every call may start at once."""
        return self._pace is None and self._free is None

    @asynccontextmanager
    async def slot(self, patience: float) -> AsyncIterator[None]:
        """Around one call: lets it start when its turn comes, at the latest `patience` seconds from now."""
        if self.unbounded:
            yield
            return
        now = asyncio.get_running_loop().time()
        if self._pace is not None and (wait := self._pace.earliest(now, self._head.ahead()) - now) > patience:
            raise RateLimited(_TOO_MANY, retry_after=wait)
        async with AsyncExitStack() as call:
            async with time_limit(patience, RateLimited(_TOO_MANY)), self._head.place():
                if self._free is not None:
                    await call.enter_async_context(self._free)
                if self._pace is not None:
                    await self._start(self._pace, now + patience)
            yield

    async def _start(self, pace: Pace, latest: float) -> None:
        clock = asyncio.get_running_loop().time
        now = clock()
        wait = pace.earliest(now) - now
        if self._shared_start is not None:
            patience = latest - now
            shared = await self._shared_start(pace.burst, pace.window, pace.gap, patience)
            if shared is not None and shared > patience:
                raise RateLimited(_TOO_MANY, retry_after=shared)
            now, wait = clock(), wait if shared is None else shared
        await asyncio.sleep(wait)
        pace.started(max(now + wait, clock()))
