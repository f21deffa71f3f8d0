"""What processes tell each other of their providers over a real Redis: who one of them left alone is left alone by all,
and what may be asked so often is asked so often by all together.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from providers import errors
from providers.base import SearchQuery
from providers.chain import AllFailed, SearchChain
from providers.gateway import ProviderGateway
from providers.settings import CooldownSettings
from proxy.config.redis_address import RedisAddress
from proxy.store.redis_store import RedisStore
from tests.fakes.providers import Engine, until
from tests.fakes.redis_server import MISSING, PATIENCE, PROGRAM, RedisServer

pytestmark = pytest.mark.skipif(PROGRAM is None, reason=MISSING)

LONG = CooldownSettings(rate_limited=60, failures=1, unavailable=60)


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


class Process:
    """One process: its own store on the common Redis, its own gateway, a chain over the same engine."""

    def __init__(self, redis: RedisServer, engine: Engine, scope: str, **limits: float) -> None:
        self.store = RedisStore(RedisAddress.read(redis.url), pause=0.05, timeout=PATIENCE)
        self.neighbours = self.store.neighbours(scope, ["a", "b"])
        self.cooled: list[str] = []
        self.gateway = gateway = ProviderGateway(
            LONG, neighbours=self.neighbours, cooled_down=lambda name, seconds: self.cooled.append(name)
        )
        self.chain = SearchChain([engine.named(**limits)], gateway=gateway)

    async def search(self, words: str = "q") -> str:
        try:
            return (await self.chain.search(SearchQuery(words))).provider
        except AllFailed as failed:
            return str(failed)

    async def close(self) -> None:
        await self.neighbours.aclose()
        await self.store.aclose()


@asynccontextmanager
async def processes(
    redis: RedisServer, engine: Engine, scopes: Sequence[str] = ("s", "s"), **limits: float
) -> AsyncIterator[list[Process]]:
    made = [Process(redis, engine, scope, **limits) for scope in scopes]
    try:
        for process in made:
            await process.neighbours.open()
        yield made
    finally:
        for process in made:
            await process.close()


async def has_heard(process: Process) -> None:
    """Until a process that did not find out by itself leaves the provider alone."""
    await until(lambda: process.gateway.resting("a"))


async def test_who_one_left_alone_is_left_alone_by_all(redis: RedisServer) -> None:
    engine = Engine(errors.RateLimited("slow down", retry_after=600))
    async with processes(redis, engine) as (one, two):
        assert "slow down" in await one.search()
        await has_heard(two)
        for process in (one, two):
            resting = process.gateway.resting("a")
            assert resting is not None
            assert (resting.reason, resting.seconds > 500) == ("slow down", True)
        refused = await two.search()
        assert "cooling down for another" in refused
        assert "slow down" in refused
        assert len(engine.asked) == 1
        assert (one.cooled, two.cooled) == (["a"], []), "it began once"


async def test_one_that_has_asked_before_hears_of_it_too(redis: RedisServer) -> None:
    engine = Engine()
    async with processes(redis, engine) as (one, two):
        assert (await one.search("1"), await two.search("2")) == ("a", "a")
        engine.outcome = errors.Unavailable("down")
        assert "down" in await one.search("3")
        await has_heard(two)
        assert "cooling down" in await two.search("4")
        assert len(engine.asked) == 3


async def test_who_comes_later_hears_of_it(redis: RedisServer) -> None:
    engine = Engine(errors.QuotaExceeded("used up"))
    async with processes(redis, engine, ["s"]) as (one,):
        await one.search()
        await until(redis.names)
        async with processes(redis, engine, ["s"]) as (late,):
            await has_heard(late)
            assert "cooling down" in await late.search()
    assert len(engine.asked) == 1


async def test_others_who_ask_other_providers_do_not_hear_of_it(redis: RedisServer) -> None:
    engine = Engine(errors.RateLimited("slow down", retry_after=600))
    async with processes(redis, engine, ("s", "s", "other")) as (one, two, other):
        await one.search()
        await has_heard(two)
        engine.outcome = None
        assert await other.search() == "a"


async def test_what_is_over_is_over_for_all(redis: RedisServer) -> None:
    engine = Engine(errors.RateLimited("slow down", retry_after=2))
    async with processes(redis, engine) as (one, two):
        await one.search()
        await has_heard(two)
        engine.outcome = None
        for process in (one, two):
            async with asyncio.timeout(10):
                while await process.search() != "a":
                    await asyncio.sleep(0.02)


async def test_without_redis_each_is_on_its_own(redis: RedisServer) -> None:
    engine = Engine(errors.RateLimited("slow down", retry_after=600))
    async with processes(redis, engine, rate=1000.0) as (one, two):
        redis.kill()
        assert "slow down" in await one.search()
        assert "cooling down" in await one.search("again")
        engine.outcome = None
        assert await two.search() == "a"


async def test_strange_things_in_redis_are_nothing(redis: RedisServer) -> None:
    engine = Engine(errors.RateLimited("slow down", retry_after=600))
    async with processes(redis, engine, ["s"]) as (one,):
        await one.search()
        await until(redis.names)
    (name,) = redis.names()
    engine.outcome = None
    for strange in (b"\xff", b"[]", b'["x", "y"]', b"{}"):
        redis.ask("SET", name, strange, "PX", "60000")
        async with processes(redis, engine, ["s"]) as (late,):
            assert await late.search() == "a"


# How often


async def starts(asked: Sequence[Process], burst: int, window: float, gap: float) -> list[tuple[float, float]]:
    """Between which two moments of our clock each call would start: Redis has a clock of its own."""
    found = []
    for process in asked:
        before = time.monotonic()
        wait = await process.neighbours.start("a", burst, window, gap, 60)
        assert wait is not None
        found.append((before + wait, time.monotonic() + wait))
    return found


async def test_a_rate_is_kept_by_all_together(redis: RedisServer) -> None:
    async with processes(redis, Engine()) as (one, two):
        found = await starts([one, two] * 5, 3, 20.0, 0.0)
    assert all(later[1] - first[0] >= 20 for first, later in zip(found, found[3:], strict=False))
    assert found[9][0] - found[0][1] < 62, "and no less often than may be"


async def test_a_gap_is_kept_by_all_together(redis: RedisServer) -> None:
    async with processes(redis, Engine()) as (one, two):
        found = await starts([one, two, two, one], 1, 0.0, 10.0)
    assert all(later[1] - first[0] >= 10 for first, later in pairwise(found))


async def test_whose_turn_would_come_too_late_is_refused_and_takes_none(redis: RedisServer) -> None:
    engine = Engine(timeout=5.0)
    async with processes(redis, engine, min_gap=60) as (one, two):
        assert await one.search("1") == "a"
        for _ in range(2):
            assert "too many calls are waiting" in await two.search("2")
        assert len(engine.asked) == 1


async def test_a_call_waits_for_the_turn_that_it_was_given(redis: RedisServer) -> None:
    engine = Engine()
    async with processes(redis, engine, min_gap=0.5) as (one, two):
        began = time.monotonic()
        assert {await one.search("1"), await two.search("2")} == {"a"}
    assert engine.started[1] - began >= 0.45


# The end of a process


# A connection that is made in the moment of the cancellation is left to the garbage collector by asyncio and the
# library: Python 3.13 says so where the loop is closed by then.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_who_is_cancelled_while_it_asks_has_ended(redis: RedisServer) -> None:
    """The library may take a cancellation for an answer that came in the same moment: then who waits for the end of a
    task would wait for ever."""
    store = RedisStore(RedisAddress.read(redis.url), timeout=PATIENCE)

    async def ask_on() -> None:
        while True:
            await store.get("turn", "owner", "key")
            await asyncio.sleep(0)  # without Redis a store answers at once, and nobody else would ever run

    try:
        for turn in range(400):
            asking = asyncio.create_task(ask_on())
            await asyncio.sleep(turn % 40 * 0.00005)
            for _ in range(turn % 7):
                await asyncio.sleep(0)
            asking.cancel()
            _, late = await asyncio.wait({asking}, timeout=5)
            stuck = [str(frame) for frame in asking.get_stack()] if late else []
            if late:
                asking.cancel()
            assert not late, f"in turn {turn}, cancelled {asking.cancelling()} times: {stuck}"
    finally:
        await store.aclose()
        gc.collect()
