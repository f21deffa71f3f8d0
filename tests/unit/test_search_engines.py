"""The dialects of search engines, and the doors where their clients knock: pure, without a server."""

from __future__ import annotations

import json
import re
import tracemalloc
from base64 import b64encode
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.base import SearchQuery
from providers.queries import with_sites
from proxy.dialects import alpha_search, openwebui, searxng, tavily
from proxy.dialects.engine_dialect import EngineDialect
from proxy.dialects.search_engines import ReadText, since
from proxy.serving import search_engine_clients
from proxy.values.errors import RequestError, failure
from tools.ledger import Source
from tools.render import SearchAnswer

TODAY = date(2026, 11, 17)
SOURCES = tuple(Source(n, f"https://example.org/{n}", f"Page {n}", f"Says {n}.") for n in range(1, 21))
FOUND = SearchAnswer("sky", "web", "Blue.", SOURCES)


def searched(**body: Any) -> tavily.TavilySearch:
    return tavily.decode_search(json.dumps({"query": "sky", **body}).encode(), TODAY)


def refused(call: Any, *arguments: Any) -> str:
    with pytest.raises(RequestError) as caught:
        call(*arguments)
    assert caught.value.failed.status == 400
    return str(caught.value)


# Tavily


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ({}, {}),
        ({"include_domains": ["a.org"], "exclude_domains": ["b.org"]},
         {"allowed_domains": ["a.org"], "blocked_domains": ["b.org"]}),
        ({"include_domains": None, "topic": None, "time_range": None}, {}),
        ({"topic": "news"}, {"category": "news"}),
        ({"topic": "general"}, {}),
        ({"time_range": "week"}, {"time_range": "w"}),
        ({"time_range": "y"}, {"time_range": "y"}),
        ({"days": 3}, {"time_range": "w", "published_after": "2026-11-14"}),
        ({"days": 10**9}, {"time_range": "all", "published_after": "1970-01-01"}),
        ({"days": 3, "time_range": "day"}, {"time_range": "d", "published_after": "2026-11-14"}),
        ({"start_date": "2026-01-02", "end_date": "2026-02-01"},
         {"published_after": "2026-01-02", "published_before": "2026-02-01"}),
    ],
)  # fmt: skip
def test_what_tavilys_fields_mean(body: dict[str, Any], arguments: dict[str, Any]) -> None:
    plain = {"query": "sky", "allowed_domains": [], "blocked_domains": [], "category": ""}
    assert searched(**body).search.arguments == {**plain, **arguments}


def test_where_and_how_much() -> None:
    search = searched(country="Switzerland", language="de", max_results=50).search
    assert (search.country, search.language, search.limit) == ("CH", "de", 20)
    search = searched(country="Atlantis", language="klingon").search
    assert (search.country, search.language, search.limit) == ("", "", None)
    assert searched(max_results=0).search.limit == 1


@pytest.mark.parametrize("wanted", [True, "basic", "advanced"])
def test_an_answer_comes_where_it_is_wanted(wanted: Any) -> None:
    assert tavily.search_answer(searched(include_answer=wanted), FOUND, {}, 0.1, "r")["answer"] == "Blue."
    assert tavily.search_answer(searched(), FOUND, {}, 0.1, "r")["answer"] is None
    unanswered = SearchAnswer("sky", "web", "", SOURCES)
    assert tavily.search_answer(searched(include_answer=wanted), unanswered, {}, 0.1, "r")["answer"] == "", "a text"


def test_the_rows_of_an_answer() -> None:
    answer = tavily.search_answer(searched(max_results=3), FOUND, {SOURCES[0].url: "All of it."}, 0.123, "r")
    assert [row["raw_content"] for row in answer["results"]] == ["All of it.", None, None]
    assert answer["response_time"] == 0.12
    scores = [row["score"] for row in tavily.search_answer(searched(), FOUND, {}, 0.1, "r")["results"]]
    assert scores == sorted(scores, reverse=True)
    assert (scores[0], min(scores) >= 0.5) == (1.0, True)


def test_pages_and_what_could_not_be_read() -> None:
    pages = [ReadText("https://a.org/", "A", "Text."), ReadText("https://b.org/", error="It is closed.")]
    answer = tavily.extract_answer(pages, 1, "r")
    assert [page["url"] for page in answer["results"]] == ["https://a.org/"]
    assert answer["failed_results"] == [{"url": "https://b.org/", "error": "It is closed."}]
    assert tavily.decode_extract(b'{"urls": " https://a.org/ "}').urls == ("https://a.org/",)
    assert tavily.decode_extract(b'{"urls": ["a", "a"], "query": "x", "chunks_per_source": 2}').length == 1000
    assert "urls" in refused(tavily.decode_extract, b'{"urls": 7}')


