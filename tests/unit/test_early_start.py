"""A task that begins at once is a task like any other, but for when it begins."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any

import pytest

from proxy.serving.early_start import start_now

TOLD: ContextVar[str] = ContextVar("told", default="nothing")


class Started:
    """`begin` starts work as a connection does: in a callback of the loop, where no task is being run."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.made: list[asyncio.Task[Any]] = []

    async def begin(
        self, work: Coroutine[Any, Any, Any], then: Callable[[asyncio.Task[Any]], object] = bool
    ) -> asyncio.Task[Any]:
        """`then` is done in the same callback, before the task makes a step of its own."""
        loop = asyncio.get_running_loop()
        returned: asyncio.Future[None] = loop.create_future()

        def callback() -> None:
            start_now(work, loop, self.made.append)
            self.steps.append("returned")
            then(self.made[0])
            returned.set_result(None)

        loop.call_soon(callback)
        await returned
        return self.made[0]


@pytest.fixture
def started() -> Started:
    return Started()


async def test_it_runs_up_to_its_first_wait_before_anything_else(started: Started) -> None:
    gate: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        started.steps.append("begun")
        word = await gate
        started.steps.append(word)
        await asyncio.sleep(0)
        return "done"

    task = await started.begin(work())
    assert started.steps == ["begun", "returned"]
    gate.set_result("woken")
    assert await task == "done"
    assert started.steps == ["begun", "returned", "woken"]


@pytest.mark.parametrize("waits", [True, False])
async def test_it_knows_its_task_and_its_task_is_known_before_it_begins(started: Started, waits: bool) -> None:
    async def work() -> list[bool]:
        current = [asyncio.current_task() is started.made[0]]
        if waits:
            await asyncio.sleep(0)
            current.append(asyncio.current_task() is started.made[0])
        return current

    assert all(await (await started.begin(work())))
    assert asyncio.current_task() is not None


async def test_what_ends_before_its_first_wait_is_gone_without_a_collection(started: Started) -> None:
    class Outcome:
        pass

    async def work() -> Outcome:
        return Outcome()

    gc.disable()
    try:
        gone = weakref.ref(await (await started.begin(work())))
        started.made.clear()
        await asyncio.sleep(0)
        assert gone() is None
    finally:
        gc.enable()


async def test_what_it_sets_stays_with_it(started: Started) -> None:
    async def work() -> str:
        TOLD.set("something")
        await asyncio.sleep(0)
        return TOLD.get()

    assert await (await started.begin(work())) == "something"
    assert TOLD.get() == "nothing"


@pytest.mark.parametrize("before", [True, False], ids=["before it waits", "after it waited"])
async def test_what_goes_wrong_is_raised_in_its_task(started: Started, before: bool) -> None:
    async def work() -> None:
        if not before:
            await asyncio.sleep(0)
        raise KeyError("wrong")

    task = await started.begin(work())
    assert started.steps == ["returned"], "and not where it was begun"
    with pytest.raises(KeyError, match="wrong"):
        await task


@pytest.mark.parametrize("rounds", [0, 1, 3], ids=["before the task's first step", "after it", "later"])
async def test_it_is_cancelled_where_it_stands(started: Started, rounds: int) -> None:
    """Also before its first step, when a task knows nothing yet of what its work waits for."""
    seen = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            seen.append("cancelled")
            await asyncio.sleep(0)
            seen.append("tidied up")
            raise

    await started.begin(work(), bool if rounds else asyncio.Task.cancel)
    for left in reversed(range(rounds)):
        await asyncio.sleep(0)
        if not left:
            started.made[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await started.made[0]
    assert seen == ["cancelled", "tidied up"]


async def test_what_it_waits_for_is_cancelled_with_it(started: Started) -> None:
    aside = asyncio.create_task(asyncio.sleep(60))

    async def work() -> None:
        await aside

    await started.begin(work(), asyncio.Task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await started.made[0]
    with pytest.raises(asyncio.CancelledError):
        await aside


async def test_several_may_begin_by_waiting_for_the_same(started: Started) -> None:
    loop = asyncio.get_running_loop()
    gate: asyncio.Future[str] = loop.create_future()
    done: asyncio.Future[None] = loop.create_future()

    async def work() -> str:
        return await gate

    def callback() -> None:
        for _ in range(3):
            start_now(work(), loop, started.made.append)
        done.set_result(None)

    loop.call_soon(callback)
    await done
    loop.call_soon(gate.set_result, "open")
    assert await asyncio.gather(*started.made) == ["open"] * 3


async def test_what_it_waits_for_may_come_before_its_task_has_begun(started: Started) -> None:
    gate: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        return await gate

    assert await (await started.begin(work(), lambda _: gate.set_result("open"))) == "open"


async def test_a_cancellation_that_is_taken_back_leaves_a_result(started: Started) -> None:
    async def work() -> str:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            started.made[0].uncancel()
        await asyncio.sleep(0)
        return "went on"

    task = await started.begin(work())
    task.cancel()
    assert await task == "went on"


async def test_within_another_task_it_is_begun_by_the_loop(started: Started) -> None:
    async def work() -> None:
        started.steps.append("begun")

    start_now(work(), asyncio.get_running_loop(), started.made.append)
    assert started.steps == []
    await started.made[0]
    assert started.steps == ["begun"]


async def test_one_that_has_ended_and_is_cancelled_then_has_ended(started: Started) -> None:
    async def work() -> str:
        return "ended"

    assert await (await started.begin(work(), asyncio.Task.cancel)) == "ended"
