"""Steps between the events of an answer: as soon as they are told, before its end, and nobody is hurried by them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import aclosing

import orjson
import pytest

from proxy.dialects.responses.encoder import Encoder
from proxy.dialects.responses.request import decode
from proxy.serving.trace import traced
from proxy.values.errors import failure
from proxy.values.events import Begun, Event, Finished, StepTold, TextDelta, UsageSeen
from proxy.watching.observer import Listener, Observer
from proxy.watching.steps import Cited, Decided, FirstContent, ModelAsked

Events = AsyncGenerator[list[Event], None]


def kinds(batch: list[Event]) -> list[str]:
    return [event.fields["kind"] if isinstance(event, StepTold) else type(event).__name__ for event in batch]


async def test_steps_of_before_come_first_and_others_as_they_are_told() -> None:
    observer = Observer([Listener()])
    observer.tell(Decided(True, "auto"))
    asked = asyncio.Event()

    async def answer() -> Events:
        observer.tell(ModelAsked("up", "m"))
        await asked.wait()
        yield [Begun("m"), TextDelta("a")]
        yield [Finished("stop")]

    async with aclosing(traced(answer(), observer)) as events:
        assert kinds(await anext(events)) == ["decided"]
        told = await anext(events)  # while the model is awaited
        assert kinds(told) == ["model_asked"]
        assert isinstance(told[0], StepTold)
        assert told[0].fields["round"] == 1
        asked.set()
        assert [kinds(batch) async for batch in events] == [["Begun", "TextDelta"], ["Finished"]]


@pytest.mark.parametrize("end", [Finished("stop"), failure(502, "no", code="upstream_error")], ids=["whole", "failed"])
async def test_what_is_told_of_the_last_batch_stands_before_the_end(end: Event) -> None:
    observer = Observer([Listener()])

    async def answer() -> Events:
        yield [Begun("m"), TextDelta("a"), UsageSeen({}), end]

    seen = []
    async with aclosing(traced(answer(), observer)) as events:
        async for batch in events:
            seen.append(kinds(batch))
            if any(isinstance(event, TextDelta) for event in batch):  # as the delivery tells of what it sends
                observer.tell(FirstContent())
                observer.tell(Cited(1))
    assert seen == [["Begun", "TextDelta", "UsageSeen"], ["first_content", "cited"], [type(end).__name__]]


async def test_no_more_is_made_than_is_taken() -> None:
    observer, made = Observer([Listener()]), 0

    async def answer() -> Events:
        nonlocal made
        while True:
            made += 1
            yield [TextDelta("a")]

    async with aclosing(traced(answer(), observer)) as events:
        for n in range(1, 50):
            await anext(events)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert made == n


async def test_all_of_the_answer_runs_in_one_task_and_is_closed_by_it() -> None:
    observer = Observer([Listener()])
    tasks: list[object] = []

    async def answer() -> Events:
        try:
            while True:
                tasks.append(asyncio.current_task())
                yield [TextDelta("a")]
        finally:
            tasks.append(asyncio.current_task())

    async with aclosing(traced(answer(), observer)) as events:
        for _ in range(3):
            await anext(events)
    assert len(tasks) == 4
    assert len(set(tasks)) == 1


async def test_who_is_cancelled_stops_the_work() -> None:
    observer = Observer([Listener()])
    began, stopped = asyncio.Event(), asyncio.Event()

    async def answer() -> Events:
        try:
            began.set()
            await asyncio.Event().wait()
            yield []
        finally:
            stopped.set()

    async def take() -> None:
        async with aclosing(traced(answer(), observer)) as events:
            await anext(events)

    taking = asyncio.create_task(take())
    await began.wait()
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert stopped.is_set()


async def test_a_fault_of_the_answer_is_raised_after_what_was_told() -> None:
    observer = Observer([Listener()])

    async def answer() -> Events:
        yield [TextDelta("a")]
        observer.tell(FirstContent())
        raise KeyError("ours")

    async with aclosing(traced(answer(), observer)) as events:
        assert kinds(await anext(events)) == ["TextDelta"]
        assert kinds(await anext(events)) == ["first_content"]
        with pytest.raises(KeyError):
            await anext(events)


async def test_a_fault_that_nobody_waits_for_is_no_news_of_asyncio() -> None:
    """Its client has left: the log would hold a traceback that nobody can do anything about."""
    observer, complaints = Observer([Listener()]), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))

    async def answer() -> Events:
        try:
            yield [TextDelta("a")]
        finally:
            raise KeyError("ours")

    async with aclosing(traced(answer(), observer)) as events:
        await anext(events)
    gc.collect()
    assert complaints == []


def test_steps_count_with_the_other_events_and_the_response_is_heard_of_first() -> None:
    encoder = Encoder(decode(b'{"model":"m","input":"x","stream":true}'), "resp_1")
    step = StepTold({"kind": "decided", "at_ms": 1.0})
    frames = encoder.feed([step]) + encoder.feed([Begun("m"), TextDelta("a"), step, TextDelta("b"), Finished("stop")])
    events = [orjson.loads(frame.partition(b"data: ")[2]) for frame in frames.split(b"\n\n") if frame]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events][:3] == ["response.created", "groundwire.step", "response.in_progress"]
    assert sum(event["type"] == "response.created" for event in events) == 1
    assert events[1] == {"type": "groundwire.step", "sequence_number": 1, "step": {"kind": "decided", "at_ms": 1.0}}
    assert events[-1]["type"] == "response.completed"
    assert b"groundwire" not in orjson.dumps(encoder.response)
