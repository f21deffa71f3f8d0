"""How an answer leaves: straight to ASGI `send`, as one body or as a stream with keep-alives, and only while the
client is there. Handed events by the routes and a dialect's writer; hands bytes to the server, and tells the observer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from starlette.types import Receive, Send

from providers.deadlines import Deadline

from ..context import RequestContext
from ..values.dialect import AnswerWriter, Dialect
from ..values.errors import crashed, shutting_down, too_large, too_long
from ..values.events import (
    Begun,
    Event,
    EventBatches,
    Failed,
    Finished,
    SearchedFirst,
    TextDelta,
    ToolFinished,
    ToolStarted,
    feed_of,
)
from ..values.request import SEARCH_HEADER
from ..watching.observer import Observer
from .exchange import exchange_behind
from .pieces import LastPiece, raw_headers
from .telling import AnswerTelling

log = logging.getLogger("groundwire")

_LARGEST = 32 * 1024 * 1024  # bytes of an answer in one piece
_EVENT = 100  # bytes, besides its text
_OF_SEARCH = (SearchedFirst, Begun, ToolStarted, ToolFinished)  # what may happen before a model is asked
_LAST_EVENTS = frozenset((Finished, Failed))

_JSON = (b"content-type", b"application/json")


def send_body(send: Send, status: int, body: bytes, headers: Mapping[str, str]) -> Awaitable[None]:
    return _send_sized(send, status, body, raw_headers(headers))


def send_json(send: Send, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> Awaitable[None]:
    """`headers` are those besides its type."""
    return _send_sized(send, status, body, [_JSON, *raw_headers(headers)] if headers else [_JSON])


async def _send_sized(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers, "body_follows": True})
    await send({"type": "http.response.body", "body": body})


async def send_failure(send: Send, dialect: Dialect, failed: Failed, headers: Mapping[str, str] | None = None) -> None:
    await send_json(send, dialect.status(failed), dialect.error(failed), {**(headers or {}), **failed.headers})


class AnswerStream(Protocol):
    """What a streamed answer is written to."""

    headers: dict[str, str]

    @property
    def started(self) -> bool: ...

    def write(self, data: bytes) -> Awaitable[None]: ...

    def write_last(self, data: bytes) -> Awaitable[None]: ...

    def hold(self, data: bytes) -> Awaitable[None]: ...

    async def close(self) -> None: ...

    def stop(self) -> None: ...


class Delivery:
    """The way out for answers. `stopping` says that the server is going down."""

    def __init__(self, stopping: Callable[[], bool]) -> None:
        self._stopping = stopping

    def deliver(
        self,
        context: RequestContext,
        send: Send,
        events: EventBatches,
        writer: AnswerWriter,
        decided: str,
        stream: AnswerStream | None,
    ) -> Coroutine[Any, Any, None]:
        """An answer, as a stream or in one piece. `decided` is what the header says about search."""
        answer = _Outgoing(context, send, writer, decided, self._stopping, stream is not None)
        return answer.stream(events, stream) if stream else answer.whole(events)


class _Outgoing:
    """One answer on its way out."""

    def __init__(
        self,
        context: RequestContext,
        send: Send,
        writer: AnswerWriter,
        decided: str,
        stopping: Callable[[], bool],
        streamed: bool,
    ) -> None:
        self._context = context
        self._send = send
        self._writer = writer
        self._headers = {SEARCH_HEADER: decided}
        self._stopping = stopping
        self._before_model = False  # is the web searched, and the model still to be asked?
        self._last: LastPiece  # of a stream
        self._telling = AnswerTelling(context, streamed)

    async def stream(self, events: EventBatches, stream: AnswerStream) -> None:
        """Sends events as they come."""
        self._last = LastPiece()
        feed = feed_of(events)
        deadline = Deadline(self._context.running_loop, self._context.deadline)
        try:
            with deadline:
                async for batch in events:
                    if not await self._send_batch(stream, batch):
                        return
                    if feed and stream.started and not self._before_model:
                        await feed(partial(self._take, stream))
                        await self._last.taken()
        except asyncio.CancelledError:
            if self._stopping() and stream.started:
                await self._send_failure(stream, shutting_down())
                await stream.close()
            raise
        except Exception as error:  # also after the stream has begun this is said, and never cut off silently
            late = deadline.expired and isinstance(error, TimeoutError)
            if not late and not stream.started:
                raise
            if not late:
                log.exception("a stream failed")
            if not await self._send_failure(stream, too_long() if late else crashed()):
                return
        finally:
            stream.stop()
            self._last.drop()
            await events.aclose()
        await stream.close()

    async def _send_batch(self, stream: AnswerStream, batch: list[Event]) -> bool:
        """Whether there is a stream: no, if nothing was sent yet and this is a failure."""
        self._telling.see(batch)
        if not stream.started and not await self._may_start(stream, batch):
            return False
        if self._before_model:
            self._before_model = all(isinstance(event, _OF_SEARCH) for event in batch)
        over = type(batch[-1]) is Finished
        data = await self._writer.end(batch) if over else self._writer.feed(batch)
        if data:
            on_the_way = stream.hold if self._before_model else stream.write
            await (stream.write_last if over else on_the_way)(data)
        if over:
            self._context.observer.succeed()
        return True

    def _take(self, stream: AnswerStream, batch: list[Event]) -> bool:
        """Sends what has come in this very moment. Whether it is taken: if not, that is to be awaited."""
        data = self._writer.feed(batch)
        taken = self._last.note(stream.write(data)) if data else True
        self._telling.see(batch)  # behind the write: the client need not wait for who watches
        return taken

    async def _may_start(self, stream: AnswerStream, batch: list[Event]) -> bool:
        """What comes first decides: a failure is an answer of its own. It is sent, and then there is no stream."""
        if type(first := batch[0]) is SearchedFirst:
            self._begin_searching(stream, first)
        if type(last := batch[-1]) is Failed:
            return await self._send_failure(stream, last)
        return True

    def _begin_searching(self, stream: AnswerStream, event: SearchedFirst) -> None:
        """What is told of the search waits for the model, which may refuse: then the client gets its status."""
        self._note_search(event)
        stream.headers |= self._headers
        self._before_model = event.searched

    async def _send_failure(self, stream: AnswerStream, failed: Failed) -> bool:
        """As an event where the stream has begun; else as an answer of its own, and then all is said."""
        self._telling.see([failed])
        if stream.started:
            await stream.write_last(self._writer.feed([failed]))
            return True
        stream.stop()
        await send_failure(self._send, self._context.dialect, failed, self._headers)
        return False

    async def whole(self, events: EventBatches) -> None:
        deadline = Deadline(self._context.running_loop, self._context.deadline)
        try:
            with deadline:
                gathered = await self._gathered(events)
        except TimeoutError:
            if not deadline.expired:
                raise
            gathered = [too_long()]
            self._telling.see(gathered)
        if type(last := gathered[-1]) is Failed:
            await send_failure(self._send, self._context.dialect, last, self._headers)
            return
        await send_json(self._send, 200, await self._writer.whole(gathered), self._headers)

    async def _gathered(self, events: EventBatches) -> list[Event]:
        gathered: list[Event] = []
        size = 0
        try:
            async for batch in events:
                self._telling.see(batch)
                if type(first := batch[0]) is SearchedFirst:
                    self._note_search(first)
                gathered += batch
                size += _size(batch)
                if size > _LARGEST:  # a server that streams without end, though a stream was not asked for
                    gathered = [too_large()]
                    self._telling.see(gathered)
                    break
                if type(batch[-1]) in _LAST_EVENTS:  # nothing comes behind it
                    break
        finally:
            await events.aclose()
        return gathered

    def _note_search(self, event: SearchedFirst) -> None:
        """What the answer's header says of a search that came before the question."""
        decided = self._headers[SEARCH_HEADER]
        _, left, types = decided.partition("; left_out=")
        searched = f"{decided}; searched=first" if event.searched else f"off; reason={event.reason}{left}{types}"
        self._headers[SEARCH_HEADER] = searched


def _size(batch: Sequence[Event]) -> int:
    """About what it takes to keep it until the answer is whole."""
    size = _EVENT * len(batch)
    for event in batch:
        if type(event) is TextDelta:
            size += len(event.text)
    return size


async def while_connected(receive: Receive, work: Coroutine[Any, Any, object], observer: Observer) -> None:
    """Does `work` in this very task, and cancels it when the client leaves."""
    exchange = exchange_behind(receive)
    served_by = exchange.task if exchange else None
    task = asyncio.current_task(served_by.get_loop() if served_by else None)  # it may be another than that
    assert task is not None
    left = False

    def leave() -> None:
        nonlocal left
        left = True
        task.cancel()

    watcher = None if exchange else asyncio.create_task(_await_leaving(receive, leave))
    if exchange:
        exchange.when_client_leaves(leave)
    try:
        await work
    except asyncio.CancelledError:
        if not left or task.uncancel():
            raise
        observer.fail("client_left")
    finally:
        if exchange:
            exchange.when_client_leaves(None)
        if watcher:
            watcher.cancel()


async def _await_leaving(receive: Receive, leave: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    leave()
