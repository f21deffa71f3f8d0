"""How an answer leaves: straight to ASGI `send`, as one body or as a stream with keep-alives, and only while the
client is there. Handed bytes by the routes; hands them to the server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send

from ..dialects import chat
from ..values.errors import crashed, shutting_down, too_long
from ..values.events import Event, Failed, Finished, SearchedFirst
from ..values.sse import PING

log = logging.getLogger("groundwire")

SEARCH_HEADER = "x-groundwire-search"
FIRST_PING = 15.0  # how long the first upstream answer is awaited before 200 goes out without it
PING_EVERY = 10.0

_STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


async def send_json(send: Send, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
    sized = {"content-type": "application/json", **(headers or {}), "content-length": str(len(body))}
    await send({"type": "http.response.start", "status": status, "headers": raw_headers(sized)})
    await send({"type": "http.response.body", "body": body})


async def send_failure(send: Send, failed: Failed, headers: Mapping[str, str] | None = None) -> None:
    await send_json(send, failed.status, chat.error_body(failed), {**(headers or {}), **failed.headers})


class AnswerWriter(Protocol):
    """What a dialect makes of events: frames batch by batch, or one body of all; and what it does before the end."""

    def feed(self, events: Iterable[Event]) -> bytes: ...

    def whole(self, events: Iterable[Event]) -> bytes: ...

    async def keep(self, finished: Finished) -> None:
        """Done before the client hears of the end."""


class Delivery:
    """The way out for answers, within the time that one may take. `stopping` says that the server is going down."""

    def __init__(self, limit: float, stopping: Callable[[], bool]) -> None:
        self._limit = limit
        self._stopping = stopping

    async def deliver(
        self,
        scope: Scope,
        send: Send,
        events: AsyncGenerator[list[Event], None],
        answer: AnswerWriter,
        decided: str,
        *,
        stream: bool,
    ) -> None:
        """An answer, as a stream or in one piece. `decided` is what the header says about search; what is learned about
        that on the way, and what went wrong, is noted for the log."""
        headers = {SEARCH_HEADER: decided}
        async with aclosing(events):
            failed = await (self._stream if stream else self._whole)(send, events, answer, headers)
        if headers[SEARCH_HEADER] != decided:
            scope["notes"].append(f"search {headers[SEARCH_HEADER]}")
        if failed:
            scope["notes"].append(f"failed {failed.error['code']}")

    async def _stream(
        self, send: Send, events: AsyncIterator[list[Event]], answer: AnswerWriter, headers: dict[str, str]
    ) -> Failed | None:
        """Sends events as they come, and says what went wrong if anything did."""
        stream = EventStream(send, headers)
        failed: Failed | None = None
        try:
            async with asyncio.timeout(self._limit):
                async for batch in events:
                    if isinstance(batch[0], SearchedFirst):
                        _note_search(headers, batch[0])
                        stream.headers |= headers
                        if batch[0].searched:  # the model is asked late: the client hears that we are at work
                            await stream.write(PING)
                    failed = _failure_in(batch)
                    if failed and not stream.started:
                        stream.stop()
                        await send_failure(send, failed, headers)
                        return failed
                    data = answer.feed(batch)
                    if isinstance(batch[-1], Finished):
                        await answer.keep(batch[-1])
                    if data:
                        await stream.write(data)
        except TimeoutError:
            failed = too_long()
            if not stream.started:
                stream.stop()
                await send_failure(send, failed, headers)
                return failed
            await stream.write(answer.feed([failed]))
        except asyncio.CancelledError:
            if self._stopping() and stream.started:
                await stream.write(answer.feed([shutting_down()]))
                await stream.close()
            raise
        except Exception:  # a fault of ours after the stream has begun: even that is said, never cut off silently
            if not stream.started:
                raise
            log.exception("a stream failed")
            failed = crashed()
            await stream.write(answer.feed([failed]))
        finally:
            stream.stop()
        await stream.close()
        return failed

    async def _whole(
        self, send: Send, events: AsyncIterator[list[Event]], answer: AnswerWriter, headers: dict[str, str]
    ) -> Failed | None:
        gathered: list[Event] = []
        try:
            async with asyncio.timeout(self._limit):
                async for batch in events:
                    if isinstance(batch[0], SearchedFirst):
                        _note_search(headers, batch[0])
                    gathered += batch
        except TimeoutError:
            gathered = [too_long()]
        if failed := _failure_in(gathered):
            await send_failure(send, failed, headers)
            return failed
        body = answer.whole(gathered)
        if isinstance(gathered[-1], Finished):
            await answer.keep(gathered[-1])
        await send_json(send, 200, body, headers)
        return None


def _failure_in(events: Iterable[Event]) -> Failed | None:
    return next((event for event in events if isinstance(event, Failed)), None)


def _note_search(headers: dict[str, str], event: SearchedFirst) -> None:
    """What the answer's header says of a search that came before the question."""
    decided = headers[SEARCH_HEADER]
    headers[SEARCH_HEADER] = f"{decided}; searched=first" if event.searched else f"off; reason={event.reason}"


class EventStream:
    """A streamed answer. It starts with the first write, or by itself with a ping when nothing was written for long."""

    def __init__(
        self, send: Send, headers: Mapping[str, str], *, first: float = FIRST_PING, every: float = PING_EVERY
    ) -> None:
        self._send = send
        self._every = every
        self.headers = {**_STREAM_HEADERS, **headers}  # may change until the first write
        self._loop = asyncio.get_running_loop()
        self._quiet_since = self._loop.time()
        self._timer = self._loop.call_later(first, self._tick)
        self._ping: asyncio.Task[None] | None = None
        self.started = False

    async def write(self, data: bytes) -> None:
        self._quiet_since = self._loop.time()
        if not self.started:
            await self._start()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def close(self) -> None:
        self.stop()
        await self._send({"type": "http.response.body", "body": b""})

    def stop(self) -> None:
        """No more pings; whatever else happens to this answer."""
        self._timer.cancel()
        if self._ping:
            self._ping.cancel()

    async def _start(self) -> None:
        self.started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": raw_headers(self.headers)})

    def _tick(self) -> None:
        quiet = self._loop.time() - self._quiet_since
        if quiet >= self._every and (self._ping is None or self._ping.done()):
            self._ping = self._loop.create_task(self.write(PING))
            quiet = 0.0
        self._timer = self._loop.call_later(max(self._every - quiet, 0.001), self._tick)


async def while_connected(receive: Receive, work: Coroutine[Any, Any, object]) -> None:
    """Does `work` in this very task, and cancels it when the client leaves."""
    task = asyncio.current_task()
    assert task is not None
    left = False

    async def watch() -> None:
        nonlocal left
        while (await receive())["type"] != "http.disconnect":
            pass
        left = True
        task.cancel()

    watcher = asyncio.create_task(watch())
    try:
        await work
    except asyncio.CancelledError:
        if not left or task.uncancel():
            raise
    finally:
        watcher.cancel()


def raw_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(key.encode("latin-1"), value.encode("latin-1", "replace")) for key, value in headers.items()]
