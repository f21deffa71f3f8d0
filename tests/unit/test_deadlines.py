"""A deadline ends what is late, and nothing else."""

from __future__ import annotations

import asyncio
import math

import pytest

from providers.deadlines import Deadline, time_limit
from tests.fakes.clock import in_leaping_time


async def waits(limit: float, length: float) -> None:
    loop = asyncio.get_running_loop()
    with Deadline(loop, loop.time() + limit):
        await asyncio.sleep(length)


def test_what_is_late_is_ended_and_its_task_goes_on() -> None:
    async def late() -> int:
        with pytest.raises(TimeoutError):
            await waits(1, 2)
        await asyncio.sleep(1)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    assert in_leaping_time(late()) == 0


def test_what_is_in_time_is_left_alone() -> None:
    async def early() -> None:
        await waits(2, 1)
        await asyncio.sleep(3)

    in_leaping_time(early())


def test_a_time_that_is_over_ends_the_first_wait() -> None:
    async def over() -> None:
        with pytest.raises(TimeoutError):
            await waits(-1, 1)

    in_leaping_time(over())


def test_who_is_cancelled_is_not_late() -> None:
    async def cancelled(after: float) -> None:
        work = asyncio.create_task(waits(1, 2))
        await asyncio.sleep(after)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    in_leaping_time(cancelled(0.5))


def test_nor_is_who_is_cancelled_in_the_moment_in_which_its_time_is_over() -> None:
    async def both() -> None:
        work = asyncio.create_task(waits(1, 2))
        asyncio.get_running_loop().call_at(asyncio.get_running_loop().time() + 1, work.cancel)
        with pytest.raises(asyncio.CancelledError):
            await work

    in_leaping_time(both())


def test_an_error_within_stays_what_it_is() -> None:
    async def fails() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(ValueError, match="wrong"), Deadline(loop, loop.time() + 1):
            raise ValueError("wrong")

    in_leaping_time(fails())


def test_the_inner_of_two_is_the_one_that_is_late() -> None:
    async def nested() -> None:
        loop = asyncio.get_running_loop()
        with Deadline(loop, loop.time() + 5):
            with pytest.raises(TimeoutError):
                await waits(1, 2)
            await asyncio.sleep(1)

    in_leaping_time(nested())


def test_each_of_many_ends_at_its_own_time() -> None:
    async def ended(limit: float) -> float:
        with pytest.raises(TimeoutError):
            await waits(limit, 100)
        return asyncio.get_running_loop().time()

    async def many() -> list[float]:
        return await asyncio.gather(*map(ended, (30, 10, 20, 10, 40)))

    assert in_leaping_time(many()) == [30, 10, 20, 10, 40]


def test_one_that_was_in_time_does_not_hide_those_behind_it() -> None:
    async def one_after_the_other() -> float:
        await waits(1, 0.5)
        with pytest.raises(TimeoutError):
            await waits(2, 9)  # begun while the timer was set for the first
        await waits(3, 1)
        await asyncio.sleep(5)  # it rings for nobody
        with pytest.raises(TimeoutError):
            await waits(1, 9)
        return asyncio.get_running_loop().time()

    assert in_leaping_time(one_after_the_other()) == 0.5 + 2 + 1 + 5 + 1


def test_a_block_without_an_end_is_none_that_is_late() -> None:
    async def endless() -> None:
        with Deadline(asyncio.get_running_loop(), math.inf):
            await asyncio.sleep(1000)

    in_leaping_time(endless())


# Whose timeout it is


@pytest.mark.parametrize(("length", "expired"), [(2.0, True), (0.5, False)])
def test_a_deadline_says_whether_it_was_the_one(length: float, expired: bool) -> None:
    async def run() -> bool:
        loop = asyncio.get_running_loop()
        deadline = Deadline(loop, loop.time() + 1)
        try:
            with deadline:
                await asyncio.sleep(length)
                raise TimeoutError("a socket's")
        except TimeoutError:
            return deadline.expired

    assert in_leaping_time(run()) is expired


def test_a_time_limit_raises_what_it_was_given_and_lets_others_pass() -> None:
    async def run(seconds: float) -> None:
        async with time_limit(1, LookupError("late")):
            await asyncio.sleep(seconds)
            raise TimeoutError("a socket's")

    with pytest.raises(LookupError, match="late"):
        in_leaping_time(run(2))
    with pytest.raises(TimeoutError, match="a socket's"):
        in_leaping_time(run(0.5))


def test_a_cancellation_from_outside_passes_a_time_limit() -> None:
    async def run() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_later(0.5, task.cancel)
        async with time_limit(1, LookupError("late")):
            await asyncio.sleep(2)

    with pytest.raises(asyncio.CancelledError):
        in_leaping_time(run())
