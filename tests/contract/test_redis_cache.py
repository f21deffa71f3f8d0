"""The provider cache of many processes on one real Redis: equal questions cost one call, whoever asks and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers import errors
from providers.base import Page, SearchQuery, SearchResult, SearchResults
from providers.chain import AllFailed, Found, ReadChain, SearchChain
from providers.gateway import ProviderGateway
from providers.settings import CacheSettings
from providers.shared import SharedCache, SharedFlight, decode, encode
from proxy.config.redis_address import RedisAddress
from proxy.config.settings import Config
from proxy.house import House
from proxy.store.redis_store import RedisStore, SharedProviderCache
from tests.fakes.config import config
from tests.fakes.providers import HIT, Engine, Gate, until
from tests.fakes.redis_server import MISSING, PATIENCE, PROGRAM, RedisServer

real = pytest.mark.skipif(PROGRAM is None, reason=MISSING)

QUERY = SearchQuery("q")
URL = "https://example.org/a"
KEPT = CacheSettings()


class Process:
    """What one process has: its own store on the common Redis, its own gateway, chains over the same engine."""

    def __init__(self, store: RedisStore, engine: Engine, cache: CacheSettings, said: str, private: bool) -> None:
        self.store = store
        shared = SharedProviderCache(store, said)
        gateway = ProviderGateway(cache=cache, shared=shared)
        member = engine.named(private=private)
        self.search = SearchChain([member], gateway=gateway)
        self.read = ReadChain([member], gateway=gateway)
        self.shelf: SharedCache = shared


@asynccontextmanager
async def processes(
    redis: RedisServer,
    engine: Engine,
    number: int = 2,
    *,
    cache: CacheSettings = KEPT,
    said: str = "",
    private: bool = False,
) -> AsyncIterator[list[Process]]:
    stores = [RedisStore(RedisAddress.read(redis.url), pause=0.1, timeout=PATIENCE) for _ in range(number)]
    try:
        yield [Process(store, engine, cache, said, private) for store in stores]
    finally:
        for store in stores:
            await store.aclose()


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


# One after the other


@real
async def test_what_one_process_found_another_need_not_search_for(redis: RedisServer) -> None:
    engine = Engine([replace(HIT, date="2026-01-02"), SearchResult("B", "https://example.org/b", "ü \u2028 🦜")])
    async with processes(redis, engine, 3) as (one, two, three):
        fresh = await one.search.search(QUERY)
        await asyncio.sleep(0.05)
        kept = [await process.search.search(QUERY) for process in (two, three, two)]
    assert fresh.age is None
    assert [replace(found, age=None) for found in kept] == [fresh] * 3
    assert all(found.age is not None and 0.04 < found.age < 60 for found in kept)
    assert len(engine.asked) == 1


@real
async def test_what_one_process_read_another_need_not_read(redis: RedisServer) -> None:
    engine = Engine(Page(URL, "Title", "words " * 5000, "2026-01-02", ("https://example.org/b",)))
    async with processes(redis, engine) as (one, two):
        fresh, kept = await one.read.read(URL), await two.read.read(URL)
    assert kept.page == fresh.page
    assert (fresh.age is None, kept.age is None) == (True, False)
    assert len(engine.asked) == 1


@real
async def test_what_was_found_lives_no_longer_elsewhere(redis: RedisServer) -> None:
    engine = Engine()
    async with processes(redis, engine, cache=CacheSettings(search_ttl=1.0)) as (one, two):
        await one.search.search(QUERY)
        await asyncio.sleep(0.3)
        assert (await two.search.search(QUERY)).age is not None
        await asyncio.sleep(0.75)
        assert (await two.search.search(QUERY)).age is None
    assert len(engine.asked) == 2


@real
async def test_a_cache_that_is_off_shares_nothing(redis: RedisServer) -> None:
    engine = Engine()
    async with processes(redis, engine, cache=CacheSettings.model_validate("off")) as (one, two):
        assert [(await process.search.search(QUERY)).age for process in (one, two)] == [None, None]
        assert one.store.sure
    assert len(engine.asked) == 2
    assert redis.names() == []


@real
async def test_failures_are_not_shared(redis: RedisServer) -> None:
    engine = Engine(errors.NoResults("none"))
    async with processes(redis, engine) as (one, two):
        for process in (one, two):
            with pytest.raises(AllFailed):
                await process.search.search(QUERY)
        engine.outcome = None
        assert (await one.search.search(QUERY)).age is None
    assert len(engine.asked) == 3


@real
async def test_garbage_on_the_shelf_is_asked_for_anew(redis: RedisServer) -> None:
    engine = Engine()
    async with processes(redis, engine) as (one, two):
        await one.search.search(QUERY)
        [name] = redis.names()
        redis.ask("SET", name, b"\x01[1,2,3]")
        assert (await two.search.search(QUERY)).age is None
    assert len(engine.asked) == 2


# For whom


@real
@pytest.mark.parametrize(
    ("private", "public", "fresh"),
    [
        (False, True, [True, False, False, False]),
        (True, True, [True, True, False, False]),
        (False, False, [True, True, False, False]),
    ],
    ids=["public", "private provider", "inner page"],
)
async def test_answers_go_only_to_whom_they_are_for(
    redis: RedisServer, private: bool, public: bool, fresh: list[bool]
) -> None:
    engine = Engine(Page(URL, "t", "words", public=public))
    async with processes(redis, engine, private=private) as (one, two):
        asked = [(one, "x"), (two, "y"), (two, "x"), (one, "y")]
        ages = [(await process.read.read(URL, caller=caller)).age for process, caller in asked]
    assert [age is None for age in ages] == fresh


@real
async def test_processes_that_ask_other_providers_share_nothing(redis: RedisServer) -> None:
    engine = Engine()
    async with processes(redis, engine, 1, said="here") as [one], processes(redis, engine, 1, said="there") as [two]:
        assert [(await process.search.search(QUERY)).age for process in (one, two)] == [None, None]
    assert len(engine.asked) == 2


# At the same moment


@real
async def test_equal_searches_of_many_processes_at_once_cost_one_call(redis: RedisServer) -> None:
    gate = Gate()
    engine = Engine(gate)
    async with processes(redis, engine, 4) as all_of_them:
        tasks = [asyncio.create_task(process.search.search(QUERY)) for process in all_of_them * 5]
        await until(lambda: engine.asked)
        await asyncio.sleep(0.1)
        gate.open()
        found = await asyncio.gather(*tasks)
        assert [key.split(":")[2] for key in redis.names()] == ["cache"], "no claim is left"
    assert found == [Found(SearchResults((HIT,)), "a")] * len(found)
    assert len(engine.asked) == 1


@real
async def test_when_the_first_fails_those_who_wait_ask_for_themselves_all_at_once(redis: RedisServer) -> None:
    gates = [Gate(errors.Unavailable("down")), Gate(), Gate()]
    engine = Engine()
    engine.outcome = lambda: gates[len(engine.asked) - 1]()
    async with processes(redis, engine, 3) as all_of_them:
        tasks = [asyncio.create_task(process.search.search(QUERY)) for process in all_of_them]
        await until(lambda: engine.asked)
        await asyncio.sleep(0.05)
        gates[0].open()
        await until(lambda: len(engine.asked) == 3)
        for gate in gates:
            gate.open()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AllFailed", "Found", "Found"]


@real
async def test_who_leaves_gives_its_claim_up(redis: RedisServer) -> None:
    engine = Engine(Gate())
    async with processes(redis, engine) as (one, two):
        first = asyncio.create_task(one.search.search(QUERY))
        await until(lambda: engine.asked)
        second = asyncio.create_task(two.search.search(QUERY))
        await asyncio.sleep(0.05)
        first.cancel()
        engine.outcome = None
        assert (await second).age is None
        assert first.cancelled()
    assert (len(engine.asked), engine.cancelled) == (2, 1)


@real
async def test_nobody_waits_for_ever_for_a_process_that_died(redis: RedisServer) -> None:
    async with processes(redis, Engine()) as (one, two):
        assert await one.shelf.claim("", "k", "of the dead", 60) == "of the dead"
        together = SharedFlight(two.shelf, patience=0.1)

        async def ask() -> SearchResults:
            return SearchResults((HIT,))

        answer = await together.answer("k", ("",), ask, lambda _: "", 60)
        assert answer == (SearchResults((HIT,)), None)
        assert await two.shelf.claim("", "k", "mine", 60) == "of the dead", "it is not ours to give up"


# Without Redis


@real
async def test_redis_killed_in_between(redis: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine()
    async with processes(redis, engine) as (one, two):
        await one.search.search(QUERY)
        redis.kill()
        found = [(await process.search.search(QUERY)).age is None for process in (one, two, one, two)]
        assert found == [False, True, False, False]
        assert (await one.search.search(SearchQuery("other"))).age is None
        assert len(engine.asked) == 3
        redis.start()
        await asyncio.sleep(0.2)
        assert (await one.search.search(SearchQuery("third"))).age is None
        assert (await two.search.search(SearchQuery("third"))).age is not None
        assert one.store.sure
        assert two.store.sure
    lost, back = "store: Redis cannot be reached", "store: Redis is back"
    assert sorted(message.partition(";")[0] for message in caplog.messages) == [lost, lost, back, back]


@real
async def test_redis_killed_while_one_asks_and_the_other_waits(redis: RedisServer) -> None:
    gate = Gate()
    engine = Engine(gate)
    async with processes(redis, engine) as (one, two):
        tasks = [asyncio.create_task(process.search.search(QUERY)) for process in (one, two)]
        await until(lambda: engine.asked)
        redis.kill()
        await until(lambda: len(engine.asked) == 2)
        gate.open()
        found = await asyncio.gather(*tasks)
    assert [one.results for one in found] == [SearchResults((HIT,))] * 2


# In the house


def sections(folder: Any, store: str, more: str = "") -> Config:
    folder.mkdir(exist_ok=True)
    (folder / "library").mkdir(exist_ok=True)
    (folder / "library" / "tea.md").write_text("# Tea\n\nGreen tea is steeped for two minutes.\n")
    text = f"""
