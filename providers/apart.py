"""Long work apart from the event loop: in a thread of its own, while everybody else is served. Handed the size of what
is worked on, a function and its arguments; hands on what that gives.

The interpreter changes threads every five milliseconds, so nobody waits longer than that for work in Python. A single
call of C does not let go: parsers and regular expressions have to be given pieces (`text/stretches.py`).
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

WORTH_A_THREAD = 128 << 10  # bytes of a request: some milliseconds of work; a thread costs a tenth of one
_THREAD = ThreadPoolExecutor(1, thread_name_prefix="apart")  # one: more would only take turns with each other

_SURELY_LITTLE = 512  # bytes of a request: whatever stands in them
_OF_PART = 50  # bytes of text that cost as much as one JSON value, from its parsing to its encoding
_OF_MARK = 250  # and as one mark of code, which is looked for in all that was said

P = ParamSpec("P")
T = TypeVar("T")


async def apart(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Small work is done at once, in the thread of the loop. Where every request passes, `is_worth_a_thread` is asked
    there, and only what is large awaits `in_thread`."""
    if size < WORTH_A_THREAD:
        return work(*args, **kwargs)
    return await in_thread(work, *args, **kwargs)


def is_worth_a_thread(raw: bytes) -> bool:
    """Whether a request takes some milliseconds: by its size, and by what it is made of."""
    if len(raw) >= WORTH_A_THREAD or len(raw) < _SURELY_LITTLE:
        return len(raw) >= WORTH_A_THREAD
    marks = raw.count(b"`") + raw.count(b"~") + raw.count(b"\\u00")  # the last may be either
    return len(raw) + _OF_PART * raw.count(b",") + _OF_MARK * marks >= WORTH_A_THREAD


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await asyncio.get_running_loop().run_in_executor(_THREAD, _uncollected, lambda: work(*args, **kwargs))


def _uncollected(work: Callable[[], T]) -> T:
    """Without the garbage collector, which would look again and again at all that is made here, and lets nobody go on
    meanwhile. What has no cycles is freed without it."""
    gc.disable()
    try:
        return work()
    finally:
        gc.enable()
