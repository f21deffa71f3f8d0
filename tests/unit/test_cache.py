"""The cache: what is kept for whom and how long, and that the same question at the same time costs one call."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from pydantic import ByteSize

from providers import errors
from providers.base import Page, SearchQuery, SearchResult, SearchResults
from providers.cache import ExpiringCache, SingleFlight, weight
from providers.chain import AllFailed, Found, ReadChain, SearchChain
from providers.gateway import ProviderGateway
from providers.settings import CacheSettings, CooldownSettings
from tests.fakes.providers import HIT, Engine, Gate, until

QUERY = SearchQuery("q")
URL = "https://example.org/a"
KEPT = CacheSettings()


def searching(*engines: Engine, cache: CacheSettings = KEPT, **features: Any) -> SearchChain:
    members = [engine.named(name, **features) for name, engine in zip("abc", engines, strict=False)]
    return SearchChain(members, gateway=ProviderGateway(cache=cache))


def reading(*engines: Engine, cache: CacheSettings = KEPT, **features: Any) -> ReadChain:
    members = [engine.named(name, **features) for name, engine in zip("abc", engines, strict=False)]
    return ReadChain(members, gateway=ProviderGateway(cache=cache))


# The shelf


def test_a_shelf_keeps_things_until_they_are_too_old() -> None:
    shelf = ExpiringCache(9, 999)
    shelf.put("k", "v", 1, now=100, ttl=10)
    kept = shelf.get("k", 109)
    assert kept is not None
    assert (kept.value, kept.age) == ("v", 9)
    assert shelf.get("k", 110) is None
    assert (len(shelf), shelf.size) == (0, 0)


def test_what_was_not_asked_for_the_longest_goes_first() -> None:
    shelf = ExpiringCache(3, 999)
    for key in "abc":
        shelf.put(key, key, 1, now=0, ttl=10)
    shelf.get("a", 1)
    shelf.put("d", "d", 1, now=1, ttl=10)
    assert [bool(shelf.get(key, 1)) for key in "abcd"] == [True, False, True, True]


def test_a_shelf_holds_no_more_bytes_than_it_may() -> None:
    shelf = ExpiringCache(99, 100)
    for key in range(50):
        shelf.put(key, key, 30, now=0, ttl=10)
        assert shelf.size <= 100
    assert (len(shelf), shelf.size) == (3, 90)
    shelf.put("huge", 1, 101, now=0, ttl=10)
    assert (shelf.get("huge", 0), len(shelf)) == (None, 3)
    shelf.put(49, "smaller", 10, now=0, ttl=10)
    assert (len(shelf), shelf.size) == (3, 70)


def test_weight_grows_with_every_text() -> None:
    page = Page("u", "t", "x" * 1000)
    assert 1000 < weight(page) < 1500
    assert weight(replace(page, links=("l" * 1000,))) > 2000
    assert weight(SearchResults((replace(HIT, snippet="s" * 1000),), "a" * 1000)) > 2000


# What is kept


async def test_a_search_is_asked_for_once_and_then_tells_its_age() -> None:
    engine = Engine()
    chain = searching(engine)
    assert (await chain.search(QUERY)).age is None
    await asyncio.sleep(0.05)
    again = await chain.search(QUERY)
    assert replace(again, age=None) == Found(SearchResults((HIT,)), "a")
    assert again.age is not None
    assert 0.04 < again.age < 60
    assert len(engine.asked) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"text": "p"},
        {"limit": 6},
        {"allowed_domains": ("example.org",)},
        {"blocked_domains": ("example.net",)},
        {"time_range": "w"},
        {"published_after": "2020-01-01"},
        {"published_before": "2030-01-01"},
        {"country": "DE"},
        {"language": "de"},
        {"category": "news"},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_the_whole_query_is_the_key(other: dict[str, Any]) -> None:
    engine = Engine()
    chain = searching(engine)
    await chain.search(QUERY)
    assert (await chain.search(replace(QUERY, **other))).age is None
    assert len(engine.asked) == 2


async def test_spellings_of_one_query_are_one() -> None:
    engine = Engine()
    chain = searching(engine)
    await chain.search(SearchQuery("two words", allowed_domains=("example.org", "b.org"), blocked_domains=("c.org",)))
    same = SearchQuery(" two  words", allowed_domains=("B.org", "*.example.org"), blocked_domains=("c.org", "C.org"))
    assert (await chain.search(same)).age is not None


async def test_each_provider_keeps_its_own_answers() -> None:
    first, second = Engine(), Engine()
    chain = searching(first, second)
    await chain.search(QUERY)
    assert (await chain.search(QUERY, "b")).provider == "b"
    assert (len(first.asked), len(second.asked)) == (1, 1)


async def test_a_page_is_read_once_under_all_its_spellings() -> None:
    engine = Engine()
    chain = reading(engine)
    first = await chain.read("https://example.org/a/")
    again = await chain.read("https://Example.org.:443/a?utm_source=x#part")
    assert (first.age, again.page) == (None, first.page)
    assert again.age is not None
    for other in ("https://example.org/b", "http://example.org/a/", "https://www.example.org/a/"):
        assert (await chain.read(other)).age is None, other


@pytest.mark.parametrize(
    "outcome", [errors.NoResults("none"), [], errors.Unavailable("down"), KeyError("bug")], ids=str
)
async def test_what_is_empty_or_failed_is_not_kept(outcome: Any) -> None:
    engine = Engine(outcome)
    chain = searching(engine)
    for _ in range(2):
        with pytest.raises(AllFailed):
            await chain.search(QUERY)
    assert len(engine.asked) == 2
    engine.outcome = None
    assert (await chain.search(QUERY)).age is None


async def test_each_kind_lives_for_its_own_time() -> None:
    engine = Engine()
    brief = CacheSettings(search_ttl=0.05, page_ttl=60)
    await searching(engine, cache=brief).search(QUERY)
    gateway = ProviderGateway(cache=brief)
    search, read = SearchChain([engine.named()], gateway=gateway), ReadChain([engine.named()], gateway=gateway)
    await search.search(QUERY)
    await read.read(URL)
    await asyncio.sleep(0.06)
    assert (await search.search(QUERY)).age is None
    assert (await read.read(URL)).age is not None


async def test_off_keeps_nothing() -> None:
    engine = Engine()
    chain = searching(engine, cache=CacheSettings.model_validate("off"))
    assert [(await chain.search(QUERY)).age for _ in range(2)] == [None, None]
    assert len(engine.asked) == 2


async def test_the_bounds_of_the_settings_hold() -> None:
    engine = Engine()
    chain = searching(engine, cache=CacheSettings(max_entries=2))
    for text in ("one", "two", "three", "one"):
        await chain.search(SearchQuery(text))
    assert len(engine.asked) == 4
    reader = Engine(Page(URL, "t", "x" * 2000))
    small = reading(reader, cache=CacheSettings(max_size=ByteSize(1024)))
    assert [(await small.read(URL)).age for _ in range(2)] == [None, None]


async def test_an_answer_that_was_kept_is_given_while_its_provider_cools_down() -> None:
    engine = Engine()
    chain = SearchChain([engine.named()], gateway=ProviderGateway(CooldownSettings(), KEPT))
    await chain.search(QUERY)
    engine.outcome = errors.AuthFailed("no key")
    with pytest.raises(AllFailed):
        await chain.search(SearchQuery("other"))
    assert (await chain.search(QUERY)).age is not None


# For whom


async def test_public_answers_are_shared_between_callers() -> None:
    engine = Engine()
    search, read = searching(engine), reading(engine)
    assert [(await search.search(QUERY, caller=who)).age is None for who in "xyx"] == [True, False, False]
    assert [(await read.read(URL, caller=who)).age is None for who in "xyx"] == [True, False, False]


async def test_private_answers_are_kept_for_their_caller() -> None:
    engine = Engine()
    search, read = searching(engine, private=True), reading(engine, private=True)
    assert [(await search.search(QUERY, caller=who)).age is None for who in "xyx"] == [True, True, False]
    assert [(await read.read(URL, caller=who)).age is None for who in "xyx"] == [True, True, False]
    assert len(engine.asked) == 4


async def test_pages_of_an_inner_network_are_kept_for_their_caller() -> None:
    engine = Engine(Page(URL, "t", "words", public=False))
    chain = reading(engine)
    assert [(await chain.read(URL, caller=who)).age is None for who in "xyx"] == [True, True, False]


async def test_a_plugins_mapping_may_say_that_a_page_is_not_public() -> None:
    engine = Engine({"url": URL, "title": "t", "text": "words", "public": False})
    chain = reading(engine)
    assert [(await chain.read(URL, caller=who)).age is None for who in "xyx"] == [True, True, False]


@pytest.mark.parametrize(("public", "calls"), [(True, 1), (False, 2)])
async def test_callers_who_ask_at_once_share_a_call_only_for_what_is_public(public: bool, calls: int) -> None:
    gate = Gate(Page(URL, "t", "words", public=public))
    engine = Engine(gate)
    chain = reading(engine)
    readers = [asyncio.create_task(chain.read(URL, caller=who)) for who in "xyxy"]
    await until(lambda: engine.asked)
    gate.open()
    assert {opened.page for opened in await asyncio.gather(*readers)} == {gate.outcome}
    assert len(engine.asked) == calls


async def test_private_searches_of_two_callers_are_two_calls() -> None:
    gate = Gate()
    engine = Engine(gate)
    chain = searching(engine, private=True)
    tasks = [asyncio.create_task(chain.search(QUERY, caller=who)) for who in "xyxy"]
    await until(lambda: len(engine.asked) == 2)
    gate.open()
    await asyncio.gather(*tasks)
    assert len(engine.asked) == 2


# Single flight


@pytest.mark.parametrize("cache", [KEPT, CacheSettings(search_ttl=0)], ids=["kept", "not kept"])
async def test_500_equal_searches_at_once_cost_one_call(cache: CacheSettings) -> None:
    gate = Gate()
    engine = Engine(gate)
    chain = searching(engine, cache=cache)
    tasks = [asyncio.create_task(chain.search(QUERY)) for _ in range(500)]
    await until(lambda: engine.asked)
    gate.open()
    found = await asyncio.gather(*tasks)
    assert found == [Found(SearchResults((HIT,)), "a")] * 500
    assert len(engine.asked) == 1


async def test_a_failure_is_told_to_all_who_wait_and_all_fall_over_together() -> None:
    gate = Gate(errors.Unavailable("down"))
    first, second = Engine(gate), Engine(Gate())
    chain = searching(first, second)
    tasks = [asyncio.create_task(chain.search(QUERY)) for _ in range(500)]
    await until(lambda: first.asked)
    gate.open()
    await until(lambda: second.asked)
    second.outcome.open()
    found = await asyncio.gather(*tasks)
    assert {(one.provider, one.failures[0].reason) for one in found} == {("b", "down")}
    assert (len(first.asked), len(second.asked)) == (1, 1)
    first.outcome = None
    assert (await chain.search(QUERY)).provider == "a"


async def test_a_leader_that_leaves_fails_nobody_and_starts_nothing_again() -> None:
    gate = Gate()
    engine = Engine(gate)
    chain = searching(engine)
    leader = asyncio.create_task(chain.search(QUERY))
    await until(lambda: engine.asked)
    followers = [asyncio.create_task(chain.search(QUERY)) for _ in range(10)]
    await asyncio.sleep(0)
    leader.cancel()
    followers[0].cancel()
    await asyncio.wait([leader, followers[0]])
    assert (leader.cancelled(), followers[0].cancelled()) == (True, True)
    gate.open()
    found = await asyncio.gather(*followers[1:])
    assert [one.provider for one in found] == ["a"] * 9
    assert (len(engine.asked), engine.cancelled) == (1, 0)


async def test_when_the_last_one_leaves_the_call_is_cancelled_and_the_next_asks_anew() -> None:
    engine = Engine(Gate())
    chain = searching(engine)
    tasks = [asyncio.create_task(chain.search(QUERY)) for _ in range(5)]
    await until(lambda: engine.asked)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert (len(engine.asked), engine.cancelled) == (1, 1)
    engine.outcome = None
    assert (await chain.search(QUERY)).age is None
    assert len(engine.asked) == 2


async def test_nobody_joins_a_call_that_is_being_broken_off() -> None:
    leaving, calls = asyncio.Event(), 0

    async def slow_to_leave() -> int:
        nonlocal calls
        calls += 1
        try:
            await asyncio.sleep(60 if calls == 1 else 0)
        finally:
            leaving.set()
            await asyncio.sleep(0.02)
        return calls

    flights = SingleFlight()
    first = asyncio.create_task(flights.join("key", slow_to_leave))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    await leaving.wait()
    assert await flights.join("key", slow_to_leave) == 2
    await asyncio.wait([first])
    assert first.cancelled()


async def test_a_call_that_fails_while_it_is_broken_off_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def fails_to_leave() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise KeyError("bug")

    task = asyncio.create_task(SingleFlight().join("key", fails_to_leave))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    del task
    gc.collect()  # only now asyncio would complain of an exception that nobody took
    assert not caplog.records


class Panic(BaseException):
    """As libraries raise it that are written in Rust."""


async def test_even_of_a_panic_all_hear_who_wait() -> None:
    flights = SingleFlight()

    async def panics() -> None:
        await asyncio.sleep(0)
        raise Panic

    for _ in range(2):  # nor does the next one wait for what is over
        async with asyncio.timeout(30):
            told = await asyncio.gather(*(flights.join("key", panics) for _ in range(3)), return_exceptions=True)
        assert [type(error) for error in told] == [Panic] * 3


async def test_calls_that_are_broken_off_leave_no_cycles() -> None:
    flights = SingleFlight()
    gc.collect()
    gc.disable()
    try:
        for _ in range(50):
            joining = asyncio.create_task(flights.join("key", partial(asyncio.sleep, 60)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            joining.cancel()
            await asyncio.wait([joining])
        assert gc.collect() < 50
    finally:
        gc.enable()


async def test_results_that_name_one_page_twice_are_kept_once() -> None:
    urls = ("https://example.org/a", "http://www.example.org/a/?utm_source=x#top", "https://example.org/b")
    found = await searching(Engine([SearchResult("t", url) for url in urls])).search(QUERY)
    assert [hit.url for hit in found.results.results] == [urls[0], urls[2]]


@pytest.mark.parametrize("field", ["text", "allowed_domains", "blocked_domains", "published_after", "category"])
def test_questions_that_differ_in_anything_are_kept_apart_at_once(field: str) -> None:
    """Whoever asks may choose all of it: a thousand in one place would have to be walked through, each time."""
    given: list[Any] = [(str(n),) if "domains" in field else str(n) for n in range(1000)]
    assert len({hash(replace(QUERY, **{field: value})) for value in given}) > 990