def test_a_refusal_does_not_repeat_what_was_sent() -> None:
    assert "hunter2" not in refused(tavily.decode_search, b'{"query": "x", "topic": "hunter2"}', TODAY)


@pytest.mark.parametrize(("days", "named"), [(1, "d"), (2, "w"), (7, "w"), (31, "m"), (32, "y"), (400, "all")])
def test_days_as_the_next_larger_range(days: int, named: str) -> None:
    assert since(days, TODAY)["time_range"] == named


@pytest.mark.parametrize(
    ("decode", "body"),
    [
        (lambda raw: tavily.decode_search(raw, TODAY), {"query": "sky", "include_domains": [0] * 200_000}),
        (lambda raw: tavily.decode_search(raw, TODAY), {"query": "sky", "exclude_domains": [None] * 200_000}),
        (tavily.decode_extract, {"urls": [0] * 200_000}),
        (openwebui.decode_load, {"urls": [0] * 200_000}),
    ],
)
def test_of_a_long_list_in_which_all_is_wrong_the_first_says_enough(decode: Any, body: dict[str, Any]) -> None:
    """Each wrong entry is kept as an error of some hundred bytes otherwise, while nobody else is served."""
    raw = json.dumps(body).encode()
    tracemalloc.start()
    try:
        assert "`" in refused(decode, raw)
        assert tracemalloc.get_traced_memory()[1] < 10 * len(raw) + 10_000_000
    finally:
        tracemalloc.stop()


def test_what_passages_are_asked_for_has_an_end() -> None:
    assert "query" in refused(tavily.decode_extract, json.dumps({"urls": "a", "query": "x " * 201}).encode())
    assert tavily.decode_extract(json.dumps({"urls": "a", "query": "x" * 400}).encode()).query == "x" * 400
    assert tavily.decode_extract(b'{"urls": "a", "query": " "}').length is None, "there is nothing to look for"


@pytest.mark.parametrize("day", ["yesterday", "2026-13-01", "20260101", "-1", 0, 1_767_225_600, True, "2026-01-01x"])
@pytest.mark.parametrize("name", ["start_date", "end_date"])
def test_a_day_that_is_none_is_refused_with_one_that_is(name: str, day: Any) -> None:
    said = refused(tavily.decode_search, json.dumps({"query": "sky", name: day}).encode(), TODAY)
    assert name in said
    assert "2026-01-31" in said


def test_days_in_the_wrong_order_are_refused() -> None:
    body = {"query": "sky", "start_date": "2026-02-01", "end_date": "2026-01-31"}
    assert "end_date" in refused(tavily.decode_search, json.dumps(body).encode(), TODAY)
    assert searched(start_date="2026-02-01", end_date="2026-02-01").search.arguments["published_before"]


# SearXNG


@pytest.mark.parametrize(
    ("given", "country", "language"),
    [("de-CH", "CH", "de"), ("de", "", "de"), ("all", "", ""), ("auto", "", ""), ("pt_BR", "BR", "pt"), ("", "", "")],
)
def test_a_language_of_searxng(given: str, country: str, language: str) -> None:
    search = searxng.decode_search({"q": "sky", "format": "json", "language": given}).search
    assert (search.country, search.language) == (country, language)


@pytest.mark.parametrize(
    ("given", "category", "shown"),
    [("", "", "general"), ("general", "", "general"), ("general, news", "news", "news"), (",it,news", "it", "it")],
)
def test_a_category_of_searxng(given: str, category: str, shown: str) -> None:
    asked = searxng.decode_search({"q": "sky", "format": "json", "categories": given})
    assert (asked.search.arguments["category"], asked.category) == (category, shown)


def test_pages_of_searxng() -> None:
    first, second, third = (
        searxng.decode_search({"q": "sky", "format": "json", "pageno": page}) for page in ("", "2", "3")
    )
    assert [asked.search.limit for asked in (first, second)] == [10, 20]
    assert [asked.beyond for asked in (first, second, third)] == [False, False, True]
    shown = searxng.search_answer(second, FOUND)
    assert [row["url"] for row in shown["results"]] == [source.url for source in SOURCES[10:]]
    assert shown["results"][0]["positions"] == [11]
    assert shown["answers"] == []
    assert searxng.search_answer(first, FOUND)["answers"] == ["Blue."]
    assert searxng.search_answer(third, searxng.nothing_found(third))["results"] == []


