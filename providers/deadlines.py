"""A block of work that must be over by a certain time. Handed the running loop and that time; raises `TimeoutError` in
a block that takes longer, as `asyncio.timeout_at` does, for a third of its cost: no coroutine is made, and nobody asks
which loop runs, which is a system call each time up to Python 3.11.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any


class Deadline:
    """`with Deadline(loop, when): …`"""

    __slots__ = ("_cancelled_before", "_has_passed", "_loop", "_task", "_timer", "_when")

    def __init__(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        self._loop = loop
        self._when = when
        self._has_passed = False

    def __enter__(self) -> None:
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._task: asyncio.Task[Any] = task
        self._cancelled_before = task.cancelling()
        self._timer = self._loop.call_at(self._when, self._pass)

    def _pass(self) -> None:
        self._has_passed = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if not self._has_passed:
            return
        # Who is cancelled by others too is not late, but gone.
        ours_alone = self._task.uncancel() <= self._cancelled_before
        if ours_alone and kind is asyncio.CancelledError:
            raise TimeoutError from error
