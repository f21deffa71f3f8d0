"""A task that begins at once. Handed a coroutine; makes its task, and runs it up to the first thing that it awaits here
and now. A task that the loop begins waits for all else that is ready in this round: where ten requests come together,
nobody's question would leave before all ten were read.
"""

from __future__ import annotations

import asyncio
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")


def start_now(
    work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop, made: Callable[[asyncio.Task[T]], None]
) -> None:
    """As `made(loop.create_task(work))`; and that is all it is where another task is being run just now."""
    if asyncio.current_task(loop) is not None:
        made(loop.create_task(work))
        return
    context, begun = copy_context(), _Begun(work)
    task = loop.create_task(begun, context=context)
    made(task)
    _enter_task(loop, task)  # for who asks which task this is
    try:
        context.run(begun.begin)
    finally:
        _leave_task(loop, task)


class _Begun(Coroutine[Any, Any, T]):
    """A coroutine whose first step was made before its task made any: the task's first step hands on what came of it.
    What is thrown into it meets the coroutine where it stands; but a cancellation first meets what it awaits, as in any
    task."""

    __slots__ = ("_ended", "_first", "_is_new", "_work")

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._is_new = True  # has its task made no step?
        self._first: Any = None  # what it awaits first
        self._ended: BaseException | None = None  # or how it ended before that

    def begin(self) -> None:
        try:
            self._first = self._work.send(None)
        except BaseException as ended:  # raised in its task, where it belongs
            self._ended = ended
        if self._first is not None:
            self._first._asyncio_future_blocking = False  # until its task takes it, others may await it too

    def send(self, value: Any) -> Any:
        if not self._is_new:
            return self._work.send(value)
        self._is_new = False
        if self._ended is not None:
            raise self._taken_end()
        return self._taken_first()

    def throw(self, *error: Any) -> Any:
        self._is_new = False
        if self._ended is not None:
            raise self._taken_end()
        if self._first is not None and isinstance(error[0], asyncio.CancelledError) and self._first.cancel():
            return self._taken_first()  # its task awaits the end of it, and throws the cancellation in then
        return self._work.throw(*error)

    def _taken_first(self) -> Any:
        first, self._first = self._first, None
        if first is not None:
            first._asyncio_future_blocking = True  # as it was handed to us: a task takes nothing else
        return first

    def _taken_end(self) -> BaseException:
        """It is not kept here: what was raised knows of us, and both would stay until a collection finds them."""
        ended, self._ended = self._ended, None
        assert ended is not None
        return ended

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work.__await__()
