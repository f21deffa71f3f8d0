"""What a model that searches by itself adds to the contract: the formats in which vendors name their sources."""

from __future__ import annotations

from typing import Any

import pytest

from providers.base import SearchQuery, SearchResult, SearchResults
from providers.chain import AllFailed, SearchChain
from providers.errors import NoResults, Unavailable
from providers.registry import ProviderConfigError, ProviderEntry
from tests.fakes.search_engine import HITS
from tests.fakes.search_model import NAME, FakeModelSearch, chat, cited, lines, responses
from tests.fakes.service import Reply, as_json, provider_of, search

FIRST, SECOND = HITS[:2]
NUMBERED = "\n".join(f"{line} [{n}]" for n, line in enumerate(lines(HITS[:2]), 1))
LINKED = "\n".join(f"{line} [[{n}]]({hit.url})" for n, (line, hit) in enumerate(zip(lines(HITS), HITS, strict=True), 1))
URLS = [hit.url for hit in HITS[:2]]


async def found(answer: Any, **options: Any) -> SearchResults:
    with FakeModelSearch() as fake:
        fake.reply = as_json(answer)
        async with provider_of(fake.entry(**options)) as named:
            return await search(named, SearchQuery("heat", limit=4))


async def shown(answer: Any) -> SearchResults:
    """What is left of it behind the chain, which all results go through."""
    with FakeModelSearch() as fake:
        fake.reply = as_json(answer)
        async with provider_of(fake.entry()) as named:
            return (await SearchChain([named]).search(SearchQuery("heat", limit=4))).results


def untitled(hit: SearchResult) -> SearchResult:
    return SearchResult("", hit.url, " ".join(hit.snippet.split()))


ROWS = [{"title": hit.title, "url": hit.url, "date": "2026-05-01", "last_updated": None} for hit in HITS[:2]]
OPENROUTER = [
    {"type": "url_citation", "url_citation": {"url": FIRST.url, "title": FIRST.title, "content": "Verbatim."}}
]
TITLED = [SearchResult(hit.title, hit.url, hit.snippet) for hit in HITS[:2]]
DATED = [SearchResult(hit.title, hit.url, hit.snippet, "2026-05-01") for hit in HITS[:2]]
UNTITLED = [untitled(hit) for hit in HITS[:2]]


@pytest.mark.parametrize(
    ("api", "answer", "expected"),
    [
        ("chat", chat(*cited(HITS[:2], nested=True)), TITLED),
        ("chat", chat(*cited(HITS[:2], nested=False)), TITLED),
        ("chat", chat(NUMBERED, search_results=ROWS, citations=URLS), DATED),
        ("chat", chat(NUMBERED, citations=URLS), UNTITLED),
        ("chat", chat(LINKED, citations=URLS), UNTITLED),
        ("chat", chat("Heat.", OPENROUTER), [SearchResult(FIRST.title, FIRST.url, "Verbatim.")]),
        ("responses", responses(*cited(HITS[:2], nested=False)), TITLED),
        (
            "responses",
            responses(*cited(HITS[:1], nested=False), sources=[FIRST.url, SECOND.url]),
            [TITLED[0], SearchResult("", SECOND.url)],
        ),
        ("responses", responses(LINKED, citations=URLS), UNTITLED),
    ],
)
async def test_sources_of_every_vendor(api: str, answer: Any, expected: list[SearchResult]) -> None:
    results = await found(answer, api=api)
    assert list(results.results) == expected
    assert results.answer


async def test_what_a_responses_model_is_asked() -> None:
    with FakeModelSearch() as fake:
        fake.reply = as_json(responses(*cited(HITS[:1], nested=False)))
        async with provider_of(fake.entry(api="responses")) as named:
            await search(named, SearchQuery("heat", allowed_domains=("example.org",), country="CH"))
        (asked,) = fake.asked
    assert asked.path == "/responses"
    assert (asked.params["input"], asked.params["model"], asked.params["store"]) == ("heat", NAME, False)
    assert asked.params["tools"] == [
        {
            "type": "web_search",
            "user_location": {"type": "approximate", "country": "CH"},
            "filters": {"allowed_domains": ["example.org"]},
        }
    ]
    assert "Name only pages of example.org." in asked.params["instructions"]