upstreams: [{{name: demo, type: demo}}]
providers: [{{name: library, type: local, options: {{path: "{folder / "library"}"{more}}}}}]
store: {store}
"""
    return config(folder / "config.yaml", text)


@real
async def test_two_houses_on_one_redis(redis: RedisServer, tmp_path: Any) -> None:
    more = ', base_url: "https://library.example/"'
    settings = [
        sections(tmp_path / "a", redis.url),
        sections(tmp_path / "a", redis.url),
        sections(tmp_path / "a", redis.url, more),
        sections(tmp_path / "a", "memory"),
    ]
    houses = [House(each) for each in settings]
    ages = []
    for house in houses:
        assert house.search is not None
        ages.append((await house.search.search(SearchQuery("green tea"))).age)
        await house.aclose()
    assert [age is None for age in ages] == [True, False, True, True]
    assert redis.url not in repr(settings)


# How answers are written down

TEXT = st.text(max_size=20)
HITS = st.builds(SearchResult, TEXT, TEXT.filter(bool), TEXT, st.none() | TEXT)
ANSWERS = st.builds(SearchResults, st.lists(HITS, max_size=3).map(tuple), TEXT) | st.builds(
    Page, TEXT, TEXT, TEXT, st.none() | TEXT, st.lists(TEXT, max_size=3).map(tuple), st.booleans()
)


@given(ANSWERS, st.floats(0, 2e9), st.floats(-10, 1000))
def test_what_is_written_is_read(answer: SearchResults | Page, given: float, later: float) -> None:
    data = encode(answer, given)
    assert data is not None
    kept = decode(data, given + later)
    assert kept is not None
    assert kept[0] == answer
    assert kept[1] == max(0.0, given + later - given)


@given(
    st.binary(max_size=60)
    | st.sampled_from([b"[]", b"[1,2,3]", b'[1,"page",[]]', b'[1,"results",7]', b'["x","page",{}]'])
)
def test_garbage_is_nothing(data: bytes) -> None:
    assert decode(data, 1.0) is None


def test_half_a_character_cannot_be_shared() -> None:
    assert encode(SearchResults((), "\ud800"), 0.0) is None
