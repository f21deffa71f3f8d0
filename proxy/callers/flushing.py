"""Brings to the store, every second, what was counted meanwhile, so that no request waits for it. Handed what is to be
done each time; does it until it is stopped, and then once more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

log = logging.getLogger("groundwire")

EVERY = 1.0


class Flushing:
    def __init__(self, *parts: Callable[[], Awaitable[object]]) -> None:
        self._parts = parts
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._flush()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            await self._flush()

    async def _flush(self) -> None:
        for part in self._parts:
            try:
                await part()
            except Exception:  # what is counted must not stop being counted
                log.exception("what callers used could not be written down")
