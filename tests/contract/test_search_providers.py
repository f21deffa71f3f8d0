"""Every search service of the registry's table, the same assertions, against its loopback fake."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import socket
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from providers import registry
from providers.base import SearchQuery, SearchResult, SearchResults
from providers.chain import AllFailed, SearchChain
from providers.errors import NoResults, Unavailable
from providers.registry import NamedProvider, ProviderConfigError, ProviderEntry
from tests.fakes.search import FAKES, HTTP_FAKES, FakeDuckDuckGo, FakeFolder, FakeSearxng
from tests.fakes.search_engine import HITS, QUERIES, FakeEngine
from tests.fakes.search_hosted import HOSTED, ROWS
from tests.fakes.service import FOR_OPERATORS, KEY, Reply, provider_of, search

SEARCH_SERVICES = sorted(kind for kind, row in registry.SERVICES.items() if "search" in row.roles)
FAULTS = [(kind, name) for kind, fake in HTTP_FAKES.items() for name in fake.faults]
FILTERS = [(kind, name) for kind, fake in HTTP_FAKES.items() for name in fake.filters]
NEEDED_FAULTS = {
    "empty", "401", "403", "quota", "429", "429 with Retry-After", "500 JSON", "500 HTML", "truncated",
    "wrong content", "huge", "slow",
}  # fmt: skip
NEEDED_FILTERS = {"plain", "allowed", "several allowed", "blocked", "time range", "language", "country"}


@asynccontextmanager
async def started(kind: str, folder: Path) -> AsyncIterator[NamedProvider]:
    if kind == FakeFolder.type:
        async with provider_of(FakeFolder(folder).entry()) as named:
            yield named
        return
    with HTTP_FAKES[kind]() as fake:
        async with provider_of(fake.entry()) as named:
            yield named


def test_every_search_service_has_a_fake_with_all_rows() -> None:
    assert set(SEARCH_SERVICES) == FAKES
    for fake in HTTP_FAKES.values():
        assert fake.faults.keys() >= NEEDED_FAULTS
        assert fake.filters.keys() >= NEEDED_FILTERS
    for fake in HOSTED.values():
        assert fake.filters.keys() == QUERIES.keys()


@pytest.mark.parametrize("kind", SEARCH_SERVICES)
async def test_hits_arrive_whole_and_unicode_survives(kind: str, tmp_path: Path) -> None:
    async with started(kind, tmp_path) as named:
        found = await search(named, SearchQuery("heat", limit=10))
    assert {hit.title for hit in found.results} == {hit.title for hit in HITS}
    snippets = {hit.title: hit.snippet for hit in found.results}
    assert "A heat pump moves heat from cold to warm." in snippets["Heat pumps"]
    assert "Die Wärme, 熱, heat &" in snippets["Wärme und 熱 ⚡"]
    assert "https://example.org/heat/pumps.md" in {hit.url for hit in found.results}


@pytest.mark.parametrize("kind", SEARCH_SERVICES)
async def test_no_more_than_asked_for(kind: str, tmp_path: Path) -> None:
    async with started(kind, tmp_path) as named:
        found = await SearchChain([named]).search(SearchQuery("heat", limit=2))
    assert len(found.results.results) == 2
    assert found.provider == "fake"


@pytest.mark.parametrize("kind", SEARCH_SERVICES)
async def test_parallel_searches_do_not_disturb_each_other(kind: str, tmp_path: Path) -> None:
    async with started(kind, tmp_path) as named:
        found = await asyncio.gather(*(search(named, SearchQuery("heat", limit=n)) for n in (1, 2, 3, 4)))
    assert all(results.results for results in found)


@pytest.mark.parametrize("kind", sorted(HTTP_FAKES))
async def test_unicode_goes_up_unharmed(kind: str) -> None:
    with HTTP_FAKES[kind]() as fake:
        async with provider_of(fake.entry()) as named:
            await search(named, SearchQuery('Wärme & "熱" + 100% ⚡', limit=4))
        assert fake.asked[0].params[fake.words] == 'Wärme & "熱" + 100% ⚡'


@pytest.mark.parametrize(("kind", "name"), FILTERS)
async def test_filters_become_what_the_service_knows(kind: str, name: str) -> None:
    query, expected = HTTP_FAKES[kind].filters[name]
    with HTTP_FAKES[kind]() as fake:
        async with provider_of(fake.entry()) as named:
            with suppress(NoResults):  # news come in an envelope of their own
                await search(named, replace(query, limit=len(HITS)))
        (asked,) = fake.asked
    assert {key: value for key, value in asked.params.items() if key != "format"} == expected
    if kind in ROWS:
        assert asked.path == ROWS[kind].places.get(name, ROWS[kind].request.split()[1])


@pytest.mark.parametrize("kind", sorted(HTTP_FAKES))
async def test_missing_optional_keys_are_no_fault(kind: str) -> None:
    with HTTP_FAKES[kind]() as fake:
        fake.reply = fake.bare_page()
        async with provider_of(fake.entry()) as named:
            found = await search(named, SearchQuery("heat", limit=1))
    assert found.results == (SearchResult("", HITS[0].url),)


@pytest.mark.parametrize(("kind", "name"), FAULTS)
async def test_faults_become_our_errors(kind: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    fault = HTTP_FAKES[kind].faults[name]
    with HTTP_FAKES[kind]() as fake:
        fake.reply = fault.reply
        async with provider_of(fake.entry(timeout=0.4 if name == "slow" else 20)) as named:
            with pytest.raises(fault.error) as caught:
                await search(named, SearchQuery("heat"))
    assert type(caught.value) is fault.error
    assert fault.says in str(caught.value)
    assert fault.advises in caught.value.advice
    assert not FOR_OPERATORS.search(str(caught.value)), "a model reads it"
    assert caught.value.retry_after == fault.retry_after
    assert "127.0.0.1" not in str(caught.value)
    assert KEY not in str(caught.value) + caplog.text


@pytest.mark.parametrize("kind", sorted(HTTP_FAKES))
async def test_nobody_there(kind: str) -> None:
    with socket.socket() as closed, HTTP_FAKES[kind]() as fake:  # bound, never listening: nobody can take the port
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        async with provider_of(fake.entry().model_copy(update={"base_url": address})) as named:
            with pytest.raises(Unavailable) as caught:
                await search(named, SearchQuery("heat"))
    assert "127.0.0.1" not in str(caught.value)


@pytest.mark.parametrize("kind", sorted({*HOSTED, "searxng"}))
async def test_a_compressed_answer_is_read(kind: str) -> None:
    with HTTP_FAKES[kind]() as fake:
        fake.reply = replace(
            fake.reply,
            body=gzip.compress(fake.reply.body),
            headers={"Content-Encoding": "gzip"},
            content_type="text/html",
        )
        async with provider_of(fake.entry()) as named:
            found = await search(named, SearchQuery("heat", limit=4))
    assert {hit.title for hit in found.results} == {hit.title for hit in HITS}


# SearXNG


async def searxng(fake: FakeEngine, query: SearchQuery, **options: Any) -> SearchResults:
    async with provider_of(fake.entry(**options)) as named:
        return await search(named, query)


@pytest.mark.parametrize("answer", [["42"], [{"answer": "42", "url": None}], ["", {"answer": "42"}, {"odd": 1}, 7]])
async def test_searxng_answers(answer: list[object]) -> None:
    with FakeSearxng() as fake:
        fake.reply = Reply(body=json.dumps({"results": [], "answers": answer}).encode())
        found = await searxng(fake, SearchQuery("6*7"))
    assert found == SearchResults((), "42")


async def test_searxng_settings_and_dates() -> None:
    with FakeSearxng() as fake:
        found = await searxng(fake, SearchQuery("heat", limit=1), categories=["general", "it"], engines=["brave"])
        assert fake.asked[0].params == {
            "q": "heat", "format": "json", "categories": "general,it", "engines": "brave"
        }  # fmt: skip
    assert found.results[0].date == "2026-05-01"


@pytest.mark.parametrize(
    ("entry", "header"),
    [
        ({"api_key": KEY}, f"Bearer {KEY}"),
        (
            {"options": {"username": "jo", "password": f"{KEY}ü"}},
            f"Basic {b64encode(f'jo:{KEY}ü'.encode()).decode()}",
        ),
        ({}, None),
    ],
)
async def test_searxng_behind_a_lock(entry: dict[str, Any], header: str | None) -> None:
    with FakeSearxng() as fake:
        given = ProviderEntry.model_validate({"name": "fake", "type": "searxng", "base_url": fake.url, **entry})
        async with provider_of(given) as named:
            await search(named, SearchQuery("heat", limit=1))
            assert KEY not in repr(given) + repr(cast(Any, named.provider)._settings)
        assert fake.asked[0].headers.get("authorization") == header


@pytest.mark.parametrize(
    "entry",
    [
        {"options": {"username": "jo"}},
        {"options": {"password": KEY}},
        {"api_key": KEY, "options": {"username": "jo", "password": KEY}},
    ],
)
def test_searxng_takes_one_way_in(entry: dict[str, Any]) -> None:
    given = ProviderEntry.model_validate({"name": "sx", "type": "searxng", "base_url": "http://sx", **entry})
    with pytest.raises(ProviderConfigError, match="username and password") as caught:
        registry.build([given], cast(Any, None))
    assert KEY not in str(caught.value)


# DuckDuckGo


async def test_duckduckgo_refuses_what_would_wait_too_long() -> None:
    with FakeDuckDuckGo() as fake:
        async with provider_of(fake.entry(timeout=5, rate=0.01)) as named:
            chain = SearchChain([named])
            assert (await chain.search(SearchQuery("heat"))).results.results
            with pytest.raises(AllFailed, match="too many calls"):
                await chain.search(SearchQuery("heat"))
        assert len(fake.asked) == 1


async def test_duckduckgo_keeps_few_calls_in_flight() -> None:
    with FakeDuckDuckGo() as fake:
        fake.reply = Reply(body=fake.reply.body, wait=0.05)
        async with provider_of(fake.entry(timeout=30, in_flight=2)) as named:
            await asyncio.gather(*(search(named, SearchQuery("heat")) for _ in range(6)))
        assert len(fake.asked) == 6
        assert fake.most_at_once <= 2


async def test_duckduckgo_keeps_the_time_range_beside_a_date() -> None:
    with FakeDuckDuckGo() as fake:
        async with provider_of(fake.entry()) as named:
            await search(named, SearchQuery("heat", time_range="y", published_after="2001-01-01"))
        first, _, last = fake.asked[0].params["df"].partition("..")
    assert first > "2025"
    assert first < last


async def test_duckduckgo_drops_advertisements() -> None:
    with FakeDuckDuckGo() as fake:
        fake.reply = fake.page((SearchResult("Ad", "https://duckduckgo.com/y.js?ad=1"),))
        async with provider_of(fake.entry()) as named:
            with pytest.raises(NoResults):
                await search(named, SearchQuery("heat"))


async def test_two_duckduckgos_each_ask_their_own_page() -> None:
    from ddgs.engines.duckduckgo import Duckduckgo  # heavy: loaded when first needed, here too

    usual = Duckduckgo.search_url
    with FakeDuckDuckGo() as first, FakeDuckDuckGo() as second:
        fakes = {"first": first, "second": second}
        entries = [fake.entry(in_flight=8).model_copy(update={"name": name}) for name, fake in fakes.items()]
        named = registry.build(entries, cast(Any, None))
        try:
            for name in (*fakes, *fakes):
                await search(named[name], SearchQuery(f"heat {name}"))
            together = [search(named[name], SearchQuery(f"heat {name}")) for name in (*fakes, *fakes) * 4]
            await asyncio.gather(*together)
        finally:
            await registry.close(named.values())
    for name, fake in fakes.items():
        assert [asked.params["q"] for asked in fake.asked] == [f"heat {name}"] * 10
    assert Duckduckgo.search_url == usual, "one without a base_url still asks DuckDuckGo's own"
