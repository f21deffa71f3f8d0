"""Turns: how often, how many at once, how far apart; who waits, who is refused, and what leaving gives back."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.base import SearchQuery
from providers.chain import SearchChain
from providers.errors import RateLimited
from providers.limits import Limits, Pace, Throttle
from providers.registry import ProviderEntry, build
from tests.fakes.providers import Engine, Gate, after, until

SLACK = 0.002  # clocks of loops are this coarse


def schedule(pace: Pace, arrivals: list[float]) -> list[float]:
    starts: list[float] = []
    for arrival in arrivals:
        at = pace.earliest(max([arrival, *starts[-1:]]))
        pace.started(at)
        starts.append(at)
    return starts


# The pace


def test_a_rate_lets_a_second_worth_of_calls_start_at_once() -> None:
    assert schedule(Pace(3, None), [0] * 7) == [0, 0, 0, 1, 1, 1, 2]


def test_a_rate_that_is_no_whole_number_spreads_the_calls() -> None:
    assert schedule(Pace(0.5, None), [0, 0, 0, 9]) == [0, 2, 4, 9]
    assert schedule(Pace(2.5, None), [0, 0, 0]) == [0, 0.4, 0.8]


def test_a_gap_keeps_starts_apart() -> None:
    assert schedule(Pace(None, 0.5), [0, 0, 0.7, 5]) == [0, 0.5, 1, 5]
    assert schedule(Pace(2, 0.3), [0] * 5) == [0, 0.3, 1, 1.3, 2]


def test_who_comes_sees_those_ahead() -> None:
    pace = Pace(2, None)
    assert [pace.earliest(0, ahead) for ahead in range(5)] == [0, 0, 1, 1, 2]
    pace.started(0)
    assert [pace.earliest(0.5, ahead) for ahead in range(4)] == [0.5, 1, 1.5, 2]


@given(
    st.floats(0.1, 20),
    st.none() | st.floats(0.01, 2),
    st.lists(st.floats(0, 10), min_size=1, max_size=40).map(sorted),
)
@settings(max_examples=200)
def test_no_second_holds_more_than_the_rate(rate: float, gap: float | None, arrivals: list[float]) -> None:
    starts = schedule(Pace(rate, gap), arrivals)
    assert all(start >= arrival for start, arrival in zip(starts, arrivals, strict=True))
    for first, start in enumerate(starts):
        assert sum(start <= other < start + 1 - 1e-9 for other in starts[first:]) <= ceil(rate)
    if gap is not None:
        assert all(later - earlier >= gap - 1e-9 for earlier, later in pairwise(starts))


# In real time


async def run(throttle: Throttle, calls: int, patience: float = 10) -> list[float]:
    started: list[float] = []

    async def call() -> None:
        async with throttle.slot(patience):
            started.append(time.monotonic())

    await asyncio.gather(*(call() for _ in range(calls)))
    return started


async def test_no_limits_make_nobody_wait() -> None:
    async with asyncio.timeout(5):
        assert len(await run(Throttle(Limits()), 500, patience=0)) == 500


async def test_rate_and_gap_hold_for_calls_that_come_together() -> None:
    """Counted from before the first: on a busy machine a call may take note of its start late."""
    began = time.monotonic()
    started = await run(Throttle(Limits(min_gap=0.05)), 5)
    assert all(at - began >= 0.05 * number - SLACK for number, at in enumerate(started))
    began = time.monotonic()
    started = await run(Throttle(Limits(rate=20)), 25)
    assert all(at - began >= 1 - SLACK for at in started[20:])


async def test_concurrency_holds_and_is_used() -> None:
    engine = Engine(after(0.02))
    chain = SearchChain([engine.named(concurrency=3)])
    await asyncio.gather(*(chain.search(SearchQuery(f"q{at}")) for at in range(12)))
    assert (len(engine.asked), engine.most_at_once) == (12, 3)


async def test_who_would_wait_too_long_is_refused_at_once_and_told_how_long() -> None:
    throttle = Throttle(Limits(rate=0.01))
    await run(throttle, 1)
    async with asyncio.timeout(1):
        with pytest.raises(RateLimited) as caught:
            await run(throttle, 1, patience=5)
    assert caught.value.retry_after is not None
    assert 5 < caught.value.retry_after <= 100


async def test_the_queue_counts_too() -> None:
    throttle = Throttle(Limits(min_gap=0.4))
    outcomes = await asyncio.gather(*(run(throttle, 1, patience=1) for _ in range(6)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [list] * 3 + [RateLimited] * 3


async def test_nobody_waits_for_a_place_for_ever() -> None:
    throttle = Throttle(Limits(concurrency=1))
    async with throttle.slot(1):
        with pytest.raises(RateLimited):
            await run(throttle, 1, patience=0.02)
    assert len(await run(throttle, 1)) == 1


async def test_who_leaves_the_queue_gives_the_turn_back() -> None:
    throttle = Throttle(Limits(min_gap=0.3))
    await run(throttle, 1)
    waiting = [asyncio.create_task(run(throttle, 1)) for _ in range(20)]
    await asyncio.sleep(0.01)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    assert len(await run(throttle, 1, patience=0.55)) == 1


async def test_a_cancelled_call_gives_its_place_back() -> None:
    engine = Engine(Gate())
    chain = SearchChain([engine.named(concurrency=1)])
    running = asyncio.create_task(chain.search(SearchQuery("one")))
    await until(lambda: engine.asked)
    waiting = asyncio.create_task(chain.search(SearchQuery("two")))
    await asyncio.sleep(0.01)
    assert len(engine.asked) == 1
    running.cancel()
    engine.outcome = None
    assert (await waiting).provider == "a"


# From the config


def limits_of(**entry: object) -> Limits:
    return build([ProviderEntry.model_validate({"name": "ddg", "type": "duckduckgo", **entry})], None)["ddg"].limits  # type: ignore[arg-type]


def test_what_the_operator_says_wins_over_what_the_service_says_of_itself() -> None:
    assert limits_of() == Limits(rate=1, concurrency=4)
    assert limits_of(rate=5, min_gap=0.1) == Limits(rate=5, concurrency=4, min_gap=0.1)
    assert limits_of(concurrency=1) == Limits(rate=1, concurrency=1)
