"""The engine as an object that hands on batches: how it ends, is left, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import math
import weakref
from collections.abc import AsyncGenerator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.answering.engine import Engine
from proxy.answering.offer import make_offer
from proxy.context import RequestContext
from proxy.dialects.chat import ChatDialect
from proxy.values.errors import truncated
from proxy.values.events import (
    Begun,
    Citation,
    Event,
    EventBatches,
    Failed,
    Finished,
    RoundFinished,
    TakeBatch,
    TextDelta,
    ToolCallDelta,
    UsageSeen,
    feed_of,
)
from proxy.values.portions import PORTION
from proxy.values.request import ChatRequest
from proxy.watching.observer import Observer
from tests.fakes.toolbox import Bench

PLAIN: list[list[Event]] = [
    [Begun("m")],
    [TextDelta("Blue")],
    [TextDelta(" light.")],
    [UsageSeen({}), Finished("stop")],
]
SEARCH: list[list[Event]] = [
    [Begun("m"), ToolCallDelta(0, "c", "web_search", '{"query": "sky"}')],
    [UsageSeen({}), Finished("tool_calls")],
]
CITED: list[list[Event]] = [[Begun("m")], [TextDelta("The sky is blue [1].")], [UsageSeen({}), Finished("stop")]]


class Plan:
    """A model that says one script after the other, and whatever is noted of it."""

    def __init__(self, *rounds: Sequence[list[Event]]) -> None:
        self._rounds = list(rounds)
        self.noted: list[Any] = []
        self.open = 0
        settings = SimpleNamespace(assist=False, citations=SimpleNamespace(auto=None, require_read=None))
        upstream = SimpleNamespace(context=lambda model: None)
        self.current = SimpleNamespace(settings=settings, upstream=upstream, model="m")

    async def look_up(self) -> str:
        return "native"

    async def stream(self, body: Any, known_tools: Any = None) -> AsyncGenerator[list[Event], None]:
        self.open += 1
        try:
            for batch in self._rounds.pop(0):
                await asyncio.sleep(0)
                yield list(batch)
        finally:
            self.open -= 1

    def note_end(self, batch: Sequence[Event], said: int = 0) -> None:
        self.noted.append((type(batch[-1]).__name__, said))

    def note_left(self, said: int) -> None:
        self.noted.append(("left", said))


def answering(plan: Plan) -> EventBatches:
    bench = Bench()
    body = {"model": "m", "messages": [{"role": "user", "content": "Why is the sky blue?"}]}
    request = ChatRequest(body, b"", "m")
    context = RequestContext("r", ChatDialect(), math.inf, Observer())
    offer = make_offer(request, bench.toolbox.specs)
    return Engine(bench.toolbox).answer(request, offer, plan, context)  # type: ignore[arg-type]


async def all_of(batches: EventBatches) -> list[Event]:
    return [event async for batch in batches for event in batch]


async def over(batches: EventBatches) -> bool:
    return [batch async for batch in batches] == []


async def test_it_ends_once() -> None:
    plan = Plan(SEARCH, CITED)
    batches = answering(plan)
    events = await all_of(batches)
    assert [type(event) for event in events][-1] is Finished
    assert any(isinstance(event, Citation) for event in events)
    assert await over(batches)
    await batches.aclose()
    assert plan.noted == [("Finished", 0), ("Finished", 20)]


@pytest.mark.parametrize("seen", [1, 2, 3])
async def test_who_leaves_closes_the_model(seen: int) -> None:
    plan = Plan(PLAIN)
    batches = answering(plan)
    for _ in range(seen):
        await batches.__anext__()
    assert plan.open == 1
    await batches.aclose()
    assert plan.open == 0
    assert plan.noted == [("left", [0, 4, 11][seen - 1])]
    await batches.aclose()
    assert await over(batches)
    assert len(plan.noted) == 1


async def test_who_is_cancelled_closes_the_model() -> None:
    plan = Plan([*PLAIN[:2], *[[TextDelta(" a")]] * 1000])
    batches = answering(plan)
    task = asyncio.create_task(all_of(batches))
    while not plan.open:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert plan.open == 0
    assert [what for what, _ in plan.noted] == ["left"]
    assert await over(batches)


async def test_a_model_that_breaks_off_has_failed() -> None:
    plan = Plan(PLAIN[:2])
    *said, failed = await all_of(answering(plan))
    assert said == [Begun("m"), TextDelta("Blue")]
    assert isinstance(failed, Failed)
    assert [what for what, _ in plan.noted] == ["Failed"]


async def test_much_text_comes_in_portions_between_which_others_have_their_turn() -> None:
    text = "word " * PORTION
    plan = Plan([[Begun("m"), TextDelta(text), UsageSeen({}), Finished("stop")]])
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    lengths = [
        sum(len(event.text) for event in batch if isinstance(event, TextDelta)) async for batch in answering(plan)
    ]
    task.cancel()
    assert lengths == [PORTION] * 5 + [0]
    assert turns >= len(lengths)


@pytest.mark.parametrize("rounds", [[PLAIN], [SEARCH, CITED], [PLAIN[:2]]], ids=["plain", "searched", "broken off"])
async def test_nothing_is_left_for_the_garbage_collector(rounds: list[list[list[Event]]]) -> None:
    batches = answering(Plan(*rounds))
    left = weakref.ref(batches)
    gc.disable()
    try:
        await all_of(batches)
        del batches
        assert left() is None
    finally:
        gc.enable()


# In the moment in which it comes


class Pushed:
    """The batches of a model that can be fed, and are asked for where nobody feeds on them."""

    def __init__(self, batches: Sequence[list[Event]]) -> None:
        self._batches = list(batches)
        self.fed = 0

    def __aiter__(self) -> Pushed:
        return self

    async def __anext__(self) -> list[Event]:
        await asyncio.sleep(0)
        if not self._batches:
            raise StopAsyncIteration
        return list(self._batches.pop(0))

    async def feed(self, take: TakeBatch) -> None:
        await asyncio.sleep(0)
        while self._batches:
            self.fed += 1
            if not take(list(self._batches.pop(0))):
                return

    async def aclose(self) -> None:
        self._batches = []


class PushingPlan(Plan):
    def stream(self, body: Any, known_tools: Any = None) -> Any:
        self.last = Pushed(self._rounds.pop(0))
        return self.last


async def pushed(batches: EventBatches, takes: int) -> list[Event]:
    """All events, where `takes` batches in a row are taken at once, and the next has to be awaited."""
    feed = feed_of(batches)
    assert feed is not None
    seen: list[Event] = []
    left = takes

    def take(batch: list[Event]) -> bool:
        nonlocal left
        seen.extend(batch)
        left -= 1
        return left > 0

    async for batch in batches:
        seen += batch
        left = takes
        await feed(take)
    return seen


def told(events: list[Event]) -> list[Event | type]:
    """Without the history, in which every search has a fence of its own."""
    return [type(event) if isinstance(event, RoundFinished) else event for event in events]


LONG: list[list[Event]] = [[Begun("m")], [TextDelta("word " * PORTION)], [TextDelta("end")], [Finished("stop")]]
TALK: list[list[Event]] = [[Begun("m")], *([TextDelta(f"{n} ")] for n in range(9)), [UsageSeen({}), Finished("stop")]]


@pytest.mark.parametrize("takes", [1, 2, 3, 100])
@pytest.mark.parametrize(
    "rounds",
    [(PLAIN,), (SEARCH, CITED), (LONG,), (TALK,), (PLAIN[:-1],), ([[Begun("m")], [TextDelta("A")], [truncated()]],)],
    ids=["plain", "searched", "long", "talk", "cut off", "failed"],
)
async def test_fed_or_asked_for_it_is_the_same(rounds: tuple[list[list[Event]], ...], takes: int) -> None:
    asked, fed = PushingPlan(*rounds), PushingPlan(*rounds)
    expected = told(await all_of(answering(asked)))
    assert told(await pushed(answering(fed), takes)) == expected
    assert fed.noted == asked.noted
    assert asked.last.fed == 0
    assert fed.last.fed > 0


async def test_who_takes_and_fails_ends_the_answer() -> None:
    plan = PushingPlan(TALK)
    batches = answering(plan)
    await anext(aiter(batches))

    def take(batch: list[Event]) -> bool:
        raise ValueError("full")

    feed = feed_of(batches)
    assert feed is not None
    with pytest.raises(ValueError, match="full"):
        await feed(take)
    assert await over(batches)
    assert plan.noted == [("left", 2)]
