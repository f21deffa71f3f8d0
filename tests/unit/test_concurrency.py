"""The limit of what is under way at once: who waits, who is refused, and that every place is given back."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from proxy.callers.concurrency import ConcurrencyLimit, Full, Place
from tests.fakes.clock import in_leaping_time, leaping

PATIENCE = 0.2


async def entered(limit: ConcurrencyLimit, line: str = "a", most: int | None = None) -> Place:
    place = limit.arrive(line, most)
    if not place.inside:
        try:
            await limit.wait(place)
        except BaseException:
            limit.leave(place)
            raise
    return place


@leaping
async def test_nobody_waits_while_there_are_places() -> None:
    limit = ConcurrencyLimit(2, PATIENCE)
    assert limit.arrive("a").inside
    assert limit.arrive("a").inside
    assert not limit.arrive("b").inside


@leaping
async def test_who_waits_comes_in_when_somebody_leaves() -> None:
    limit = ConcurrencyLimit(1, PATIENCE)
    first = limit.arrive("a")
    second = asyncio.create_task(entered(limit))
    await asyncio.sleep(0.1)
    assert (limit.waiting, second.done()) == (1, False)
    limit.leave(first)
    assert (await second).inside
    assert (limit.waiting, limit.inside) == (0, 1)


@leaping
async def test_after_the_patience_it_is_full_and_nobody_stands_there_any_more() -> None:
    limit = ConcurrencyLimit(1, PATIENCE)
    limit.arrive("a")
    began = asyncio.get_running_loop().time()
    with pytest.raises(Full) as full:
        await entered(limit, "b")
    assert asyncio.get_running_loop().time() - began == pytest.approx(PATIENCE)
    assert not full.value.own
    assert limit.waiting == 0


@leaping
async def test_the_caller_is_told_when_it_is_its_own_limit() -> None:
    limit = ConcurrencyLimit(None, PATIENCE)
    place = limit.arrive("a", 1)
    assert limit.arrive("b", 1).inside
    with pytest.raises(Full) as full:
        await entered(limit, "a", 1)
    assert full.value.own
    limit.leave(place)
    assert limit.arrive("a", 1).inside


@leaping
async def test_who_is_patient_waits_as_long_as_it_takes() -> None:
    limit = ConcurrencyLimit(1, PATIENCE)
    first, second = limit.arrive("a"), limit.arrive("a")
    waits = asyncio.create_task(limit.wait(second, patient=True))
    await asyncio.sleep(100 * PATIENCE)
    assert not waits.done()
    limit.leave(first)
    await waits


@leaping
async def test_one_caller_with_many_waiting_keeps_nobody_else_waiting() -> None:
    limit = ConcurrencyLimit(1, 100)
    order: list[str] = []

    async def ask(line: str) -> None:
        place = await entered(limit, line)
        order.append(line)
        await asyncio.sleep(0.01)
        limit.leave(place)

    async with asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(ask("a"))
        await asyncio.sleep(0.005)
        group.create_task(ask("b"))
    assert order.index("b") <= 2


@leaping
async def test_a_place_that_was_given_to_one_who_is_cancelled_goes_to_the_next() -> None:
    limit = ConcurrencyLimit(1, PATIENCE)
    first = limit.arrive("a")
    cancelled, other = (asyncio.create_task(entered(limit)) for _ in range(2))
    await asyncio.sleep(0.01)
    limit.leave(first)  # the place is the first one's now, who does not know it yet
    cancelled.cancel()
    assert (await other).inside
    assert limit.inside == 1


@pytest.mark.parametrize("seed", range(20))
def test_whenever_requests_are_cancelled_all_places_are_free_in_the_end(seed: int) -> None:
    dice = random.Random(seed)
    most, own = dice.randint(1, 4), dice.choice([None, 1, 2])
    inside, seen = Counter[str](), list[int]()

    async def ask(limit: ConcurrencyLimit, line: str) -> None:
        place = limit.arrive(line, own)
        try:
            if not place.inside:
                await limit.wait(place, patient=dice.random() < 0.2)
            inside[line] += 1
            try:
                seen.append(inside.total())
                assert own is None or inside[line] <= own
                await asyncio.sleep(dice.random() * PATIENCE)
            finally:
                inside[line] -= 1
        except Full:
            pass
        finally:
            limit.leave(place)

    async def run() -> None:
        limit = ConcurrencyLimit(most, PATIENCE)
        tasks = []
        for _ in range(60):
            tasks.append(asyncio.create_task(ask(limit, dice.choice("abc"))))
            await asyncio.sleep(dice.choice([0, 0, 0.01, 0.1]))
            if dice.random() < 0.5:
                dice.choice(tasks).cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert ended is None or isinstance(ended, asyncio.CancelledError)
        assert (limit.inside, limit.waiting) == (0, 0)
        assert all(limit.arrive("z").inside for _ in range(most))

    in_leaping_time(run())
    assert 0 < max(seen) <= most
