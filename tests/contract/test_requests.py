"""Both stores of the last requests, the same assertions: in memory, and in a real Redis that many processes share. Then
what only the shared one goes through: a Redis that is gone, comes back, or holds what is not ours.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.config.redis_address import RedisAddress
from proxy.store.redis_requests import _NAMES
from proxy.store.redis_store import RedisStore
from proxy.store.store import MemoryStore, Store, encode
from proxy.values.request_records import KEPT_REQUESTS
from tests.fakes.redis_server import MISSING, PATIENCE, PROGRAM, RedisServer

real = pytest.mark.skipif(PROGRAM is None, reason=MISSING)
PAUSE = 0.05
NOW = time.time()


class Record:
    """A request that ended `number` seconds after the others."""

    def __init__(self, number: int, **said: Any) -> None:
        self.id = f"req_{number}"
        self.ended = NOW - 5000 + number
        self.asked = 0
        self._said = said

    def row(self) -> dict[str, Any]:
        self.asked += 1
        return {"id": self.id, **self._said}

    def steps(self) -> list[dict[str, Any]]:
        return [{"kind": "decided", "of": self.id}]


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@asynccontextmanager
async def opened(port: int) -> AsyncIterator[RedisStore]:
    store = RedisStore(RedisAddress("127.0.0.1", port), pause=PAUSE, timeout=PATIENCE)
    try:
        yield store
    finally:
        await store.aclose()


@pytest.fixture(params=["memory", pytest.param("redis", marks=real)])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
        return
    async with opened(request.getfixturevalue("redis").port) as store:
        yield store


async def ids(store: Store, most: int = KEPT_REQUESTS) -> list[str]:
    rows, complete = await store.requests.rows(most)
    assert complete
    return [row["id"] for row in rows]


async def test_nothing_is_there_at_first(store: Store) -> None:
    assert await store.requests.rows(10) == ([], True)
    assert await store.requests.find("req_1") == (None, True)
    await store.requests.flush()


async def test_the_newest_come_first_and_each_is_found(store: Store) -> None:
    for number in (1, 2, 3):
        store.requests.note(Record(number, model="größe"))
    assert await ids(store) == ["req_3", "req_2", "req_1"]
    assert await ids(store, 2) == ["req_3", "req_2"]
    row, complete = await store.requests.find("req_2")
    assert row == {"id": "req_2", "model": "größe", "steps": [{"kind": "decided", "of": "req_2"}]}
    assert complete
    assert await store.requests.find("req_9") == (None, True)


async def test_thousands_leave_the_last_of_them(store: Store) -> None:
    for number in range(3000):
        store.requests.note(Record(number))
        if number % 700 == 0:
            await store.requests.flush()
    assert await ids(store) == [f"req_{number}" for number in range(2999, 2999 - KEPT_REQUESTS, -1)]
    assert await store.requests.find("req_0") == (None, True)


async def test_what_is_weeks_old_is_not_shown(store: Store) -> None:
    old = Record(1)
    old.ended -= 30 * 86_400
    store.requests.note(old)
    store.requests.note(Record(2))
    assert await ids(store) == ["req_2"]
    assert await store.requests.find("req_1") == (None, True)
    assert (await store.requests.find("req_2"))[0] is not None


@real
async def test_another_process_does_not_find_what_is_a_week_old_either(redis: RedisServer) -> None:
    """What was written in time grows old in Redis while nobody writes anything behind it."""
    async with opened(redis.port) as writer, opened(redis.port) as reader:
        writer.requests.note(Record(1))
        writer.requests.note(Record(2))
        await writer.requests.flush()
        assert (await reader.requests.find("req_1"))[0] is not None
        redis.ask("ZADD", _NAMES[0], "XX", str(NOW - 7 * 86_400 - 60), "req_1")
        assert await reader.requests.find("req_1") == (None, True)
        assert await ids(reader) == ["req_2"]
        writer.requests.note(Record(3))
        await writer.requests.flush()
        assert redis.ask("ZCARD", _NAMES[0]) == b":2", "and the next to be written pushes it out"
        assert redis.ask("HLEN", _NAMES[1]) == redis.ask("HLEN", _NAMES[2]) == b":2"


async def test_nothing_is_made_of_a_request_while_it_is_noted(store: Store) -> None:
    record = Record(1)
    store.requests.note(record)
    assert record.asked == 0


@real
async def test_two_processes_show_one_list(redis: RedisServer) -> None:
    async with opened(redis.port) as one, opened(redis.port) as other:
        one.requests.note(Record(1))
        other.requests.note(Record(2))
        await one.requests.flush()
        await other.requests.flush()
        assert await ids(one) == await ids(other) == ["req_2", "req_1"]
        assert (await one.requests.find("req_2"))[0] == (await other.requests.find("req_2"))[0]


@real
async def test_what_is_gone_from_the_list_is_gone_from_redis(redis: RedisServer) -> None:
    async with opened(redis.port) as store:
        for number in range(KEPT_REQUESTS + 50):
            store.requests.note(Record(number))
            if number == KEPT_REQUESTS - 1:
                await store.requests.flush()
        await store.requests.flush()
        counts = [redis.ask("ZCARD", _NAMES[0]), redis.ask("HLEN", _NAMES[1]), redis.ask("HLEN", _NAMES[2])]
        assert counts == [b":%d" % KEPT_REQUESTS] * 3
        assert all(int(redis.ask("PTTL", name)[1:]) > 0 for name in _NAMES)


@real
async def test_while_redis_is_away_a_process_shows_its_own_and_brings_them_later(redis: RedisServer) -> None:
    async with opened(redis.port) as store:
        store.requests.note(Record(1))
        await store.requests.flush()
        redis.kill()
        store.requests.note(Record(2))
        await store.requests.flush()
        rows, complete = await store.requests.rows(10)
        assert ([row["id"] for row in rows], complete) == (["req_2", "req_1"], False)
        assert (await store.requests.find("req_2"))[0]
        assert await store.requests.find("req_9") == (None, False)
        redis.start()
        async with asyncio.timeout(10), opened(redis.port) as other:
            while await ids(other) != ["req_2"]:  # it lost what it held when it was killed
                await store.requests.flush()
                await asyncio.sleep(0.01)


@real
async def test_others_get_their_turn_while_hundreds_are_written(redis: RedisServer) -> None:
    turns, seen = 0, []

    class Heavy(Record):
        def steps(self) -> list[dict[str, Any]]:
            seen.append(turns)
            return super().steps()

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    async with opened(redis.port) as store:
        for number in range(KEPT_REQUESTS):
            store.requests.note(Heavy(number))
        await store.requests.flush()
    other.cancel()
    assert len(set(seen)) == KEPT_REQUESTS


@real
async def test_one_that_is_brought_twice_is_there_once(redis: RedisServer) -> None:
    async with opened(redis.port) as store, opened(redis.port) as same:
        record = Record(1)
        for one in (store, same):
            one.requests.note(record)
            await one.requests.flush()
        assert await ids(store) == ["req_1"]


@real
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_rubbish_in_redis_is_nothing(redis: RedisServer, place: int) -> None:
    redis.ask("SET", _NAMES[place], "rubbish")
    async with opened(redis.port) as store:
        assert await ids(store) == []
        assert await store.requests.find("req_1") == (None, True)
        store.requests.note(Record(1))
        assert await ids(store) == ["req_1"]


@real
@pytest.mark.parametrize("steps", [b"\x07", encode(b'[1, null, "step"]'), encode(b'{"kind": "decided"}')])
async def test_rows_that_nobody_can_read_are_left_out(redis: RedisServer, steps: bytes) -> None:
    async with opened(redis.port) as store:
        store.requests.note(Record(1))
        store.requests.note(Record(2))
        await store.requests.flush()
        redis.ask("HSET", _NAMES[1], "req_2", b"\x01{half")
        redis.ask("HSET", _NAMES[2], "req_1", steps)
    async with opened(redis.port) as other:
        assert await ids(other) == ["req_1"]
        assert await other.requests.find("req_1") == ({"id": "req_1", "steps": []}, True)
        assert await other.requests.find("req_2") == (None, True)
