"""What a search brings along: the pages of its best hits, what the ledger remembers of them, and what is handed to a
model that called for nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from providers.base import SearchQuery, SearchResult
from tests.fakes.clock import in_leaping_time
from tests.fakes.toolbox import Bench, one, open_page, search
from tools import result_pages
from tools.options import ToolPolicy

# What the ledger remembers of what the model was given


async def test_the_ledger_remembers_what_the_model_read_of_each_source() -> None:
    bench = Bench()
    session = bench.session()
    found = await one(session, search({"query": "tea", "limit": 2}))
    assert [(source.given, source.basis) for source in bench.ledger] == [(("About tea.",), "snippet")] * 2
    opened = await one(session, open_page({"url": found.sources[0].url, "max_length": 300}))
    first, second = bench.ledger
    assert (first.basis, second.basis) == ("page", "snippet")
    assert first.given[0].startswith("Paragraph 0")
    assert first.given[0] in opened.text


async def test_a_passage_that_a_provider_took_from_the_page_is_the_page() -> None:
    class Library:
        async def search(self, query: SearchQuery) -> list[dict[str, str]]:
            return [{"title": "A", "url": "https://lib.org/a", "snippet": "A passage.", "basis": "page"}]

    bench = Bench(None, Library())
    await one(bench.session(), search({"query": "tea"}))
    [source] = bench.ledger
    assert (source.given, source.basis) == (("A passage.",), "page")


async def test_an_engine_s_line_does_not_become_the_page() -> None:
    """The second engine took nothing from the page, so the model is shown the first one's line again."""

    class Engines:
        lines = ({"snippet": "A line."}, {"snippet": "", "basis": "page"})

        async def search(self, query: SearchQuery) -> list[dict[str, str]]:
            return [{"title": "A", "url": "https://lib.org/a", **self.lines[query.text == "more tea"]}]

    bench = Bench(None, Engines())
    session = bench.session()
    await one(session, search({"query": "tea"}))
    await one(session, search({"query": "more tea"}))
    [source] = bench.ledger
    assert (source.given, source.basis) == (("A line.",), "snippet")


# Pages that a search reads along


def pages_in(policy_reads: int, **more: Any) -> Bench:
    return Bench(ToolPolicy(read_results=policy_reads, **more))


async def test_passages_of_the_best_pages_stand_in_place_of_their_snippets() -> None:
    bench = pages_in(2)
    session = bench.session()
    result = await one(session, search({"query": "topic7 topic150", "limit": 3}))
    assert len(bench.shelf.read_urls) == session.pages == 2
    first, second, third = bench.ledger
    assert [source.basis for source in bench.ledger] == ["page", "page", "snippet"]
    for source in (first, second):
        assert "Paragraph 150 speaks of topic150." in source.given[0]
        assert source.given[0] in result.text
    assert third.given == ("About topic7 topic150.",)
    assert result.text.count("About topic7 topic150.") == 1, "the engine's line stands only where there is no other"
    assert [source.n for source in result.sources] == [1, 2, 3]
    assert result.sources[0].basis == "page"


@pytest.mark.parametrize("reads", [0, 5])
async def test_as_many_as_are_wanted_and_half_of_the_pages_stay(reads: int) -> None:
    bench = pages_in(reads, max_opens=8, max_opens_per_host=8)
    session = bench.session()
    for word in ("topic1", "topic2", "topic3"):
        await one(session, search({"query": word}))
    assert session.pages == min(reads * 3, 4)
    assert not session.spent


async def test_a_weak_model_gets_two() -> None:
    bench = Bench()
    await one(bench.session(assist=True), search({"query": "topic1"}))
    assert len(bench.shelf.read_urls) == 2


async def test_nothing_is_read_where_no_page_may_be_opened() -> None:
    bench = pages_in(3)
    await one(bench.session(offered={"web_search"}), search({"query": "topic1"}))
    assert bench.shelf.read_urls == []


async def test_a_page_that_fails_or_speaks_of_something_else_leaves_the_snippet() -> None:
    class Odd:
        async def search(self, query: SearchQuery) -> list[SearchResult]:
            urls = ["https://a.org/blocked", "https://b.org/other", "https://c.org/private"]
            return [SearchResult("Zebra", url, "A zebra is striped.") for url in urls]

    bench = Bench(ToolPolicy(read_results=3), Odd())
    result = await one(bench.session(), search({"query": "zebra"}))
    assert {source.basis for source in bench.ledger} == {"snippet"}
    assert result.text.count("A zebra is striped.") == 3
    assert "could not be opened" not in result.text