@pytest.mark.parametrize(
    ("q", "text", "allowed", "blocked"),
    [
        ("heat site:a.org", "heat", ["a.org"], []),
        ("site:docs.a.org  heat pumps", "heat pumps", ["docs.a.org"], []),
        ("heat (site:a.org OR site:b.org) -site:c.org -site:d.org", "heat", ["a.org", "b.org"], ["c.org", "d.org"]),
        ("heat SITE:A.org", "heat", ["A.org"], []),
        ("heat site:a.org/path", "heat site:a.org/path", [], []),
        ("heat site: a.org", "heat site: a.org", [], []),
        ("what does site:a.org mean (really)", "what does mean (really)", ["a.org"], []),
        ("website:a.org", "website:a.org", [], []),
        ("site:a.org", "site:a.org", [], []),
        ("(site:a.org OR heat)", "(site:a.org OR heat)", [], []),
        ("", "", [], []),
    ],
)
def test_domains_as_people_write_them_for_an_engine(q: str, text: str, allowed: list[str], blocked: list[str]) -> None:
    arguments = searxng.decode_search({"q": q, "format": "json"}).search.arguments
    given = [arguments[name] for name in ("query", "allowed_domains", "blocked_domains")]
    assert given == [text, allowed, blocked]


@given(
    allowed=st.lists(st.sampled_from(["a.org", "b-c.de", "d.co.uk"]), unique=True),
    blocked=st.lists(st.sampled_from(["x.org", "y.z.com"]), unique=True),
)
def test_what_our_own_provider_writes_is_read_as_it_was_meant(allowed: list[str], blocked: list[str]) -> None:
    query = SearchQuery("heat pumps", allowed_domains=tuple(allowed), blocked_domains=tuple(blocked))
    arguments = searxng.decode_search({"q": with_sites(query), "format": "json"}).search.arguments
    assert arguments["query"] == "heat pumps"
    assert (arguments["allowed_domains"], arguments["blocked_domains"]) == (allowed, blocked)


@pytest.mark.parametrize("page", ["3", "9999", "10000", "999999", "9" * 100])
def test_beyond_the_last_page_there_is_nothing(page: str) -> None:
    asked = searxng.decode_search({"q": "sky", "format": "json", "pageno": page})
    assert asked.beyond
    assert searxng.search_answer(asked, searxng.nothing_found(asked))["results"] == []


@pytest.mark.parametrize("page", ["0", "-1", "1.0", " 1", "１", "1e3"])
def test_what_is_no_page(page: str) -> None:
    assert "pageno" in refused(searxng.decode_search, {"q": "sky", "format": "json", "pageno": page})


# Open WebUI


def test_open_webui() -> None:
    search = openwebui.decode_search(b'{"query": "sky", "count": 50, "more": 1}')
    assert (search.arguments, search.limit) == ({"query": "sky"}, 20)
    assert openwebui.decode_search(b'{"query": "sky", "count": null}').limit is None
    assert openwebui.search_answer(FOUND)[0] == {
        "link": SOURCES[0].url,
        "title": "Page 1",
        "snippet": "Says 1.",
    }
    assert openwebui.decode_load(b'{"urls": ["a", "a", "b"]}') == ["a", "b"]


# The doors


def scope_of(method: str, path: str, query: str = "") -> dict[str, Any]:
    return {"type": "http", "method": method, "path": path, "query_string": query.encode()}


def basic(text: str) -> list[bytes]:
    return [b"Basic " + b64encode(text.encode())]


@pytest.mark.parametrize(
    ("given", "key"),
    [
        (basic("x:a-key"), b"Bearer a-key"),
        (basic(":a-key"), b"Bearer a-key"),
        (basic("x:a:key"), b"Bearer a:key"),
        (basic("a-key"), b"Bearer "),
        ([b"basic " + b64encode(b"x:a-key")], b"Bearer a-key"),
        ([b"Basic ???"], b"Basic ???"),
        ([b"Basic \xff"], b"Basic \xff"),
        ([b"Bearer a-key"], b"Bearer a-key"),
    ],
)
def test_a_password_is_the_key(given: list[bytes], key: bytes) -> None:
    headers = {b"authorization": given}
    for scope in (scope_of("GET", "/search"), scope_of("GET", "/", "q=sky")):
        assert search_engine_clients.with_password_as_key(scope, headers)[b"authorization"] == [key]
    for scope in (scope_of("POST", "/search"), scope_of("GET", "/"), scope_of("GET", "/v1/models", "q=x")):
        assert search_engine_clients.with_password_as_key(scope, headers) == headers


