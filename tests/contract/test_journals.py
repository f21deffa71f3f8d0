"""Journals in a real Redis, with two processes' worth of clients: one works, the other follows, cancels and claims.
What happens to them while Redis is silent, has lost everything, or lets nobody publish.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager

import pytest

from proxy.config.redis_address import RedisAddress
from proxy.store.journals import EVENTS_KEPT, JournalGone, JournalsAway, NobodyWorks
from proxy.store.redis_client import RedisClient
from proxy.store.redis_journals import RedisJournals
from proxy.store.store import name_of
from tests.fakes.redis_server import MISSING, PROGRAM, RedisServer

pytestmark = pytest.mark.skipif(PROGRAM is None, reason=MISSING)

FRAMES = [b"event: x\ndata: %d\n\n" % n for n in range(12)]
O, K = "owner", "resp_1"  # noqa: E741 whose, and which
LIST, LEASE = name_of("journal", O, K), name_of("lease", O, K)


def rest(number: int) -> bytes:
    return b"".join(FRAMES[number + 1 :])


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@asynccontextmanager
async def process(
    redis: RedisServer, *, lease: float = 30.0, look_every: float = 30.0, timeout: float = 1.0
) -> AsyncIterator[RedisJournals]:
    client = RedisClient(RedisAddress.read(redis.url), pause=0.1, timeout=timeout, on_back=lambda: None)
    journals = RedisJournals(client, pause=0.1, lease=lease, look_every=look_every)
    try:
        yield journals
    finally:
        await journals.aclose()
        await client.aclose()


@asynccontextmanager
async def two(
    redis: RedisServer, *, lease: float = 30.0, look_every: float = 30.0, timeout: float = 1.0
) -> AsyncIterator[tuple[RedisJournals, RedisJournals]]:
    async with (
        process(redis, lease=lease, look_every=look_every, timeout=timeout) as one,
        process(redis, lease=lease, look_every=look_every, timeout=timeout) as other,
    ):
        yield one, other


async def all_of(journals: RedisJournals, after: int = -1) -> bytes:
    async with asyncio.timeout(20), aclosing(journals.follow(O, K, after)) as frames:
        return b"".join([some async for some in frames])


async def halted(journals: RedisJournals, journal: object) -> None:
    async with asyncio.timeout(10):
        await journal.halt_asked.wait()  # type: ignore[attr-defined]


async def test_it_is_followed_from_elsewhere_from_every_number_on(redis: RedisServer) -> None:
    """Nobody looks by itself here: whoever follows must be told."""
    async with two(redis) as (one, other):
        journal = await one.open(O, K, FRAMES[0])
        early = [asyncio.create_task(all_of(other, after)) for after in range(-1, len(FRAMES))]
        for number, frame in enumerate(FRAMES[1:], 1):
            one.write(journal, frame, last=number == len(FRAMES) - 1)
            await asyncio.sleep(0.005)
        await one.close(journal)
        assert await asyncio.gather(*early) == [rest(after) for after in range(-1, len(FRAMES))]
        for after in range(-1, len(FRAMES)):
            assert await all_of(other, after) == await all_of(one, after) == rest(after)
        assert not await other.is_worked_on(O, K)
        assert 0 < int(redis.ask("PTTL", LIST).removeprefix(b":")) <= EVENTS_KEPT * 1000
        assert redis.ask("EXISTS", LEASE) == b":0"
        async with asyncio.timeout(10):
            while redis.ask("PUBSUB", "CHANNELS") != b"*0":  # nobody listens any more
                await asyncio.sleep(0.02)


async def test_what_nobody_has_opened(redis: RedisServer) -> None:
    async with process(redis) as one:
        with pytest.raises(JournalGone):
            await all_of(one)
        assert not await one.is_worked_on(O, K)
        await one.cancel(O, K)
        await one.write_end(O, K, lambda number: FRAMES[0])
        assert redis.ask("EXISTS", LIST) == b":0"


@pytest.mark.parametrize(
    "broken", [["SET", LIST, "x"], ["RPUSH", LIST, "x"], ["RPUSH", LIST, "x y"], ["RPUSH", LIST, " "]]
)
async def test_what_somebody_else_has_written_is_nothing(redis: RedisServer, broken: list[str]) -> None:
    redis.ask(*broken)
    async with process(redis) as one:
        with pytest.raises(JournalGone):
            await all_of(one)


async def test_large_pieces_come_over_too(redis: RedisServer) -> None:
    large = b"event: x\ndata: %b\n\n" % (b"y" * (3 << 20))
    async with two(redis) as (one, other):
        journal = await one.open(O, K, FRAMES[0])
        for _ in range(3):
            one.write(journal, large)
        await one.close(journal)
        assert await all_of(other) == FRAMES[0] + 3 * large


async def test_it_is_cancelled_from_elsewhere(redis: RedisServer) -> None:
    async with two(redis) as (one, other):
        journal = await one.open(O, K, FRAMES[0])
        assert await other.is_worked_on(O, K)
        await other.cancel("another owner", K)
        await other.cancel(O, K)
        await halted(one, journal)
        assert journal.halted == "cancelled"


async def test_where_nobody_may_publish_everybody_looks(redis: RedisServer) -> None:
    redis.ask("ACL", "SETUSER", "default", "resetchannels")
    async with two(redis, lease=3.0, look_every=0.05) as (one, other):
        journal = await one.open(O, K, FRAMES[0])
        following = asyncio.create_task(all_of(other))
        await other.cancel(O, K)
        await halted(one, journal)
        one.write(journal, rest(0))
        await one.close(journal)
        assert await following == rest(-1)


async def test_a_worker_that_died(redis: RedisServer) -> None:
    """Its lease runs out by itself; here it is taken away, as nobody wants to wait."""
    async with two(redis, look_every=0.05) as (one, other):
        one.write(await one.open(O, K, FRAMES[0]), FRAMES[1])
        async with asyncio.timeout(20), aclosing(other.follow(O, K, -1)) as frames:
            heard = b""
            while heard != FRAMES[0] + FRAMES[1]:  # at once, or one by one
                heard += await anext(frames)
            await one.aclose()  # from now on it says nothing
            assert 0 < int(redis.ask("PTTL", LEASE).removeprefix(b":")) <= 30_000
            redis.ask("DEL", LEASE)
            with pytest.raises(NobodyWorks):
                await anext(frames)
        assert not await other.is_worked_on(O, K)
        assert await other.claim_abandoned(O, K)
        assert not await other.claim_abandoned(O, K), "another one has seen it first"
        told: list[int] = []
        await other.write_end(O, K, lambda number: told.append(number) or FRAMES[2])  # type: ignore[func-returns-value]
        await other.write_end(O, K, lambda number: FRAMES[3])
        assert told == [2]
        assert await all_of(other) == b"".join(FRAMES[:3])


async def test_a_worker_lives_as_long_as_it_says_so(redis: RedisServer) -> None:
    async with two(redis, lease=3.0) as (one, other):
        journal = await one.open(O, K, FRAMES[0])
        await renewed(redis)
        assert await other.is_worked_on(O, K)
        assert not await other.claim_abandoned(O, K)
        await one.close(journal)


async def renewed(redis: RedisServer) -> None:
    """Waits until the lease is longer than it was a moment ago."""
    async with asyncio.timeout(20):
        before, now = 0, 0
        while now <= before or not before:
            await asyncio.sleep(0.02)
            before, now = now, int(redis.ask("PTTL", LEASE).removeprefix(b":"))


async def test_who_waits_asks_nothing(redis: RedisServer) -> None:
    """Ten follow an answer that says nothing, over one connection: while its worker renews the lease, nobody reads."""
    async with two(redis, lease=3.0) as (one, other):
        journal = await one.open(O, K, FRAMES[0])
        following = [asyncio.create_task(all_of(other)) for _ in range(10)]
        async with asyncio.timeout(20):
            while reads(redis) < 20:  # each has read what there is, and then nothing
                await asyncio.sleep(0.02)
            while redis.ask("PUBLISH", LIST, "") != b":1":
                await asyncio.sleep(0.02)
            while await reads_in_two_renewals(redis):  # until they have seen that this was nothing
                pass
        one.write(journal, FRAMES[1])
        await one.close(journal)
        assert await asyncio.gather(*following) == 10 * [FRAMES[0] + FRAMES[1]]


async def reads_in_two_renewals(redis: RedisServer) -> int:
    before = reads(redis)
    await renewed(redis)
    await renewed(redis)
    return reads(redis) - before


def reads(redis: RedisServer) -> int:
    """How often anybody has looked into a journal, which begins with its length."""
    counted = re.match("calls=([0-9]+),", redis.statistics("commandstats").get("cmdstat_llen", ""))
    return int(counted[1]) if counted else 0


async def test_a_worker_that_was_taken_for_dead_hears_so(redis: RedisServer) -> None:
    async with two(redis, lease=0.6) as (one, other):
        journal = await one.open(O, K, FRAMES[0])
        redis.ask("SET", LEASE, "abandoned")
        await halted(one, journal)
        assert journal.halted == "lost"
        one.write(journal, FRAMES[1], last=True)
        await one.close(journal)
        await other.write_end(O, K, lambda number: FRAMES[number])
        assert await all_of(other) == FRAMES[0] + FRAMES[1]


async def test_nothing_comes_behind_an_end_that_was_written_over_a_workers_head(redis: RedisServer) -> None:
    """It has more to say when it goes on, and an end of its own."""
    async with two(redis) as (one, other):
        journal = await one.open(O, K, FRAMES[0])

        def last_frames(number: int) -> bytes:
            if number == 1:
                one.write(journal, FRAMES[1])  # too late to be counted
            return FRAMES[5]

        await other.write_end(O, K, last_frames)
        one.write(journal, FRAMES[2], last=True)
        await one.close(journal)
        seen = await all_of(other)
        assert seen.replace(FRAMES[1], b"") == FRAMES[0] + FRAMES[5]  # it may have come first: then it counts
        assert not await other.is_worked_on(O, K)


@pytest.mark.parametrize("over", [False, True], ids=["a_piece", "its_end"])
async def test_what_a_worker_brings_while_its_end_is_written(redis: RedisServer, over: bool) -> None:
    """`write_end` asks for the last frames between its look and its write: just then something arrives."""
    async with two(redis) as (one, other):
        journal = await one.open(O, K, FRAMES[0])

        def last_frames(number: int) -> bytes:
            if number == 1:
                redis.ask("RPUSH", LIST, "1 " + FRAMES[1].decode(), *([""] if over else []))
            return FRAMES[number]

        await other.write_end(O, K, last_frames)
        assert await all_of(other) == b"".join(FRAMES[: 2 if over else 3])
        await one.close(journal)


async def test_a_silent_redis_stops_no_work_and_hears_all_of_it_later(redis: RedisServer) -> None:
    async with two(redis, lease=1.2, timeout=0.2) as (one, other):
        journal = await one.open(O, K, FRAMES[0])
        redis.freeze()
        for frame in FRAMES[1:6]:
            one.write(journal, frame)
        with pytest.raises(JournalsAway):
            await all_of(other)
        with pytest.raises(JournalsAway):
            await other.open(O, "another", FRAMES[0])
        for frame in FRAMES[6:]:
            one.write(journal, frame)
        async with asyncio.timeout(10):
            await one.close(journal)
        assert await all_of(one) == rest(-1)
        redis.thaw()
        async with asyncio.timeout(10):
            while await found(other) != rest(-1):
                await asyncio.sleep(0.05)


async def found(journals: RedisJournals) -> bytes:
    try:
        async with asyncio.timeout(1):
            return await all_of(journals)
    except (JournalsAway, JournalGone, NobodyWorks, TimeoutError):
        return b""


async def test_an_end_that_must_wait(redis: RedisServer) -> None:
    """Others must not see it before they can find what was made."""
    async with two(redis, lease=3.0, look_every=0.05) as (one, other):
        journal = await one.open(O, K, FRAMES[0])
        journal.settled = False
        one.write(journal, FRAMES[1], last=True)
        await one.close(journal)
        following = asyncio.create_task(all_of(other))
        await renewed(redis)
        assert await other.is_worked_on(O, K)
        assert not following.done()
        journal.settled = True
        journal.notify()
        assert await following == FRAMES[0] + FRAMES[1]


async def test_a_redis_that_has_lost_everything(redis: RedisServer) -> None:
    async with two(redis, look_every=0.05) as (one, other):
        journal = await one.open(O, K, FRAMES[0])
        async with asyncio.timeout(20), aclosing(other.follow(O, K, -1)) as frames:
            assert await anext(frames) == FRAMES[0]
            redis.kill()
            with pytest.raises((JournalsAway, JournalGone, NobodyWorks)):
                await anext(frames)
        redis.start()
        one.write(journal, FRAMES[1], last=True)
        await one.close(journal)
        async with asyncio.timeout(10):
            while await found(other) != FRAMES[1]:  # the end, at least
                await asyncio.sleep(0.05)


async def test_news_are_heard_again_after_redis_was_away(redis: RedisServer) -> None:
    async with two(redis, lease=0.6) as (one, other):
        first = await one.open(O, K, FRAMES[0])
        await one.close(first)
        assert await all_of(other) == FRAMES[0]
        redis.kill()
        redis.start()
        async with asyncio.timeout(20):
            while True:
                try:
                    journal = await one.open(O, K, FRAMES[0])
                    break
                except JournalsAway:
                    await asyncio.sleep(0.05)
            while not await is_there(other):
                await asyncio.sleep(0.05)
        async with asyncio.timeout(20), aclosing(other.follow(O, K, -1)) as frames:
            assert await anext(frames) == FRAMES[0]
            one.write(journal, FRAMES[1])
            assert await anext(frames) == FRAMES[1]
        await one.close(journal)


async def is_there(journals: RedisJournals) -> bool:
    try:
        return await journals.is_worked_on(O, K)
    except JournalsAway:
        return False
