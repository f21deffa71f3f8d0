"""An answer on its way out, for tests of the delivery: scripted events, a writer in words, the wire it goes into, and a
clock that leaps. Handed steps; hands back the answer, with what was sent and when.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from proxy.context import RequestContext
from proxy.serving.delivery import Delivery
from proxy.serving.event_stream import EventStream
from proxy.values.events import Event, Failed, Finished, SearchedFirst, TakeBatch, TextDelta
from proxy.values.request import SEARCH_HEADER
from proxy.values.sse import PING
from proxy.watching.observer import Observer
from tests.fakes.clock import in_leaping_time

DECIDED = "offered; reason=auto"  # what the header says about search

# What the events do: a batch comes, so many seconds pass, or something is raised.
Step = list[Event] | float | Exception


async def nothing() -> None: ...


class Writer:
    """A dialect's writer in words, one frame for each event. `keeping` is done before the client hears of the end."""

    def __init__(self, keeping: Callable[[], Awaitable[None]]) -> None:
        self._keeping = keeping

    def feed(self, events: Sequence[Event]) -> bytes:
        return b"".join(_word(event) + b"\n" for event in events if not isinstance(event, SearchedFirst))

    async def end(self, events: Sequence[Event]) -> bytes:
        assert isinstance(events[-1], Finished)
        await self._keeping()
        return self.feed(events)

    async def whole(self, events: Sequence[Event]) -> bytes:
        assert isinstance(events[-1], Finished)
        await self._keeping()
        return b"all of " + b" ".join(_word(event) for event in events if not isinstance(event, SearchedFirst))


def _word(event: Event) -> bytes:
    if isinstance(event, Failed):
        return f"error {event.error['code']}".encode()
    return event.text.encode() if isinstance(event, TextDelta) else type(event).__name__.lower().encode()


class Dialect:
    """As much of one as a failure needs."""

    name = "words"

    def status(self, failed: Failed) -> int:
        return failed.status

    def error(self, failed: Failed) -> bytes:
        return json.dumps({"refused": failed.error["code"]}).encode()


class Wire:
    """An ASGI server's end of the line: what was sent, when, and a client that may leave. One that reads slowly takes
    `slow` seconds for each message."""

    def __init__(self, slow: float = 0.0) -> None:
        self._slow = slow
        self.sent: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.leave = asyncio.Event()

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self._slow)

    async def receive(self) -> Any:
        await self.leave.wait()
        return {"type": "http.disconnect"}

    @property
    def status(self) -> int:
        (start,) = [message for message in self.sent if message["type"] == "http.response.start"]
        assert start is self.sent[0]
        return int(start["status"])

    @property
    def headers(self) -> dict[str, str]:
        assert self.status
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.sent if message["type"] == "http.response.body"]

    @property
    def frames(self) -> list[tuple[float, bytes]]:
        """What was streamed, with its seconds; and that the stream was closed behind it, once."""
        assert self.status == 200
        *frames, last = list(zip(self.times, self.sent, strict=True))[1:]
        assert all(message["more_body"] for _, message in frames)
        assert (last[1]["body"], last[1].get("more_body", False)) == (b"", False)
        return [(at, message["body"]) for at, message in frames]

    @property
    def body(self) -> bytes:
        """An answer of one piece."""
        (message,) = self.sent[1:]
        assert not message.get("more_body")
        assert self.headers["content-length"] == str(len(message["body"]))
        assert self.headers["content-type"] == "application/json"
        return bytes(message["body"])


class FedBatches:
    """Batches that could also be had in the moment in which they come. None ever comes so; it notes the seconds in
    which it was asked."""

    def __init__(self, batches: AsyncGenerator[list[Event], None]) -> None:
        self._batches = batches
        self.asked: list[float] = []

    def __aiter__(self) -> AsyncIterator[list[Event]]:
        return self

    def __anext__(self) -> Awaitable[list[Event]]:
        return self._batches.__anext__()

    def aclose(self) -> Awaitable[None]:
        return self._batches.aclose()

    async def feed(self, take: TakeBatch) -> None:
        self.asked.append(asyncio.get_running_loop().time())


class Answer:
    """One delivery of scripted events. `deadline` in seconds from now."""

    def __init__(
        self,
        *steps: Step,
        stream: bool = True,
        deadline: float = 600.0,
        slow: float = 0.0,
        stopping: bool = False,
        ping: bytes = PING,
        keeping: Callable[[], Awaitable[None]] = nothing,
        closing: float = 0.0,
    ) -> None:
        """`closing` is how many seconds it takes to leave the events."""
        self.wire = Wire(slow)
        self.observer = Observer()
        self.closed = False  # is the work behind the events over?
        self.batches = FedBatches(self._events())
        self._steps = steps
        self._stream = stream
        self._deadline = deadline
        self._stopping = stopping
        self._ping = ping
        self._keeping = keeping
        self._closing = closing

    async def deliver(self) -> None:
        deadline = asyncio.get_running_loop().time() + self._deadline
        context = RequestContext("req_1", Dialect(), deadline, self.observer)  # type: ignore[arg-type]
        await Delivery(lambda: self._stopping).deliver(
            context, self.wire.send, self.batches, Writer(self._keeping), DECIDED, self._open_stream()
        )

    def _open_stream(self) -> EventStream | None:
        return EventStream(self.wire.send, {SEARCH_HEADER: DECIDED}, ping=self._ping) if self._stream else None

    async def _events(self) -> AsyncGenerator[list[Event], None]:
        try:
            for step in self._steps:
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, list):
                    yield step
                else:
                    await asyncio.sleep(step)
        finally:
            try:
                await asyncio.sleep(self._closing)
            finally:
                self.closed = True


def delivered(*steps: Step, **more: Any) -> Answer:
    """An answer that went its way."""

    async def run() -> Answer:
        answer = Answer(*steps, **more)
        await answer.deliver()
        return await _over(answer)

    return in_leaping_time(run())


def crashing(answer: Callable[[], Answer], error: type[BaseException]) -> Answer:
    """An answer whose delivery raises."""

    async def run() -> Answer:
        made = answer()
        with pytest.raises(error):
            await made.deliver()
        return await _over(made)

    return in_leaping_time(run())


async def _over(answer: Answer) -> Answer:
    """However it ended: nothing is at work any more, and nothing is sent, however long one waits."""
    assert answer.closed
    sent = list(answer.wire.sent)
    await asyncio.sleep(100)
    assert answer.wire.sent == sent
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return answer


def cancelled(*steps: Step, after: float, **more: Any) -> Answer:
    """An answer that somebody broke off."""

    def made() -> Answer:
        answer = Answer(*steps, **more)
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_later(after, task.cancel)
        return answer

    return crashing(made, asyncio.CancelledError)
