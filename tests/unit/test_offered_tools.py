"""The tools as models are told of them, and as the operator's commands use them: what a description says, which
providers and days it names, and a search and a page as values."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from providers.base import SearchQuery, SearchResult, SearchResults
from providers.chain import Providers
from tests.fakes.toolbox import Bench, Engine, one, open_page, search
from tools import prompts
from tools.options import ToolPolicy
from tools.toolbox import Toolbox

# What is offered, and what the operator's commands use


def test_tools_are_offered_as_far_as_there_are_providers() -> None:
    bench = Bench()
    search_only = Toolbox(bench.toolbox.search, None, ToolPolicy())
    assert [spec.tool for spec in bench.toolbox.specs] == ["web_search", "open_page"]
    assert [spec.tool for spec in search_only.specs] == ["web_search"]
    assert Toolbox(None, None, ToolPolicy()).specs == ()


def test_specs_are_constant_and_say_how_to_cite() -> None:
    basic, full = Bench().toolbox.specs, Bench(ToolPolicy(parameters="full")).toolbox.specs
    assert json.dumps([dict(spec.parameters) for spec in basic]) == json.dumps(
        [dict(spec.parameters) for spec in Bench().toolbox.specs]
    )
    assert list(basic[0].parameters["properties"]) == ["query", "limit", "allowed_domains", "time_range"]
    assert {"blocked_domains", "published_after", "published_before", "category", "provider"} < set(
        full[0].parameters["properties"]
    )
    assert all(spec.parameters["additionalProperties"] is False for spec in full)
    for words in ("[3]", "only numbers you were given", "forbids citations"):
        assert words in basic[0].description


def test_the_description_says_the_day_and_what_to_do_with_it() -> None:
    search, page = Bench().toolbox.offered(live=True, today="2026-11-16")
    assert "Today is 2026-11-16. Write 2 to 6 keywords." in search.description
    assert "not for greetings, rewriting or arithmetic" in search.description
    assert "open the page before you give details" in search.description
    assert search == Bench().toolbox.offered(live=True, today="2026-11-16")[0]
    assert page.description == prompts.OPEN_PAGE
    assert "(d), week (w)" in search.parameters["properties"]["time_range"]["description"]
    (alone,) = Bench().toolbox.offered(live=False, cite=False)
    assert "open the page" not in alone.description, "it cannot"
    assert "{" not in alone.description
    assert re.search(r"Today is \d{4}-\d\d-\d\d\.", alone.description)


def test_the_providers_that_may_be_named_are_listed() -> None:
    toolbox = Bench(ToolPolicy(parameters="full"), Engine()).toolbox
    for only, names in ((None, ["engine0", "engine1"]), (frozenset({"engine1"}), ["engine1"])):
        search = toolbox.offered(live=True, only=only)[0]
        assert search.parameters["properties"]["provider"]["enum"] == names


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("only", [None, "private", frozenset({"engine0"}), frozenset({"nobody"})])
def test_whether_there_is_any_tool_is_told_as_they_are_offered(live: bool, only: Providers) -> None:
    toolbox = Bench().toolbox
    for _ in range(2):
        assert toolbox.has_any(live=live, only=only) is bool(toolbox.offered(live=live, only=only))


async def test_one_day_for_all_of_a_request() -> None:
    session = Bench().session(today="2026-02-03")
    assert (await one(session, search({"query": "tea"}))).text.startswith("Today is 2026-02-03. ")


@pytest.mark.parametrize("said", ["week", "w", "Week", "WEEK"])
async def test_time_ranges_in_words(said: str) -> None:
    bench = Bench()
    await one(bench.session(), search({"query": "tea", "time_range": said}))
    assert bench.engine.asked[-1].time_range == "w"


async def test_author_score_and_note_are_kept() -> None:
    class Telling:
        async def search(self, query: SearchQuery) -> SearchResults:
            hit = SearchResult("T", "https://e.org/", "s", author="A\nda [1]", score=0.25)
            return SearchResults((hit,), note="found [2] in the attic")

    found = await Bench(None, Telling()).session().search_once({"query": "tea"})
    assert (found.sources[0].author, found.sources[0].score) == ("A da (1)", 0.25)
    assert found.message == "engine0: found (2) in the attic."


async def test_search_once_and_open_once_give_values() -> None:
    bench = Bench()
    session = bench.session()
    found = await session.search_once({"query": "tea [1]", "provider": "engine0"})
    assert (found.ok, found.query, found.provider, len(found.sources)) == (True, "tea [1]", "engine0", 5)
    assert session.text(found).startswith("Today is ")
    [part] = await session.open_once({"url": "e.org/typed"})
    assert (part.error, part.url, part.truncated) == ("", "https://e.org/typed", False)
    assert "Page [6]: " in session.text([part])
    assert not (await session.search_once({"query": ""})).ok
    assert (await session.search_once({"query": "tea", "provider": "nobody"})).message.startswith(
        "There is no search provider"
    )
    [failed] = await session.open_once({"urls": ["nonsense://x"]})
    assert failed.url == "nonsense://x"
    assert "web addresses" in failed.error
    assert [
        part.error == "" for part in await session.open_once({"urls": ["https://a.org", "https://b.org/blocked"]})
    ] == [True, False]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"urls": 5}, [""]),
        ({"urls": "x y"}, ["x y"]),
        ({"url": {"a": 1}}, [""]),
        ({"urls": [0] * 1000}, [""]),
        ({"urls": [f"https://a.org/{n}" for n in range(100)]}, [f"https://a.org/{n}" for n in range(20)]),
        ({"url": "https://a b/" + "x" * 10_000}, ["https://a b/" + "x" * 487 + "…"]),
    ],
)
async def test_wrong_addresses_are_named_as_far_as_they_are_any(given: Any, named: list[str]) -> None:
    parts = await Bench().session().open_once(given)
    assert [part.url for part in parts] == named
    assert all(part.error for part in parts)


@pytest.mark.parametrize(("query", "shown"), [("x" * 10_000, 400), (["x"] * 10_000, 0), ("\u200b", 0)])
async def test_a_wrong_query_is_not_repeated_at_length(query: Any, shown: int) -> None:
    answer = await Bench().session().search_once({"query": query})
    assert (answer.ok, len(answer.query)) == (False, shown)


async def test_pages_may_have_domains_of_their_own() -> None:
    bench = Bench(ToolPolicy(blocked_domains=("bad.org",)))
    seen = ["https://e.org/p https://other.net/p https://bad.org/p"]
    session = bench.session(allowed_domains=["e.org"], page_domains=(["other.net", "bad.org"], []), seen_texts=seen)
    assert (await one(session, search({"query": "tea"}))).ok
    assert bench.engine.asked[0].allowed_domains == ("e.org",)
    opened = [
        (await one(session, open_page({"url": f"https://{host}/p"}))).ok for host in ("e.org", "other.net", "bad.org")
    ]
    assert opened == [False, True, False]