def test_who_is_too_slow_is_not_waited_for_and_can_still_be_opened() -> None:
    class Two:
        async def search(self, query: SearchQuery) -> list[SearchResult]:
            return [SearchResult(name, f"https://{name}.org/topic1", "A line.") for name in ("late", "soon")]

    async def check() -> None:
        bench = Bench(ToolPolicy(read_results=2), Two())
        session = bench.session()
        result = await one(session, search({"query": "topic1"}))
        assert asyncio.get_running_loop().time() == result_pages.MOST_SECONDS
        assert [source.basis for source in bench.ledger] == ["snippet", "page"]
        opened = await one(session, open_page({"url": result.sources[0].url}))
        assert opened.ok
        assert bench.shelf.read_urls.count("https://late.org/topic1") == 2

    in_leaping_time(check())


class Late:
    """A first page that comes after the time for reading ahead, but for who asks for it again."""

    async def search(self, query: SearchQuery) -> list[SearchResult]:
        return [SearchResult("late", f"https://late.org/{query.text.split()[0]}", "A line.")]


def test_a_page_that_came_too_late_costs_neither_characters_nor_a_second_open() -> None:
    async def check() -> None:
        bench = Bench(ToolPolicy(read_results=1, max_opens=4, max_opens_per_host=4, max_characters=3000), Late())
        session = bench.session()
        for word in ("topic1", "topic2"):
            await one(session, search({"query": word}))
        assert not session.spent
        opened = await one(session, open_page({"url": "https://late.org/topic1", "max_length": 2500}))
        assert opened.ok, "all characters are there"
        assert len(bench.ledger.get(1).given[-1]) > 2000  # type: ignore[union-attr]
        assert session.pages == 2

    in_leaping_time(check())


async def test_a_page_that_is_not_shown_costs_no_characters() -> None:
    class Odd:
        async def search(self, query: SearchQuery) -> list[SearchResult]:
            return [SearchResult("Zebra", "https://b.org/other", "A zebra is striped.")]

    bench = Bench(ToolPolicy(read_results=1, max_characters=2500), Odd())
    session = bench.session()
    await one(session, search({"query": "zebra"}))
    opened = await one(session, open_page({"url": "https://b.org/other", "max_length": 2400}))
    assert opened.ok
    assert len(bench.ledger.get(1).given[-1]) > 2000  # type: ignore[union-attr]


async def test_a_search_for_nobodys_model_reads_them_too() -> None:
    bench = pages_in(1)
    found = await bench.session(alone=True).search_once({"query": "topic9"})
    assert "Paragraph 9 speaks of topic9." in found.sources[0].snippet


# What is handed to a model that called for nothing


async def test_hits_that_do_not_speak_of_the_query_are_left_out_and_little_is_called_little() -> None:
    class Mixed:
        async def search(self, query: SearchQuery) -> list[SearchResult]:
            hits = [("Zebras", "Striped zebra."), ("Cars", "Fast cars."), ("Bare", "")]
            return [SearchResult(title, f"https://{title}.org/", snippet) for title, snippet in hits]

    bench = Bench(None, Mixed())
    session = bench.session()
    found = await session.search_first("zebra stripes")
    assert [source.title for source in found.sources] == ["Zebras", "Bare"]
    few = replace(found, sources=found.sources[:1])
    assert "Little was found" in session.reading(few, [])
    assert "Little was found" not in session.reading(found, [])
    assert session.reading(found, []).rstrip().endswith("like [1].")
    assert "if they do not hold the answer, say so. Answer in the user's language." in session.reading(found, [])


async def test_pages_share_the_room_and_leave_what_they_do_not_need() -> None:
    bench = Bench()
    session = bench.session()
    session.provenance.add(["https://a.org/1", "https://a.org/blocked", "https://b.org/2"])
    urls = ["https://a.org/1", "https://a.org/blocked", "https://b.org/2"]
    assert await session.read_first(urls, "zebra", [], 3000.0, len) == []
    (missed,) = await session.read_first(urls, "zebra", urls[1:2], 3000.0, len)
    assert missed.error, "who was named and cannot be read is told"
    parts = await session.read_first(urls, "second sentence", [], 3000.0, len)
    read = [part for part in parts if part.source]
    assert len(read) == 2
    assert 0.8 * 3000 <= sum(len(part.content) for part in read) <= 3000


async def test_what_does_not_fit_is_not_given_and_cannot_be_cited() -> None:
    bench = Bench()
    session = bench.session()
    found = await session.search_first("tea")
    whole = session.reading(found, [])
    text = session.reading(found, [], holds=lambda text: len(text) < len(whole) - 100)
    assert 0 < len(text) < len(whole)
    cited = [source.n for source in bench.ledger if bench.ledger.get(source.n)]
    assert cited == [n for n in range(1, 6) if f"[{n}] tea" in text]
    assert session.reading(found, [], holds=lambda text: False) == ""
    assert not any(bench.ledger.get(source.n) for source in bench.ledger)