def test_two_passwords_are_left_to_who_refuses_them() -> None:
    headers = {b"authorization": [*basic("x:a"), *basic("x:b")]}
    assert search_engine_clients.with_password_as_key(scope_of("GET", "/search"), headers) == headers


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b'{"api_key": "a-key"}', b"Bearer a-key"),
        (b'{"api_key": ""}', None),
        (b'{"api_key": ["a-key"]}', None),
        (b'["a-key"]', None),
        (b"{", None),
        (b"", None),
        ('{"api_key": "ключ"}'.encode(), b"Bearer ????"),
    ],
)
@pytest.mark.parametrize("size", [1, 5, 1000])
async def test_a_key_in_a_body_however_it_comes(body: bytes, key: bytes | None, size: int) -> None:
    pieces = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
    sent = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    sent[-1]["more_body"] = False
    waiting = list(sent)

    async def receive() -> Any:
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    headers, again = await search_engine_clients.with_key_of_body(scope_of("POST", "/search"), {}, receive, 5)
    assert headers.get(b"authorization") == ([key] if key else None)
    assert [await again() for _ in sent] == sent
    assert await again() == {"type": "http.disconnect"}


async def test_a_body_is_read_for_its_key_only_where_no_header_holds_one() -> None:
    async def receive() -> Any:
        raise AssertionError("it was read")

    for scope, headers in (
        (scope_of("POST", "/search"), {b"authorization": [b"Bearer x"]}),
        (scope_of("POST", "/search"), {b"x-api-key": [b"x"]}),
        (scope_of("POST", "/v1/search"), {}),
        (scope_of("GET", "/search"), {}),
    ):
        assert await search_engine_clients.with_key_of_body(scope, headers, receive, 5) == (headers, receive)


def test_a_refusal_stands_where_every_client_looks() -> None:
    said = json.loads(EngineDialect().error(failure(400, "No.", code="x")))
    assert said == {"detail": {"error": "No."}, "error": "No.", "code": "x"}


# Whatever is sent

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
ANYTHING = st.recursive(SCALARS, lambda some: st.lists(some, max_size=4) | st.dictionaries(st.text(), some, max_size=3))
ODD = st.sampled_from(
    ["sky", "", "\u200b", "2026-01-31", "9999-12-31", "day", "news", "a.org", "5", 5, 0, -1, 1e300, True]
)
FIELDS = [
    *("query", "max_results", "days", "start_date", "end_date", "time_range", "topic", "include_domains", "country"),
    *("exclude_domains", "include_answer", "include_raw_content", "language", "search_depth", "urls", "count"),
    *("chunks_per_source", "commands", "settings", "max_output_tokens"),
]
BODIES = st.dictionaries(st.sampled_from(FIELDS), ODD | ANYTHING | st.lists(ODD, max_size=4))
DECODERS = [
    lambda raw: tavily.decode_search(raw, TODAY),
    tavily.decode_extract,
    openwebui.decode_search,
    openwebui.decode_load,
    alpha_search.decode,
]


def reason_of(call: Any, *arguments: Any) -> str:
    """Why it is refused; empty if it is not. Nothing but a refusal is expected."""
    try:
        call(*arguments)
    except RequestError as error:
        return f"{error.failed.status} {error}"
    return ""


@pytest.mark.parametrize("decode", DECODERS)
@given(body=BODIES)
def test_a_body_is_a_request_or_is_refused_with_a_reason(decode: Any, body: dict[str, Any]) -> None:
    assert re.fullmatch(r"(400 .{10,500})?", reason_of(decode, json.dumps(body).encode()))


@given(asked=st.dictionaries(st.sampled_from(["q", "pageno", "time_range", "language", "categories"]), st.text()))
def test_an_address_is_a_search_or_is_refused_with_a_reason(asked: dict[str, str]) -> None:
    assert re.fullmatch(r"(400 .{10,500})?", reason_of(searxng.decode_search, {"format": "json", **asked}))
