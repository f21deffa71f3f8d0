"""Turns on the event loop, played in a time of their own: every piece of work says how long it takes, the clock moves
by that, and nothing depends on how busy this machine is. A request takes 1 ms of work and a refusal 0.2, as measured.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from proxy.serving.turns import Turns
from tests.fakes.clock import in_leaping_time

PATIENCE = 0.2
CAPACITY = 1000  # requests in a second
READ, HALF, REFUSE = 0.00005, 0.0005, 0.0002  # seconds


@dataclass
class Seen:
    served: list[float] = field(default_factory=list)  # how long each took
    refused: list[float] = field(default_factory=list)

    def median_refusal(self) -> float:
        return sorted(self.refused)[len(self.refused) // 2]

    def p99(self) -> float:
        return sorted(self.served)[int(len(self.served) * 0.99)]


class Server:
    def __init__(self) -> None:
        self.loop: Any = asyncio.get_running_loop()
        self.turns = Turns(PATIENCE, clock=self.loop.time)

    @property
    def now(self) -> float:
        return float(self.loop.time())

    def work(self, seconds: float) -> None:
        self.loop.now += seconds

    async def request(self, line: str, seen: Seen) -> float:
        """One request; how long its caller is sent away, 0 if it was served."""
        began = self.now
        self.work(READ)
        if not self.turns.open() and not await self.turns.start(line):
            self.work(REFUSE)
            seen.refused.append(self.now - began)
            return self.turns.time_away()
        self.turns.note_start()
        self.work(HALF)
        await asyncio.sleep(0.001)  # the model
        self.work(HALF)
        seen.served.append(self.now - began)
        return 0.0

    async def stream(self, line: str, pieces: int, seconds: float = 0.0002) -> None:
        for _ in range(pieces):
            self.work(seconds)
            if not self.turns.open():
                await self.turns.go_on(line)
            await asyncio.sleep(0)


async def clients(
    server: Server,
    line: str,
    count: int,
    seconds: float,
    *,
    settle: float = 0.0,
    heed: bool = False,
    think: float = 0.0,
) -> Seen:
    """So many, each of which asks again as soon as it has its answer. Who heeds stays away as long as it is told. What
    they see is noted after `settle` seconds."""
    seen, began = Seen(), server.now + settle

    async def client() -> None:
        await asyncio.sleep(random.random() * 0.1)
        while server.now < began + seconds:
            away = await server.request(line, seen if server.now >= began else Seen())
            await asyncio.sleep(away if away and heed else think)

    await asyncio.gather(*(client() for _ in range(count)))
    return seen


def played(main: Callable[[Server], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        return await main(Server())

    random.seed(1)
    return in_leaping_time(run())


def test_as_long_as_the_loop_keeps_up_everyone_goes_on_at_once() -> None:
    async def play(server: Server) -> None:
        for _ in range(100):
            assert server.turns.open()
            server.work(0.0005)
            await asyncio.sleep(0.001)
        assert server.turns.waiting == 0

    played(play)


def test_in_a_long_turn_the_rest_waits_for_the_next() -> None:
    async def play(server: Server) -> None:
        assert server.turns.open()
        server.work(0.02)
        assert not server.turns.open()
        waits = asyncio.create_task(server.turns.start("a"))
        assert await waits
        assert server.turns.open()

    played(play)


@pytest.mark.parametrize("before", [0.0, 0.001, 0.004, 0.0049, 0.0051, 0.007, 0.02])
def test_whenever_a_long_turn_begins_it_is_cut_after_the_same_time_or_half_of_it(before: float) -> None:
    async def play(server: Server) -> None:
        assert server.turns.open()
        await asyncio.sleep(before)
        began = server.now
        while server.turns.open():
            server.work(0.0001)
        assert 0.005 - 0.0002 < server.now - began < 0.01 + 0.0002

    played(play)


def test_while_nobody_waits_hardly_anything_is_asked_of_the_loop() -> None:
    async def play(server: Server) -> None:
        timers = set()
        for _ in range(1000):
            assert server.turns.open()
            timers.add(server.turns._timer)
            assert not server.turns._in_turn, "the end of this round was asked for"
            server.work(0.0001)
            await asyncio.sleep(0)
        assert len(timers) <= 20  # in a tenth of a second

    played(play)


def test_a_burst_is_served_whole_and_in_order() -> None:
    async def play(server: Server) -> None:
        seen = Seen()
        await asyncio.gather(*(server.request("a", seen) for _ in range(150)))
        assert (len(seen.served), seen.refused) == (150, [])

    played(play)


@pytest.mark.parametrize("heed", [False, True])
def test_ten_times_what_can_be_served_in_time_is_refused_soon_and_the_others_are_served_as_before(heed: bool) -> None:
    async def play(server: Server) -> None:
        at_capacity = await clients(server, "a", 16, 5)
        assert not at_capacity.refused
        seen = await clients(server, "a", 1600, 10, settle=3, heed=heed)
        assert len(seen.served) / 10 > 0.9 * len(at_capacity.served) / 5
        assert seen.p99() < 2 * at_capacity.p99()
        assert len(seen.refused) > 1000
        if heed:  # those who come back at once have nobody but themselves to wait for
            assert seen.median_refusal() < 0.05

    played(play)


def test_when_the_flood_is_over_everybody_is_served_again() -> None:
    async def play(server: Server) -> None:
        await clients(server, "a", 1600, 2, heed=True)
        await asyncio.sleep(10)
        seen = await clients(server, "a", 100, 2, heed=True)
        assert (len(seen.served) > 0.9 * CAPACITY * 2, seen.refused) == (True, [])

    played(play)


def test_as_many_as_can_be_served_in_time_are_not_refused_for_ever_after_an_overload() -> None:
    async def play(server: Server) -> None:
        flood = clients(server, "a", 1600, 2, heed=True)
        # They never leave the line empty.
        _, seen = await asyncio.gather(flood, clients(server, "a", 60, 3, settle=12, heed=True))
        assert (len(seen.served) > 0.9 * CAPACITY * 3, seen.refused) == (True, [])

    played(play)


@pytest.mark.parametrize("flood", ["requests", "streams"])
def test_one_who_keeps_the_loop_busy_keeps_nobody_else_waiting(flood: str) -> None:
    async def play(server: Server) -> None:
        if flood == "streams":
            busy = [asyncio.create_task(server.stream("a", 10**6)) for _ in range(500)]
        else:
            busy = [asyncio.create_task(clients(server, "a", 500, 20))]  # type: ignore[arg-type]
        await asyncio.sleep(1)
        seen = await clients(server, "b", 2, 4, think=0.01)
        assert seen.p99() < 0.1
        assert not seen.refused
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)

    played(play)


def test_streams_that_keep_the_loop_busy_let_nobody_of_their_own_line_in() -> None:
    async def play(server: Server) -> None:
        busy = [asyncio.create_task(server.stream("a", 10**6, 0.001)) for _ in range(50)]
        await asyncio.sleep(0.5)
        seen = await clients(server, "a", 20, 2)
        assert len(seen.refused) > 10 * len(seen.served)
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)

    played(play)


def test_that_the_loop_stood_still_is_nobodys_waiting() -> None:
    async def play(server: Server) -> None:
        seen = Seen()
        asked = [asyncio.create_task(server.request("a", seen)) for _ in range(60)]
        await asyncio.sleep(0)  # all have come, some wait
        assert server.turns.waiting
        server.work(0.5)  # somebody stopped the process, or a page took long
        await asyncio.gather(*asked)
        assert (len(seen.served), seen.refused) == (60, [])

    played(play)


@pytest.mark.parametrize("seed", range(10))
def test_whenever_requests_are_cancelled_nobody_is_left_in_a_line(seed: int) -> None:
    dice = random.Random(seed)

    async def play(server: Server) -> None:
        seen, tasks = Seen(), list[asyncio.Task[Any]]()
        for _ in range(400):
            line = dice.choice("abc")
            asked = server.request(line, seen) if dice.random() < 0.6 else server.stream(line, 5, 0.002)
            tasks.append(asyncio.create_task(asked))
            if dice.random() < 0.1:
                await asyncio.sleep(dice.random() * 0.01)
            if dice.random() < 0.4:
                dice.choice(tasks).cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(ended, float | None | asyncio.CancelledError)
        assert server.turns.waiting == 0
        await asyncio.sleep(0.1)
        assert server.turns.open()

    played(play)
