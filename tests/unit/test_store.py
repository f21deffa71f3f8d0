"""The store in memory: what it keeps, for whom and how long; how things are written down; which URLs are taken."""

from __future__ import annotations

import asyncio
import logging
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.redis_address import RedisAddress
from proxy.store import store
from proxy.store.store import LogThrottle, MemoryStore, decode, encode, name_of, open_store

LARGE = store.MAX_VALUE + 1
NOISE = bytes(range(256)) * 3  # too small to be packed


# What is kept


async def test_what_was_put_is_there_until_it_is_deleted() -> None:
    memory = MemoryStore()
    assert await memory.get("turn", "o", "k") is None
    await memory.put("turn", "o", "k", b"one", 60)
    await memory.put("turn", "o", "k", b"two", 60)
    assert await memory.get("turn", "o", "k") == b"two"
    assert [await memory.delete("turn", "o", "k") for _ in range(2)] == [True, False]
    assert await memory.get("turn", "o", "k") is None
    assert memory.sure


async def test_kinds_owners_and_keys_are_apart() -> None:
    memory = MemoryStore()
    await memory.put("turn", "o", "k", b"v", 60)
    others = [("item", "o", "k"), ("turn", "p", "k"), ("turn", "", "k"), ("turn", "o", "kk"), ("turn", "", "ok")]
    assert [await memory.get(*other) for other in others] == [None] * 5
    assert not await memory.delete("turn", "p", "k")
    assert await memory.get("turn", "o", "k") == b"v"


async def test_nothing_outlives_its_time() -> None:
    memory = MemoryStore()
    await memory.put("turn", "o", "brief", b"v", 0.1)
    await memory.put("turn", "o", "long", b"v", float("inf"))
    await memory.put("turn", "o", "never", b"v", 0)
    assert await memory.get("turn", "o", "brief") == b"v"
    await asyncio.sleep(0.11)
    assert not await memory.delete("turn", "o", "brief")
    assert [await memory.get("turn", "o", key) for key in ("brief", "long", "never")] == [None, b"v", None]


async def test_the_memory_is_bounded_and_the_least_asked_for_goes_first() -> None:
    few = MemoryStore(max_entries=2)
    for key in ("a", "b", "a", "c"):
        await few.put("turn", "o", key, b"v", 60)
    assert [await few.get("turn", "o", key) for key in "abc"] == [b"v", None, b"v"]
    small = MemoryStore(max_size=4000)
    for number in range(50):
        await small.put("turn", "o", str(number), NOISE, 60)
    kept = [number for number in range(50) if await small.get("turn", "o", str(number))]
    assert kept[0] > 40
    assert kept == list(range(kept[0], 50))


async def test_what_is_too_large_is_not_kept_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    memory = MemoryStore()
    for _ in range(3):
        await memory.put("turn", "o", "k", bytes(LARGE), 60)
    await memory.put("turn", "o", "most", bytes(LARGE - 1), 60)
    assert await memory.get("turn", "o", "k") is None
    assert await memory.get("turn", "o", "most") == bytes(LARGE - 1)
    assert caplog.messages == [f"store: a turn of {LARGE} bytes is not kept, the limit is {LARGE - 1}"]


async def test_a_value_that_was_not_kept_leaves_the_old_one_alone() -> None:
    memory = MemoryStore(max_size=5000)
    assert await memory.put("turn", "o", "k", b"old", 60)
    refused = [(bytes(LARGE), 60.0), (random.Random(1).randbytes(9000), 60.0), (b"new", 0.0), (b"new", -1.0)]
    assert [await memory.put("turn", "o", "k", *new) for new in refused] == [False] * 4
    assert await memory.get("turn", "o", "k") == b"old"


async def test_every_memory_has_a_secret_of_its_own() -> None:
    one, other = MemoryStore(), MemoryStore()
    assert len(await one.secret()) == 32
    assert await one.secret() == await one.secret() != await other.secret()
    await one.aclose()


