"""What the hosted search services add to the contract: dates, limits, options, direct answers, keys, quirks."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from providers import registry
from providers.base import SearchQuery, SearchResults
from providers.chain import SearchChain
from providers.cooldown import Cooldown, CoolingDown
from providers.errors import QuotaExceeded, Unavailable
from providers.registry import ProviderConfigError, ProviderEntry
from providers.settings import CooldownSettings
from tests.fakes.search_engine import DAY, HITS
from tests.fakes.search_hosted import HOSTED, ROWS
from tests.fakes.service import KEY, as_json, provider_of, search

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", sorted(HOSTED))
async def test_dates_are_days_however_they_are_written(kind: str) -> None:
    with HOSTED[kind]() as fake:
        async with provider_of(fake.entry()) as named:
            found = await search(named, SearchQuery("heat"))
    assert [hit.date for hit in found.results] == [DAY] * len(HITS)
    assert [hit.url for hit in found.results] == [hit.url for hit in HITS]


@pytest.mark.parametrize("kind", sorted(HOSTED))
async def test_no_service_is_asked_for_more_than_it_gives(kind: str) -> None:
    key, most = ROWS[kind].count
    with HOSTED[kind]() as fake:
        async with provider_of(fake.entry()) as named:
            for limit in (1, 50, 500):
                await search(named, SearchQuery("heat", limit=limit))
        assert [int(asked.params[key]) for asked in fake.asked] == [min(limit, most) for limit in (1, 50, 500)]


@pytest.mark.parametrize("kind", sorted(HOSTED))
async def test_the_key_shows_nowhere(kind: str) -> None:
    with HOSTED[kind]() as fake:
        entry = fake.entry()
        async with provider_of(entry) as named:
            await search(named, SearchQuery("heat"))
            shown = [entry, named, named.provider, *vars(named.provider).values()]
    assert KEY not in " ".join(map(repr, shown))


@pytest.mark.parametrize("kind", ["brave", "exa", "firecrawl", "perplexity", "serper"])
def test_a_missing_key_names_the_variable(kind: str) -> None:
    with pytest.raises(ProviderConfigError, match=f"`api_key: \\${{{kind.upper()}_API_KEY}}` under provider 'web'"):
        registry.build([ProviderEntry(name="web", type=kind)], cast(Any, None))


@pytest.mark.parametrize("kind", sorted(HOSTED))
@pytest.mark.parametrize("key", [f"{KEY}\n", f"{KEY} x", f"{KEY}ü"])
def test_a_key_that_cannot_be_sent_is_refused_unseen(kind: str, key: str) -> None:
    entry = ProviderEntry.model_validate({"name": "web", "type": kind, "api_key": key})
    with pytest.raises(ProviderConfigError, match=r"`api_key` is not valid: .*printable ASCII") as caught:
        registry.build([entry], cast(Any, None))
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "options", "sent"),
    [
        (
            "tavily",
            {"search_depth": "advanced", "include_answer": "basic"},
            {"search_depth": "advanced", "include_answer": "basic"},
        ),
        ("tavily", {"include_answer": True}, {"include_answer": True}),
        ("exa", {"type": "fast", "highlights": False}, {"type": "fast", "contents": None}),
        (
            "exa",
            {"summary": True, "max_age_hours": 0},
            {"contents": {"highlights": True, "summary": {}, "maxAgeHours": 0}},
        ),
        ("brave", {"extra_snippets": True, "safesearch": "off"}, {"extra_snippets": "true", "safesearch": "off"}),
        ("perplexity", {"max_tokens_per_page": 99}, {"max_tokens_per_page": 99}),
        ("serper", {"gl": "at", "hl": "de"}, {"gl": "at", "hl": "de"}),
    ],
)
async def test_options_are_sent(kind: str, options: dict[str, Any], sent: dict[str, Any]) -> None:
    with HOSTED[kind]() as fake:
        async with provider_of(fake.entry(**options)) as named:
            await search(named, SearchQuery("heat", limit=4))
        expected = HOSTED[kind].filters["plain"][1] | sent
        assert fake.asked[0].params == {key: value for key, value in expected.items() if value is not None}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("brave", {"type": "news", "results": [{"title": "N", "url": "https://example.org/n", "age": "1 day ago"}]}),
        ("serper", {"news": [{"title": "N", "link": "https://example.org/n", "date": "1 day ago"}]}),
        ("firecrawl", {"data": {"news": [{"title": "N", "url": "https://example.org/n", "date": "1 day ago"}]}}),
    ],
)
async def test_news_are_read_from_their_own_envelope(kind: str, body: dict[str, Any]) -> None:
    with HOSTED[kind]() as fake:
        fake.reply = as_json(body)
        async with provider_of(fake.entry()) as named:
            (hit,) = (await search(named, SearchQuery("heat", category="news"))).results
    assert (hit.title, hit.url) == ("N", "https://example.org/n")
    assert hit.date is not None


@pytest.mark.parametrize(
    ("kind", "body", "answer"),
    [
        ("tavily", {"answer": "42", "results": []}, "42"),
        ("serper", {"answerBox": {"answer": "42", "snippet": "no"}, "knowledgeGraph": {"description": "no"}}, "42"),
        ("serper", {"answerBox": {"snippet": "42"}}, "42"),
        ("serper", {"answerBox": {"link": "x"}, "knowledgeGraph": {"description": "42"}}, "42"),
    ],
)
async def test_direct_answers(kind: str, body: dict[str, Any], answer: str) -> None:
    with HOSTED[kind]() as fake:
        fake.reply = as_json(body)
        async with provider_of(fake.entry()) as named:
            assert await search(named, SearchQuery("6*7")) == SearchResults((), answer)


@pytest.mark.parametrize(
    ("kind", "query", "sent"),
    [
        ("tavily", SearchQuery("heat", category="news", country="CH"), {"topic": "news"}),
        (
            "tavily",
            SearchQuery("heat", category="general", country="ch"),
            {"topic": "general", "country": "switzerland"},
        ),
        (
            "exa",
            SearchQuery("heat", category="people", time_range="w", published_before=DAY, blocked_domains=("a.org",)),
            {"category": "people"},
        ),
        ("brave", SearchQuery("heat", language="ja"), {"search_lang": "jp"}),
        ("brave", SearchQuery("heat", language="tlh"), {}),
        ("perplexity", SearchQuery("heat", category="academic"), {"search_mode": "academic"}),
        ("jina", SearchQuery("heat", language="zh"), {"hl": "zh-cn"}),
        ("firecrawl", SearchQuery("heat", category="github"), {"categories": ["github"]}),
    ],
)
async def test_what_a_service_refuses_is_not_sent(kind: str, query: SearchQuery, sent: dict[str, Any]) -> None:
    with HOSTED[kind]() as fake:
        async with provider_of(fake.entry()) as named:
            await search(named, replace(query, limit=4))
        assert fake.asked[0].params == HOSTED[kind].filters["plain"][1] | sent


async def test_exa_gives_its_summary_its_highlights_and_whose_they_are() -> None:
    row = {
        "title": "Heat",
        "url": "https://example.org/heat",
        "author": "Ada",
        "score": 0.31,
        "summary": "All about heat.",
        "highlights": ["It flows.", "It ends."],
    }
    with HOSTED["exa"]() as fake:
        fake.reply = as_json({"results": [row, {**row, "url": "https://example.org/b", "author": None, "score": None}]})
        async with provider_of(fake.entry(summary=True)) as named:
            found = await SearchChain([named]).search(SearchQuery("heat", limit=4))
    assert [hit.snippet for hit in found.results.results] == ["All about heat. … It flows. … It ends."] * 2
    assert [(hit.author, hit.score) for hit in found.results.results] == [("Ada", 0.31), (None, None)]


@pytest.mark.parametrize("category", ["scholar", "academic"])
async def test_serper_has_a_place_for_papers(category: str) -> None:
    with HOSTED["serper"]() as fake:
        async with provider_of(fake.entry()) as named:
            assert (await search(named, SearchQuery("heat", category=category))).results
        assert fake.asked[0].path == "/scholar"


async def test_perplexity_takes_twenty_domains() -> None:
    domains = tuple(f"d{number}.example" for number in range(30))
    with HOSTED["perplexity"]() as fake:
        async with provider_of(fake.entry()) as named:
            await search(named, SearchQuery("heat", blocked_domains=domains))
        assert fake.asked[0].params["search_domain_filter"] == [f"-{domain}" for domain in domains[:20]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (SearchQuery("word " * 60), "word " * 49 + "word"),
        (SearchQuery("熱" * 500), "熱" * 400),
        (SearchQuery("heat", blocked_domains=tuple(f"d{number}.example.org" for number in range(60))), "heat"),
        (
            SearchQuery("w" * 380 + " x y", allowed_domains=("example.org",), blocked_domains=("a.org",)),
            "w" * 380 + " x site:example.org",
        ),
    ],
)
async def test_brave_gets_no_longer_query_than_it_takes(query: SearchQuery, expected: str) -> None:
    with HOSTED["brave"]() as fake:
        async with provider_of(fake.entry()) as named:
            await search(named, query)
        assert fake.asked[0].params["q"] == expected


async def test_tavily_without_a_key_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAVILY_API_KEY", KEY)  # of the environment, not of this provider
    with HOSTED["tavily"]() as fake:
        fake.expects_key = False
        async with provider_of(fake.entry().model_copy(update={"api_key": None})) as named:
            await search(named, SearchQuery("heat" * 200))
        (asked,) = fake.asked
    assert asked.headers["x-tavily-access-mode"] == "keyless"
    assert "authorization" not in asked.headers
    assert len(asked.params["query"]) == 400


async def test_jina_search_goes_where_the_reader_is_unless_told_otherwise() -> None:
    with HOSTED["jina"]() as one, HOSTED["jina"]() as other:
        async with provider_of(one.entry(search_url=other.url)) as named:
            await search(named, SearchQuery("heat"))
        assert not one.asked
        assert other.asked[0].headers["x-respond-with"] == "no-content"
        async with provider_of(one.entry(no_content=False)) as named:
            await search(named, SearchQuery("heat"))
        assert "x-respond-with" not in one.asked[0].headers


async def test_jina_without_a_key_says_so_before_it_asks_and_still_reads() -> None:
    entry = ProviderEntry(name="fake", type="jina", base_url="https://r.jina.ai/")
    cooldown = Cooldown("fake", CooldownSettings(failures=1))
    async with provider_of(entry) as named:
        with pytest.raises(Unavailable, match=r"^Jina's search needs a key$") as caught:
            await search(named, SearchQuery("heat"))
    assert "JINA_API_KEY" in caught.value.advice
    with pytest.raises(Unavailable), cooldown.watch("search"):
        raise caught.value
    cooldown.check("read")
    with pytest.raises(CoolingDown, match="needs a key"):
        cooldown.check("search")


async def test_brave_names_the_end_of_the_plans_window() -> None:
    used_up = {"error": {"code": "RATE_LIMITED", "meta": {"quota_limit": 10, "quota_current": 10}}}
    with HOSTED["brave"]() as fake:
        fake.reply = as_json(used_up, 429, X_RateLimit_Reset="1, 1419704")
        async with provider_of(fake.entry()) as named:
            with pytest.raises(QuotaExceeded) as caught:
                await search(named, SearchQuery("heat"))
    assert caught.value.retry_after == 1419704


async def test_tavily_has_a_client_of_its_own() -> None:
    """The SDK writes the key onto the client it is given: nobody else may be using that one."""
    with HOSTED["tavily"]() as one, HOSTED["serper"]() as other:
        async with provider_of(other.entry()) as second, provider_of(one.entry()) as first:
            await search(first, SearchQuery("heat"))
            await search(second, SearchQuery("heat"))
        assert "authorization" in one.asked[0].headers
        assert "authorization" not in other.asked[0].headers


def test_tavily_says_which_extra_it_needs_and_loads_it_late() -> None:
    script = """
import sys
from providers import registry
entry = registry.ProviderEntry(name="web", type="tavily", api_key="sk-canary")
registry.build([entry], None)
assert not {"tavily", "tiktoken", "requests"} & set(sys.modules)
sys.modules["tavily"] = None  # as if it were not installed
try:
    registry.build([entry], None)
except registry.ProviderConfigError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("provider 'web' (tavily): the package tavily-python is missing")
    assert "pip install 'groundwire[tavily]'" in done.stdout
    assert "canary" not in done.stdout
