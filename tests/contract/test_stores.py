"""Both stores, the same assertions: what is kept, renewed, counted. Then what only the shared one goes through: large
values on a slow line, and a Redis that is gone between two commands.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from proxy.config.redis_address import RedisAddress
from proxy.store import store as stores
from proxy.store.redis_store import RedisStore
from proxy.store.store import MemoryStore, Store, name_of
from tests.fakes.redis_server import MISSING, PATIENCE, PROGRAM, RedisServer
from tests.fakes.slow_link import SlowLink

real = pytest.mark.skipif(PROGRAM is None, reason=MISSING)

PAUSE = 0.1
CHILDREN = ("children", "owner", "parent")
MIB = 1 << 20


def noise(size: int) -> bytes:
    """What cannot be packed."""
    return random.Random(size).randbytes(size)


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@asynccontextmanager
async def opened(port: int, **times: float) -> AsyncIterator[RedisStore]:
    store = RedisStore(RedisAddress("127.0.0.1", port), **{"pause": PAUSE, "timeout": PATIENCE, **times})
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


async def until(met: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await met():
            await asyncio.sleep(0.01)


async def lost(store: Store, kind: str, key: str) -> None:
    """Waits until it is too old."""

    async def gone() -> bool:
        return await store.get(kind, "owner", key) is None

    await until(gone)


async def found_again(store: RedisStore) -> None:
    """Waits until a command has found Redis."""

    async def sure() -> bool:
        await store.get("turn", "owner", "any")
        return store.sure

    await until(sure)


async def test_what_is_moved_has_another_owner_and_the_life_that_it_had(store: Store) -> None:
    await store.put("response", "former", "a", b"1", 60)
    await store.put("response", "former", "b", b"2", 60)
    await store.put("response", "owner", "b", b"newer", 60)
    await store.put("response", "former", "brief", b"3", 0.3)
    await store.add_member("children", "former", "a", "b", 60)
    names = [("response", key) for key in ("a", "b", "brief", "nothing")]
    await store.move("former", "owner", [*names, ("children", "a")], group="a")
    assert await store.get_many("response", "owner", ["a", "b", "nothing"]) == {"a": b"1", "b": b"newer"}
    assert await store.get_many("response", "former", ["a", "b", "brief"]) == {"b": b"2"}
    assert await store.count_members("children", "owner", "a") == 1
    assert await store.count_members("children", "former", "a") == 0
    await lost(store, "response", "brief")
    await store.move("former", "owner", [("response", str(number)) for number in range(1001)])
    assert await store.get("response", "owner", "a") == b"1"


# What is kept


async def test_put_says_whether_it_is_kept(store: Store) -> None:
    values = [
        (b"v", 60.0),
        (bytes(stores.MAX_VALUE), 60.0),
        (bytes(stores.MAX_VALUE + 1), 60.0),
        (b"v", 0.0),
        (b"v", -1.0),
    ]
    results = [await store.put("turn", "owner", str(at), *value, group="g") for at, value in enumerate(values)]
    assert results == [True, True, False, False, False]
    assert list(await store.get_many("turn", "owner", ["0", "1", "2", "3", "4"])) == ["0", "1"]


async def test_a_value_of_15_mib_is_kept_and_given_back(store: Store) -> None:
    value = noise(15 * MIB)
    assert await store.put("turn", "owner", "large", value, 60)
    assert await store.put("turn", "owner", "small", b"v", 60)
    assert await store.get("turn", "owner", "large") == value
    assert await store.get_many("turn", "owner", ["none", "small", "large"]) == {"small": b"v", "large": value}
    assert store.sure


async def test_many_values_that_are_large_together_come_in_the_order_of_their_keys(store: Store) -> None:
    values = {str(at): noise(at * 300_000) for at in range(1, 12)}
    for key, value in values.items():
        assert await store.put("turn", "owner", key, value, 60)
    keys = [*reversed(values), "none", "3"]
    found = await store.get_many("turn", "owner", keys)
    assert found == values
    assert list(found) == [*reversed(values)]


async def test_thousands_of_names_are_read_and_renewed(store: Store) -> None:
    keys = [str(number) for number in range(1200)]
    await asyncio.gather(*(store.put("turn", "owner", key, b"v", 30) for key in keys))
    await store.renew("owner", [("turn", key) for key in keys], 60)
    assert len(await store.get_many("turn", "owner", keys)) == 1200
    assert await store.get_many("turn", "owner", []) == {}


# What is renewed


async def test_what_is_renewed_lives_on_and_the_rest_does_not(store: Store) -> None:
    for kind, key in (("turn", "a"), ("item", "b"), ("turn", "c"), ("turn", "unharmed")):
        await store.put(kind, "owner", key, b"v", 1)
    await store.put("turn", "other", "a", b"v", 1)
    await store.add_member(*CHILDREN, "child", 1)
    await store.renew("owner", [("turn", "a"), ("item", "b"), ("children", "parent"), ("turn", "none")], 60)
    await store.renew("owner", [("turn", "unharmed")], 0)
    assert await store.get("turn", "owner", "unharmed") == b"v"
    await lost(store, "turn", "c")
    await lost(store, "turn", "unharmed")
    assert await store.get("turn", "owner", "a") == b"v"
    assert await store.get("item", "owner", "b") == b"v"
    assert await store.count_members(*CHILDREN) == 1
    assert await store.get("turn", "owner", "none") is None
    assert await store.get("turn", "other", "a") is None
    await store.renew("owner", [], 60)


async def test_what_is_renewed_lives_no_longer_than_that(store: Store) -> None:
    await store.put("turn", "owner", "a", b"v", 60)
    await store.renew("owner", [("turn", "a")], 0.1)
    await lost(store, "turn", "a")


# Sets


async def test_a_set_counts_its_members_until_the_last_is_removed(store: Store) -> None:
    assert await store.count_members(*CHILDREN) == 0
    assert await store.remove_member(*CHILDREN, "one") == 0
    for member in ("one", "two", "one", "größer"):
        await store.add_member(*CHILDREN, member, 60)
    assert await store.count_members(*CHILDREN) == 3
    assert await store.count_members("children", "other", "parent") == 0
    assert [await store.remove_member(*CHILDREN, member) for member in ("one", "one", "none")] == [2, 2, 2]
    assert [await store.remove_member(*CHILDREN, member) for member in ("größer", "two", "two")] == [1, 0, 0]
    assert not await store.delete(*CHILDREN), "an empty set is gone"


async def test_a_set_is_deleted_whole(store: Store) -> None:
    for member in ("one", "two"):
        await store.add_member(*CHILDREN, member, 60)
    assert [await store.delete(*CHILDREN) for _ in range(2)] == [True, False]
    assert await store.count_members(*CHILDREN) == 0


async def test_adding_renews_the_whole_set(store: Store) -> None:
    await store.add_member(*CHILDREN, "never", 0)
    assert await store.count_members(*CHILDREN) == 0
    await store.add_member(*CHILDREN, "one", 1)
    await store.add_member("children", "owner", "left", "one", 1)
    await store.add_member(*CHILDREN, "two", 60)

    async def too_old() -> bool:
        return not await store.count_members("children", "owner", "left")

    await until(too_old)
    assert await store.count_members(*CHILDREN) == 2
    await store.add_member(*CHILDREN, "three", 0.1)

    async def all_too_old() -> bool:
        return not await store.count_members(*CHILDREN)

    await until(all_too_old)


async def test_a_set_is_no_value_and_harms_none(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    await store.add_member(*CHILDREN, "one", 60)
    assert await store.get(*CHILDREN) is None
    assert await store.get_many("children", "owner", ["parent"]) == {}
    assert store.sure
    assert caplog.messages == []
    assert await store.put(*CHILDREN, b"v", 60)
    assert await store.get(*CHILDREN) == b"v"


async def test_sets_are_within_the_bounds_of_the_memory() -> None:
    memory = MemoryStore(max_size=17_000)
    await memory.put("turn", "owner", "a", b"v", 60)
    for number in range(100):
        await memory.add_member(*CHILDREN, f"member {number:03}", 60)
    assert await memory.get("turn", "owner", "a") is None
    assert await memory.count_members(*CHILDREN) == 100
    for number in range(100, 1000):
        await memory.add_member(*CHILDREN, f"member {number:03}", 60)
    assert 100 <= await memory.count_members(*CHILDREN) < 110, "it stays, with what it has"


# In Redis


@real
async def test_in_redis_nothing_is_kept_for_ever(redis: RedisServer) -> None:
    async with opened(redis.port) as store:
        await store.put("turn", "owner", "a", b"v", 60)
        await store.add_member(*CHILDREN, "one", math.inf)
        await store.renew("owner", [("turn", "a")], math.inf)
    for name in redis.names():
        assert 360 * 86_400 < int(redis.ask("TTL", name)[1:]) <= 366 * 86_400


@real
async def test_all_processes_see_the_same_members(redis: RedisServer) -> None:
    async with opened(redis.port) as one, opened(redis.port) as other:
        await one.add_member(*CHILDREN, "one", 60)
        await other.add_member(*CHILDREN, "other", 60)
        assert await one.count_members(*CHILDREN) == await other.count_members(*CHILDREN) == 2
        assert await one.remove_member(*CHILDREN, "other") == 1
        assert await other.remove_member(*CHILDREN, "one") == 0
        assert redis.names() == []


@real
async def test_what_is_too_large_to_be_ours_is_not_even_fetched(redis: RedisServer) -> None:
    async with opened(redis.port) as store:
        redis.ask("SETRANGE", name_of("turn", "owner", "foreign"), str(64 * MIB), "x")
        await store.put("turn", "owner", "ours", b"v", 60)
        assert await store.get_many("turn", "owner", ["foreign", "ours"]) == {"ours": b"v"}
        sent = int(redis.statistics("stats")["total_net_output_bytes"])
        assert sent < MIB


@real
async def test_a_redis_that_lets_nobody_run_scripts_still_gives_values(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    redis.ask("ACL", "SETUSER", "default", "-@scripting")
    async with opened(redis.port) as store:
        assert await store.put("turn", "owner", "a", b"v", 60)
        assert await store.get("turn", "owner", "a") == b"v"
        await store.renew("owner", [("turn", "a")], 120)
        await store.add_member(*CHILDREN, "one", 60)
        assert await store.count_members(*CHILDREN) == 1
        assert await store.remove_member(*CHILDREN, "one") == 1, "another process may have added some"
        assert store.sure
    assert len(caplog.messages) == 1


# Large values on a slow line


@real
async def test_a_large_value_may_take_longer_than_a_small_one(redis: RedisServer) -> None:
    value = noise(15 * MIB)
    async with SlowLink(redis.port, after=8 * MIB, pause=1.5) as link, opened(link.port, timeout=0.5) as store:
        assert await store.put("turn", "owner", "a", value, 60)
        assert store.sure
        assert await store.get("turn", "owner", "a") == value
        assert link.pauses == 2
        assert redis.names() == [name_of("turn", "owner", "a")]


@real
async def test_many_values_that_are_large_together_may_too(redis: RedisServer) -> None:
    values = {str(at): noise(MIB) for at in range(20)}
    async with opened(redis.port) as other:
        for key, value in values.items():
            await other.put("turn", "owner", key, value, 60)
    async with SlowLink(redis.port, after=8 * MIB, pause=1.5) as link, opened(link.port, timeout=0.5) as store:
        assert await store.get_many("turn", "owner", list(values)) == values
        assert link.pauses == 1
        carried = redis.statistics("commandstats")["cmdstat_mget"]
        assert carried.startswith("calls=2,"), "no more at once than one value may be"


@real
async def test_few_large_values_are_carried_at_once(redis: RedisServer) -> None:
    values = {str(at): noise(MIB + at) for at in range(1, 13)}
    async with opened(redis.port) as other:
        for key, value in values.items():
            await other.put("turn", "owner", key, value, 60)
    async with SlowLink(redis.port, after=MIB, pause=0.5) as link, opened(link.port) as store:
        found = await asyncio.gather(*(store.get("turn", "owner", key) for key in values))
        assert found == list(values.values())
        assert 1 <= link.pauses <= 4, "one for each connection that carried large values"


@real
async def test_nobody_waits_for_ever_for_a_large_value(redis: RedisServer) -> None:
    value = noise(2 * MIB)
    async with SlowLink(redis.port, after=MIB, pause=math.inf) as link, opened(link.port, timeout=0.5) as store:
        assert await asyncio.wait_for(store.put("turn", "owner", "a", value, 60), 30)
        assert not store.sure
        assert redis.names() == []
        assert await store.get("turn", "owner", "a") == value, "this process's own memory stands in"


# Without Redis


@real
async def test_a_group_has_a_meaning_while_memory_stands_in(redis: RedisServer) -> None:
    async with opened(redis.port) as store:
        redis.kill()
        value = noise(10 * MIB)
        kept = [await store.put("turn", "owner", str(at), value, 60, group="g") for at in range(8)]
        assert kept == [True] * 6 + [False] * 2
        assert await store.put("turn", "owner", "alone", value, 60)
        assert list(await store.get_many("turn", "owner", [*"01234567", "alone"])) == ["alone"]
        assert not store.sure


@real
async def test_when_redis_dies_between_adding_and_removing_nobody_counts_too_few(redis: RedisServer) -> None:
    async with opened(redis.port) as store:
        await store.add_member(*CHILDREN, "one", 60)
        redis.kill()
        assert await store.remove_member(*CHILDREN, "one") == 1, "what Redis holds is not known"
        assert await store.count_members(*CHILDREN) == 1
        for member in ("two", "three", "four"):
            await store.add_member(*CHILDREN, member, 60)
        assert await store.count_members(*CHILDREN) == 3
        assert await store.remove_member(*CHILDREN, "four") == 2
        await store.renew("owner", [("children", "parent")], 60)
        assert not store.sure
        redis.start()
        await found_again(store)
        assert await store.count_members(*CHILDREN) == 2, "Redis has forgotten, this process has not"
        async with opened(redis.port) as other:
            await other.add_member(*CHILDREN, "two", 60)
            await other.add_member(*CHILDREN, "five", 60)
            assert await store.count_members(*CHILDREN) == 3, "who is in both places counts once"
            await store.add_member(*CHILDREN, "two", 60)
            assert await other.remove_member(*CHILDREN, "two") == 1
            assert await store.count_members(*CHILDREN) == 2, "who was added again is in Redis alone"
            assert await store.remove_member(*CHILDREN, "five") == 1
            assert await store.remove_member(*CHILDREN, "three") == 0


@real
async def test_what_memory_holds_is_renewed_too(redis: RedisServer) -> None:
    async with opened(redis.port) as store:
        redis.ask("CONFIG", "SET", "maxmemory", "1")
        for key in ("renewed", "left"):
            await store.put("turn", "owner", key, b"v", 2)
        await store.add_member(*CHILDREN, "one", 2)
        await store.renew("owner", [("turn", "renewed")], 60)
        redis.ask("CONFIG", "SET", "maxmemory", "0")
        await store.add_member(*CHILDREN, "two", 60)
        assert redis.names() == [name_of(*CHILDREN)]
        await lost(store, "turn", "left")
        assert await store.get("turn", "owner", "renewed") == b"v"
        assert await store.count_members(*CHILDREN) == 2


@real
async def test_members_that_a_full_redis_refuses_are_counted(redis: RedisServer) -> None:
    async with opened(redis.port) as store:
        await store.put("turn", "owner", "a", b"v", 60)
        await store.add_member(*CHILDREN, "one", 60)
        redis.ask("CONFIG", "SET", "maxmemory", "1")
        await store.add_member(*CHILDREN, "two", 60)
        await store.renew("owner", [("turn", "a"), ("children", "parent")], 6000)
        assert store.sure
        assert int(redis.ask("TTL", name_of(*CHILDREN))[1:]) > 60
        assert await store.count_members(*CHILDREN) == 2
        assert await store.remove_member(*CHILDREN, "one") == 1
        assert await store.remove_member(*CHILDREN, "two") == 0
        assert await store.get("turn", "owner", "a") == b"v"