async def test_more_of_the_request_is_the_operators() -> None:
    with FakeModelSearch() as fake:
        body = {"web_search_options": None, "search_parameters": {"mode": "on"}}
        async with provider_of(fake.entry(body=body)) as named:
            await search(named, SearchQuery("heat"))
        (asked,) = fake.asked
    assert "web_search_options" not in asked.params
    assert asked.params["search_parameters"] == {"mode": "on"}


@pytest.mark.parametrize(
    "answer",
    [
        chat("x", [{"url_citation": {"url": FIRST.url, "start_index": -5, "title": 7}}]),
        chat("x", [{"url_citation": {"url": FIRST.url, "start_index": 10**9}}]),
        chat("x", [{"url": FIRST.url, "start_index": "1"}]),
        {"choices": [{"message": {"content": [{"text": "x"}]}}], "citations": [FIRST.url, None, 7]},
    ],
)
async def test_odd_answers_keep_what_is_right_in_them(answer: Any) -> None:
    results = await found(answer)
    assert [hit.url for hit in results.results] == [FIRST.url]


@pytest.mark.parametrize(
    "text", ["[" * 90_000, "[x](https://a" * 50_000, "(" * 90_000, "- " * 90_000, "[1]\n" * 20_000]
)
async def test_long_answers_take_no_time(text: str) -> None:
    """Of a hundred sources each is looked up in them; the test would run out of its own time."""
    urls = [f"https://example.org/{n}" for n in range(500)]
    results = await found(chat(text, [{"url": FIRST.url, "start_index": len(text)}] * 500, citations=urls))
    assert len(results.results) == 100


@pytest.mark.parametrize(
    "thought", ["<think>\nThe first [1] may do.\n</think>\n\n", "\n<think>" + "x " * 20_000 + "</think>"]
)
async def test_what_it_thought_is_no_answer(thought: str) -> None:
    """Perplexity's reasoning models think aloud before they speak."""
    results = await found(chat(thought + NUMBERED, search_results=ROWS))
    assert list(results.results) == DATED
    assert results.answer == NUMBERED


async def test_a_thought_without_an_end_is_no_answer_either() -> None:
    results = await found(chat("<think>\nThe first [1] may do.", search_results=ROWS))
    assert (results.answer, [hit.snippet for hit in results.results]) == ("", ["", ""])


async def test_an_answer_in_parts() -> None:
    parts = [{"type": "text", "text": lines(HITS)[0] + " "}, {"type": "reference", "ids": [0]}, 7, {"text": "[1]"}]
    results = await found({"choices": [{"message": {"content": parts}}], "citations": [FIRST.url]})
    assert list(results.results) == [untitled(FIRST)]


async def test_addresses_that_are_none_are_no_source() -> None:
    """No source, no result: then what the model says is worth nothing either."""
    urls = ["javascript:alert(1)", "/relative", "http://127.0.0.1/", "data:text/html,x", "https://[::1]/", ""]
    with pytest.raises(AllFailed) as nothing:
        await shown(chat("I know it by heart.", citations=urls))
    assert [type(failure.error) for failure in nothing.value.failures] == [NoResults]
    results = await shown(chat("Heat rises [7].", citations=[*urls, FIRST.url, f"{FIRST.url}?utm_source=openai"]))
    assert [hit.url for hit in results.results] == [FIRST.url]


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_stream_that_nobody_asked_for_is_a_failure(api: str) -> None:
    with FakeModelSearch() as fake:
        fake.reply = Reply(
            200, b'data: {"choices": [{"delta": {"content": "x"}}]}\n\ndata: [DONE]\n\n', "text/event-stream"
        )
        async with provider_of(fake.entry(api=api)) as named:
            with pytest.raises(Unavailable, match="not the expected JSON"):
                await search(named, SearchQuery("heat"))
        assert len(fake.asked) == 1, "each question costs money"


async def test_it_says_which_model_is_missing() -> None:
    entry = ProviderEntry(name="web", type="model")
    with pytest.raises(ProviderConfigError, match=r"`model` is missing; set `model: …` under `options:`"):
        async with provider_of(entry):
            raise AssertionError("it was made")
