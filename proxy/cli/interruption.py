"""Ctrl-C at any moment ends a command within a second, without a traceback, with exit code 130. Handed the command's
work; what it has begun is ended in order if that does not take long, and by the end of the process if it does: a name
that is being looked up or an index that is being made waits for nobody.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

CODE = 130
_PATIENCE = 0.7  # seconds for an end in order

T = TypeVar("T")


@contextmanager
def ended_at_once() -> Iterator[None]:
    """For what has begun nothing that would have to be ended: imports, reading the config, waiting for a question."""
    with _handled_by(lambda *_: os._exit(CODE)):
        yield


def ignore() -> None:
    """For who is about to end anyway: Python would complain of a Ctrl-C in its last moments."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def end_soon() -> threading.Timer:
    """The process is over in a moment, whatever still runs in it."""
    timer = threading.Timer(_PATIENCE, os._exit, [CODE])
    timer.daemon = True
    timer.start()
    return timer


async def ended_in_time(work: Coroutine[Any, Any, int]) -> int:
    """The first Ctrl-C cancels the work, as asyncio does it; the second one, and time, end the process."""
    cancels = signal.getsignal(signal.SIGINT)

    def interrupted(number: int, frame: FrameType | None) -> None:
        if waiting:
            os._exit(CODE)
        waiting.append(end_soon())
        if callable(cancels):
            cancels(number, frame)

    waiting: list[threading.Timer] = []
    with _handled_by(interrupted):
        return await heard_at_once(work)


async def heard_at_once(work: Coroutine[Any, Any, T]) -> T:
    """A Ctrl-C that comes just before the loop begins to wait would be heard when something else happens: the loop is
    woken by it."""
    if threading.current_thread() is not threading.main_thread():
        return await work
    loop, handler = asyncio.get_running_loop(), signal.getsignal(signal.SIGINT)
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # for its bell; what is done is still the handler's
    signal.signal(signal.SIGINT, handler)
    try:
        return await work
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, handler)


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Only the main thread hears of signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
