"""An event loop whose clock leaps: where a loop would sleep until its next timer, this one is there already. So a test
of fifteen seconds takes none, and every moment in it is exact. Handed a coroutine that does no I/O; hands back what it
returns. `@leaping` runs a whole test in it.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _LeapingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_LeapingSelector(self))

    def time(self) -> float:
        return self.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """At once: the clock would leap on while a thread works."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


class _LeapingSelector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    def __init__(self, loop: _LeapingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "all wait for each other, and no timer will ever ring"
        self._loop.now += max(timeout, 0.0)
        return super().select(0)


def in_leaping_time(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=_LeapingLoop) as runner:
        return runner.run(main)


def leaping(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @wraps(test)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        in_leaping_time(test(*arguments, **named))

    return run
