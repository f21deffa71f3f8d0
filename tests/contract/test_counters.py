"""Both kinds of counters and of usage, the same assertions: in memory, and in a real Redis that many processes share.
Then what only the shared ones go through: other processes, a Redis that is gone, and what others wrote there.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.config.redis_address import RedisAddress
from proxy.store.redis_counters import RULES
from proxy.store.redis_store import RedisStore
from proxy.store.store import MemoryStore, Store, name_of
from proxy.values.meters import PRUNE_EVERY, Charge, Charged, Meter, MeterStates
from proxy.values.usage_rows import FIGURES, RowName, UsageTable
from tests.fakes.redis_server import MISSING, PATIENCE, PROGRAM, RedisServer

real = pytest.mark.skipif(PROGRAM is None, reason=MISSING)

PAUSE = 0.1
REQUESTS = Meter("alice", "requests minute ", 5)
TOKENS = Meter("alice", "tokens day 2027-01-01", 100, kept=2 * 86_400)
ALONE = "limits: Redis cannot be asked, so this process counts alone until it is back"
MONDAY, TUESDAY = "2027-01-04", "2027-01-05"


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@asynccontextmanager
async def opened(redis: RedisServer) -> AsyncIterator[RedisStore]:
    store = RedisStore(RedisAddress("127.0.0.1", redis.port), pause=PAUSE, timeout=PATIENCE)
    try:
        yield store
    finally:
        await store.aclose()


@pytest.fixture(params=["memory", pytest.param("redis", marks=real)])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
        return
    server = request.getfixturevalue("redis")
    server.ask("FLUSHALL")
    async with opened(server) as store:
        yield store


async def ask(store: Store, owed: float = 0.0) -> Charged:
    return await store.counters.charge([Charge(REQUESTS, need=1, take=1), Charge(TOKENS, owed=owed, need=1)])


def figures(**named: float) -> list[float]:
    return [named.get(figure, 0.0) for figure in FIGURES]


# Counters


async def test_a_request_is_taken_while_there_is_room_everywhere(store: Store) -> None:
    assert [(await ask(store)).taken for _ in range(7)] == [True] * 5 + [False] * 2


async def test_what_is_refused_in_one_place_is_taken_nowhere(store: Store) -> None:
    assert (await ask(store, owed=100)).taken is False
    refused = await ask(store)
    assert not refused.taken
    assert list(refused.rooms) == pytest.approx([5, 0])


async def test_what_is_owed_counts_in_any_case(store: Store) -> None:
    assert (await ask(store, owed=30)).rooms[1] == 70
    assert (await ask(store, owed=90)).rooms[1] == -20


async def test_many_at_once_get_no_more_than_there_is(store: Store) -> None:
    answers = await asyncio.gather(*(ask(store) for _ in range(200)))
    assert sum(answer.taken for answer in answers) == 5


async def test_owners_are_apart(store: Store) -> None:
    for _ in range(6):
        await ask(store)
    other = Meter("bob", REQUESTS.name, 5)
    assert (await store.counters.charge([Charge(other, need=1, take=1)])).taken


@real
async def test_many_processes_hold_one_limit(redis: RedisServer) -> None:
    redis.ask("FLUSHALL")
    async with opened(redis) as one, opened(redis) as two, opened(redis) as three:
        answers = await asyncio.gather(*(ask(store) for store in (one, two, three) * 20))
    assert sum(answer.taken for answer in answers) == 5


@real
async def test_a_request_asks_redis_once(redis: RedisServer) -> None:
    redis.ask("FLUSHALL")
    async with opened(redis) as store:
        await ask(store)
        before = redis.statistics("commandstats")
        for _ in range(10):
            await ask(store)
        after = redis.statistics("commandstats")
    assert calls(after, "eval") - calls(before, "eval") == 10


def calls(statistics: dict[str, str], command: str) -> int:
    return int(statistics[f"cmdstat_{command}"].partition(",")[0].removeprefix("calls="))


@real
async def test_no_name_of_a_key_stands_in_redis_and_all_of_it_ends(redis: RedisServer) -> None:
    redis.ask("FLUSHALL")
    async with opened(redis) as store:
        await ask(store, owed=1)
    names = redis.names()
    assert len(names) == 2
    assert not [name for name in names if "alice" in name]
    assert all(0 < int(redis.ask("TTL", name)[1:]) <= 2 * 86_400 for name in names)


@real
@pytest.mark.parametrize("rubbish", ["", "nonsense", "nan nan", "-5 1", "1e999999 1", "5", "5 5 5"])
async def test_what_others_wrote_counts_as_nothing(redis: RedisServer, rubbish: str) -> None:
    redis.ask("FLUSHALL")
    redis.ask("SET", name_of("limit", REQUESTS.owner, REQUESTS.name), rubbish)
    async with opened(redis) as store:
        assert [(await ask(store)).taken for _ in range(6)] == [True] * 5 + [False]


@real
async def test_a_thing_of_another_kind_counts_as_nothing(redis: RedisServer) -> None:
    redis.ask("FLUSHALL")
    redis.ask("HSET", name_of("limit", REQUESTS.owner, REQUESTS.name), "a", "b")
    redis.ask("SET", name_of("usage", "", MONDAY), "rubbish")
    async with opened(redis) as store:
        assert [(await ask(store)).taken for _ in range(6)] == [True] * 5 + [False]
        assert await store.usage.add({RowName(MONDAY, "alice", "m"): figures(requests=1)}, "batch")
        assert await store.usage.read([MONDAY]) == {RowName(MONDAY, "alice", "m"): figures(requests=1)}


@real
async def test_while_redis_is_gone_a_process_goes_on_from_what_it_saw_and_says_so_once(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    redis.ask("FLUSHALL")
    async with opened(redis) as store:
        assert [(await ask(store, owed=10)).taken for _ in range(3)] == [True] * 3
        redis.kill()
        try:
            assert [(await ask(store, owed=10)).taken for _ in range(3)] == [True, True, False]
        finally:
            redis.start()
        await back(store)
        await store.counters.flush()
        assert [message for message in caplog.messages if message.startswith("limits")] == [ALONE]
        (room,) = (await store.counters.charge([Charge(TOKENS)])).rooms
        assert room == 100 - 30, "Redis had lost the first three, and was brought the others"
        redis.kill()
        try:
            await ask(store)
        finally:
            redis.start()
        assert [message for message in caplog.messages if message.startswith("limits")] == [ALONE] * 2


async def back(store: RedisStore) -> None:
    async with asyncio.timeout(20):
        while not store.sure:
            await asyncio.sleep(PAUSE / 4)
            await store.get("turn", "owner", "any")


class Script:
    """The script of the shared counters, by a clock of our own."""

    CLOCK = "local now = tonumber(table.remove(ARGV))"

    def __init__(self, redis: RedisServer) -> None:
        self._redis = redis

    def charge(self, charges: list[Charge], now: float) -> Charged:
        names = [charge.meter.name for charge in charges]
        numbers = [n for m, owed, need, take in charges for n in (m.most, m.kept, owed, need, take)]
        command = ["EVAL", self.CLOCK + RULES, str(len(names)), *names, *map(repr, numbers), repr(now)]
        with socket.create_connection(("127.0.0.1", self._redis.port), 5) as link, link.makefile("rwb") as wire:
            wire.write(f"*{len(command)}\r\n".encode())
            wire.writelines(b"$%d\r\n%s\r\n" % (len(part.encode()), part.encode()) for part in command)
            wire.flush()
            lines = [wire.readline().strip() for _ in range(2 + 2 * len(names))]
        assert lines[0] == b"*%d" % (len(names) + 1), lines
        return Charged(lines[1] == b":1", [float(line) for line in lines[3::2]])


amounts = st.sampled_from([0.0, 0.0, 1.0, 2.5, 40.0, 1e-9])
charged = st.tuples(amounts, st.sampled_from([0.0, 1.0, 1e-12]), st.booleans())
steps = st.lists(
    st.tuples(st.floats(-500, PRUNE_EVERY - 1), st.lists(charged, min_size=3, max_size=3)),  # until one forgets
    max_size=25,
)


@real
@given(steps)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
def test_the_script_and_the_machine_are_one(
    redis: RedisServer, steps: list[tuple[float, list[tuple[float, float, bool]]]]
) -> None:
    redis.ask("FLUSHALL")
    script, machine = Script(redis), MeterStates()
    machine.charge([], 1_800_000_000)
    meters = [Meter("a", "small", 3), Meter("a", "large", 60), Meter("a", "sum", 50, kept=10**6)]
    for moment, wanted in steps:
        now = 1_800_000_000 + round(moment, 3)
        charges = [
            Charge(meter, owed, need, need if takes and need >= 1 else 0.0)
            for meter, (owed, need, takes) in zip(meters, wanted, strict=True)
        ]
        ours, theirs = machine.charge(charges, now), script.charge(charges, now)
        assert ours.taken == theirs.taken
        assert list(ours.rooms) == pytest.approx(theirs.rooms, abs=1e-4)


# Usage


async def test_rows_add_up_by_day_key_and_model(store: Store) -> None:
    monday, tuesday = RowName(MONDAY, "alice", "m"), RowName(TUESDAY, "alice", "m")
    other = RowName(TUESDAY, 'bob "the" 1st', "vendor/ü:online")
    assert await store.usage.add({monday: figures(requests=1, input_tokens=10, cost=0.25)}, "1")
    assert await store.usage.add({monday: figures(requests=2, cost=0.5), tuesday: figures(failed=1)}, "2")
    assert await store.usage.add({other: figures(searches=3, pages=4)}, "3")
    assert await store.usage.read([MONDAY]) == {monday: figures(requests=3, input_tokens=10, cost=0.75)}
    assert await store.usage.read([MONDAY, TUESDAY, "2027-01-06"]) == {
        monday: figures(requests=3, input_tokens=10, cost=0.75),
        tuesday: figures(failed=1),
        other: figures(searches=3, pages=4),
    }


@real
async def test_a_batch_counts_once_and_many_processes_add_up(redis: RedisServer) -> None:
    redis.ask("FLUSHALL")
    row = RowName(MONDAY, "alice", "m")
    async with opened(redis) as one, opened(redis) as two:
        for name in ("1", "2", "1", "2", "1"):
            assert await one.usage.add({row: figures(requests=1)}, name)
        assert await two.usage.add({row: figures(requests=10)}, "3")
        assert await two.usage.read([MONDAY]) == {row: figures(requests=12)}
        for field in (b"nonsense", b"[1,2]", b'["a","b","nothing"]', b'["a","b","cost"]'):
            redis.ask("HSET", name_of("usage", "", MONDAY), field, b"inf")
        assert await two.usage.read([MONDAY]) == {row: figures(requests=12)}
        redis.kill()
        try:
            assert not await one.usage.add({row: figures(requests=1)}, "4")
            assert await one.usage.read([MONDAY]) is None
        finally:
            redis.start()


def test_the_table_of_one_process_has_an_end() -> None:
    table = UsageTable(most_rows=100)
    for number in range(300):
        table.add(RowName(f"day {number // 10:03}", f"key{number}", "m"), figures(requests=1))
    assert len(table) == 100
    assert next(table.rows(["day 029"]))[0].key == "key290"
    assert not list(table.rows(["day 000"]))
