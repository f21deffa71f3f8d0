"""What happens to a request, told to the client that asked while it happens: `X-Groundwire-Trace: on`. Handed the
events of an answer and the observer of its request; hands on the same events, with each step between them as soon as it
is told, also while a model or a search is awaited. Who does not ask for it never comes here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from ..context import RequestContext
from ..values.dialect import Decoded
from ..values.events import Event, EventBatches, Failed, Finished, StepTold
from ..values.request import TRACE_HEADER
from ..watching.observer import Listener, Observer
from ..watching.step_fields import all_fields, fields_of
from ..watching.steps import Step


def is_wanted(context: RequestContext, decoded: Decoded) -> bool:
    """Is it asked for, and does the answer have a place for it?"""
    return decoded.shows_steps and context.headers.get(TRACE_HEADER, "").strip().lower() == "on"


async def traced(events: EventBatches, observer: Observer) -> AsyncGenerator[list[Event], None]:
    """Another task drives the answer, all of it, because what it opens it must also close."""
    news = _News(observer)
    work = asyncio.create_task(_drive(events, news))
    try:
        while batch := await news.next():
            yield batch
        await work
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)  # who waits for it has left, or was told


async def _drive(events: EventBatches, news: _News) -> None:
    try:
        async with aclosing(events):
            async for batch in events:
                await news.put(batch)
    finally:
        news.end()


class _News(Listener):
    """What is there to be handed on: steps, and one batch of the answer. The next batch is made when somebody waits for
    it, as without a trace."""

    def __init__(self, observer: Observer) -> None:
        self._steps: list[Event] = [StepTold(fields) for fields in all_fields(observer.steps, contents=True)]
        self._batch: list[Event] = []
        self._over = False
        self._something = asyncio.Event()
        self._wanted = asyncio.Event()
        observer.listen(self)

    def told(self, request: Observer, step: Step) -> None:
        rounds = request.summary.rounds
        self._steps.append(StepTold(fields_of(step, request.seconds, rounds=rounds, contents=True)))
        self._something.set()

    async def put(self, batch: list[Event]) -> None:
        self._batch = batch
        self._wanted.clear()
        self._something.set()
        await self._wanted.wait()

    def end(self) -> None:
        self._over = True
        self._something.set()

    async def next(self) -> list[Event]:
        """Steps, or a batch as soon as there is one; nothing when all is over."""
        while not (self._steps or self._batch or self._over):
            self._something.clear()
            self._wanted.set()
            await self._something.wait()
        if self._steps:
            taken, self._steps = self._steps, []
        else:
            whole = len(self._batch) < 2 or not isinstance(self._batch[-1], Finished | Failed)
            # Whoever gets what stands before the end may tell of steps: those stand before it too.
            at = len(self._batch) if whole else -1
            taken, self._batch = self._batch[:at], self._batch[at:]
        return taken