def test_a_complaint_is_made_seldom() -> None:
    assert [LogThrottle(0).due(), LogThrottle().due()] == [True, True]
    throttle = LogThrottle()
    assert [throttle.due() for _ in range(3)] == [True, False, False]


# How things are written down


@given(st.binary(max_size=3000) | st.binary(min_size=1, max_size=40).map(lambda part: part * 500))
def test_what_is_written_is_read(value: bytes) -> None:
    data = encode(value)
    assert decode(data) == value
    assert len(data) <= len(value) + 1


@given(st.binary(max_size=200).filter(lambda data: data[:1] != b"\x01") | st.binary().map(lambda data: b"\x02" + data))
def test_garbage_is_nothing(data: bytes) -> None:
    assert decode(data) is None


@given(st.binary(min_size=1, max_size=40), st.data())
def test_a_packed_value_that_was_cut_is_nothing(part: bytes, data: st.DataObject) -> None:
    whole = encode(part * 2000)
    assert whole[:1] == b"\x02"
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert decode(whole[:cut]) is None
    assert decode(whole + b"more") is None
    assert decode(b"\x03" + whole[1:]) is None


def test_a_small_thing_that_unfolds_into_a_huge_one_is_nothing() -> None:
    bomb = b"\x02" + zlib.compress(bytes(LARGE * 8), 9)
    assert len(bomb) < 200_000
    assert decode(bomb) is None
    assert decode(b"\x01" + bytes(LARGE)) is None


def test_large_values_are_packed_and_small_ones_are_not() -> None:
    assert encode(b"x" * 1023) == b"\x01" + b"x" * 1023
    assert len(encode(b"x" * 100_000)) < 1000


@given(*[st.tuples(st.text(max_size=8), st.text(max_size=8))] * 2)
def test_no_two_owners_and_keys_have_one_name(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (name_of("turn", *one) == name_of("turn", *other)) == (one == other)


def test_a_name_tells_neither_owner_nor_key() -> None:
    name = name_of("turn", "owner", "key")
    assert name.startswith("gw:1:turn:")
    assert "owner" not in name
    assert "key" not in name
    assert name_of("turn", "\ud800", "\udfff") != name


# Which URLs are taken


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://cache", RedisAddress("cache", 6379)),
        ("redis://cache:7000/", RedisAddress("cache", 7000)),
        ("valkey://cache:7000/3", RedisAddress("cache", 7000, 3)),
        ("rediss://[::1]:6380/0", RedisAddress("::1", 6380, tls=True)),
        ("redis://:p%40ss@cache", RedisAddress("cache", 6379, password="p@ss")),
        ("redis://me:p%2Fw@cache/1", RedisAddress("cache", 6379, 1, "me", "p/w")),
        ("REDIS://cache", RedisAddress("cache", 6379)),
    ],
)
def test_urls_that_are_taken(url: str, address: RedisAddress) -> None:
    assert RedisAddress.read(url) == address
    assert "p@ss" not in repr(RedisAddress.read(url))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "disk",
        "redis",
        "redis:",
        "redis://",
        "redis:///0",
        "redis://:canary@",
        "redis://cache:canary",
        "redis://cache:0",
        "redis://cache:70000",
        "redis://cache/canary",
        "redis://cache/0/1",
        "redis://cache/-1",
        "redis://cache?password=canary",
        "redis://:can#ary@cache",
        "redis://:can/ary@cache",
        "redis://[canary",
        "redis://cache canary",
        "unix:///canary.sock",
        "http://cache",
        " memory",
        "Memory",
    ],
)
def test_urls_that_are_refused_unseen(url: str) -> None:
    with pytest.raises(ValueError, match=r"^(must be|may end)") as caught:
        RedisAddress.read(url)
    assert "canary" not in str(caught.value)
    assert "ary" not in str(caught.value)


def test_memory_is_the_plain_one(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        assert isinstance(open_store("memory"), MemoryStore)
    assert caplog.messages == []
