"""Answers that are made in the background: the work goes on when the client leaves. The request that it came with is
under way until then, so limits, metrics and the drain count it like any other. Handed a prepared question by the answer
route; writes its events into a journal, from which every client hears them, the first one too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import orjson
from starlette.types import Receive, Send

from providers.records import dataclass

from ..context import RequestContext
from ..dialects.responses.background import BackgroundWriter
from ..store.journal import Journal
from ..values.errors import crashed, failure, shutting_down
from ..values.events import EventBatches, Failed
from ..values.request import SEARCH_HEADER
from ..watching.observer import Observer
from .admission import NextTurn
from .delivery import Delivery, send_json, while_connected
from .event_stream import EventStream
from .followed_events import send_events

log = logging.getLogger("groundwire")

SETTLING = 5.0  # seconds between attempts to tell a store of an end that was away when it came
MOST_ATTEMPTS = 120
LAST_WORDS = 1.0  # how long the client may take to hear the end where we are stopped


class JournalStream:
    """What a delivery writes to. It has begun before the delivery: whatever happens is told as an event."""

    started = True

    def __init__(self, writer: BackgroundWriter, journal: Journal, next_turn: NextTurn) -> None:
        self._writer = writer
        self._journal = journal
        self._next_turn = next_turn
        self.headers: dict[str, str] = {}
        self.ended = False  # has it an end that everybody can see?

    async def write(self, data: bytes) -> None:
        await self._writer.note()
        self._writer.write(self._journal, data)
        self.ended = self._writer.over
        if not self.ended:
            await self._next_turn()

    write_last = hold = write

    async def close(self) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Asking:
    """Who wants the work done: the request, its connection, and its turns on the event loop."""

    context: RequestContext
    receive: Receive
    send: Send
    next_turn: NextTurn


class BackgroundAnswers:
    """`delivery` makes events of an answer into frames, and says so if we are stopped."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._settling: set[asyncio.Task[None]] = set()

    async def answer(self, asking: Asking, events: EventBatches, writer: BackgroundWriter, decided: str) -> None:
        context = asking.context
        journal = await writer.begin()
        stream = JournalStream(writer, journal, asking.next_turn)
        client = asyncio.create_task(_tell(asking, writer, {SEARCH_HEADER: decided}))
        work = asyncio.create_task(self._delivery.deliver(context, asking.send, events, writer, decided, stream))
        try:
            await _until_over(work, journal)
        except asyncio.CancelledError:
            await _undisturbed(self._end(context, work, stream, journal, writer))
            await asyncio.wait({client}, timeout=LAST_WORDS)
            client.cancel()
            raise
        await _undisturbed(self._end(context, work, stream, journal, writer))
        await client

    async def _end(
        self,
        context: RequestContext,
        work: asyncio.Task[None],
        stream: JournalStream,
        journal: Journal,
        writer: BackgroundWriter,
    ) -> None:
        """However the work ended, everybody can see an end of it."""
        if not writer.over:  # else it is about to be kept
            work.cancel()
        await asyncio.wait({work})
        if not work.cancelled() and (error := work.exception()):
            log.error("work in the background failed", exc_info=error)
        if journal.halted == "lost":  # somebody else has written its end
            context.observer.fail("lease_lost")
            writer.write(journal, writer.fail(_taken_for_dead()))
        elif not stream.ended:
            await stream.write(_last_frames(context, journal, writer, stopped=work.cancelled()))
        journal.settled = writer.settled
        await writer.close(journal)
        if not journal.settled:
            self._settle_later(writer, journal)

    def _settle_later(self, writer: BackgroundWriter, journal: Journal) -> None:
        task = asyncio.create_task(_settle(writer, journal))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def aclose(self) -> None:
        for task in list(self._settling):
            task.cancel()
        await asyncio.gather(*self._settling, return_exceptions=True)


def _taken_for_dead() -> Failed:
    return failure(500, "Nothing was heard of the work on this response for too long: ask again.", code="lease_lost")


def _last_frames(context: RequestContext, journal: Journal, writer: BackgroundWriter, *, stopped: bool) -> bytes:
    if journal.halted == "cancelled":
        context.observer.fail("client_cancelled")
        return writer.cancel()
    failed = shutting_down() if stopped else crashed()
    context.observer.fail(failed.error["code"])
    return writer.fail(failed)


async def _tell(asking: Asking, writer: BackgroundWriter, headers: dict[str, str]) -> None:
    """What the client that has asked hears: the response as it begins, or all events while it is there."""
    if not writer.streamed:
        await send_json(asking.send, 200, orjson.dumps(writer.response), headers)
        return
    stream = EventStream(asking.send, headers)
    unwatched = Observer()  # that it leaves is no news
    await while_connected(asking.receive, send_events(stream, writer.follow()), unwatched)


async def _until_over(work: asyncio.Task[None], journal: Journal) -> None:
    """Waits until it is done, or nobody wants it any more."""
    halt = asyncio.create_task(journal.halt_asked.wait())
    try:
        await asyncio.wait({work, halt}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        halt.cancel()


async def _undisturbed(work: Coroutine[Any, Any, None]) -> None:
    """Does all of it, however often somebody wants to stop us meanwhile."""
    task = asyncio.create_task(work)
    disturbed = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            disturbed = True
    task.result()
    if disturbed:
        raise asyncio.CancelledError


async def _settle(writer: BackgroundWriter, journal: Journal) -> None:
    for _ in range(MOST_ATTEMPTS):
        await asyncio.sleep(SETTLING)
        if await writer.settle():
            break
    journal.settled = True
    journal.notify()
