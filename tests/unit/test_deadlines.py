"""A deadline ends what is late, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from providers.deadlines import Deadline
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
