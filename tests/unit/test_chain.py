"""Fail-over: who is asked, in which order, what counts as an answer, and what is said when nobody has one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from providers import errors
from providers.api import retry_after
from providers.base import Page, SearchQuery, SearchResult, SearchResults
from providers.chain import _INSIDE, AllFailed, Failure, Found, ReadChain, SearchChain
from providers.gateway import GRACE
from providers.queries import with_sites
from providers.registry import NamedProvider

HIT = SearchResult("A", "https://example.org/a", "text")
QUERY = SearchQuery("q")


class Scripted:
    """A provider that gives what it was handed: a value, an error to raise, or a coroutine function to run."""

    def __init__(self, outcome: Any, timeout: float | None = None) -> None:
        self.outcome = outcome
        self.asked: list[Any] = []
        if timeout is not None:
            self.timeout = timeout

    async def _play(self, asked: Any) -> Any:
        self.asked.append(asked)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return await self.outcome() if callable(self.outcome) else self.outcome

    async def search(self, query: SearchQuery) -> Any:
        return await self._play(query)

    async def read(self, url: str) -> Any:
        return await self._play(url)


class Owning(Scripted):
    def __init__(self, prefix: str, outcome: Any) -> None:
        super().__init__(outcome)
        self.prefix = prefix

    def owns(self, url: str) -> bool:
        return url.startswith(self.prefix)


def member(name: str, outcome: Any, *, private: bool = False, timeout: float | None = None) -> NamedProvider:
    return NamedProvider(name, "scripted", Scripted(outcome, timeout), private)


def asked(named: NamedProvider) -> list[Any]:
    assert isinstance(named.provider, Scripted)
    return named.provider.asked


async def forever() -> None:
    await asyncio.Event().wait()


async def test_all_that_a_provider_says_besides_its_hits_is_handed_on() -> None:
    said: dict[str, Any] = {field.name: field.name for field in fields(SearchResults)}
    given = SearchResults(**{**said, "results": (HIT, HIT)})
    found = await SearchChain([member("a", given)]).search(QUERY)
    assert found.results == replace(given, results=(HIT,))


async def test_the_first_answer_wins() -> None:
    first, second = member("a", [HIT]), member("b", [HIT])
    assert await SearchChain([first, second]).search(QUERY) == Found(SearchResults((HIT,)), "a")
    assert not asked(second)


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        ([], "nothing found"),
        (SearchResults(()), "nothing found"),
        ([SearchResult("x", "javascript:alert(1)")], _INSIDE),
        (errors.NoResults("none here"), "none here"),
        (errors.AuthFailed("key refused"), "key refused"),
        (errors.QuotaExceeded("used up"), "used up"),
        (errors.RateLimited("slow down", retry_after=3), "slow down"),
        (errors.TimedOut("late"), "late"),
        (errors.Unavailable("down"), "down"),
        (KeyError("sk-secret"), "the provider failed (KeyError)"),
        (TimeoutError("a socket's"), "the provider failed (TimeoutError)"),
        ("a string", "the provider returned str, not a list of results"),
        ([42], "the provider returned int, not a SearchResult"),
        (None, "the provider returned NoneType, not a list of results"),
    ],
)
async def test_failures_and_emptiness_fall_over(outcome: Any, reason: str) -> None:
    chain = SearchChain([member("a", outcome), member("b", [HIT])])
    assert await chain.search(QUERY) == Found(SearchResults((HIT,)), "b", (Failure("a", reason),))


@pytest.mark.parametrize("error", [errors.BadRequest("bad query"), errors.NotAllowed("refused")])
async def test_a_wrong_request_stops_the_chain(error: errors.ProviderError) -> None:
    second = member("b", [HIT])
    with pytest.raises(type(error)) as caught:
        await SearchChain([member("a", error), second]).search(QUERY)
    assert caught.value is error
    assert not asked(second)


async def test_when_all_fail_each_reason_is_named() -> None:
    chain = SearchChain([member("a", errors.Unavailable("It is down.")), member("b", [])])
    with pytest.raises(AllFailed) as caught:
        await chain.search(QUERY)
    assert str(caught.value) == "No search provider had an answer (a: It is down; b: nothing found)."
    assert caught.value.failures == (Failure("a", "It is down."), Failure("b", "nothing found"))


async def test_an_empty_chain_says_so() -> None:
    with pytest.raises(AllFailed, match=r"No search provider had an answer \(none is configured\)\."):
        await SearchChain([]).search(QUERY)


async def test_web_pages_need_a_reader_for_them() -> None:
    shelf = NamedProvider("shelf", "scripted", Owning("local:", Page("local:shelf/a.md", "A", "Words.")))
    for members in ([], [shelf]):
        with pytest.raises(errors.Unavailable, match=r"^no configured reader can open web pages$"):
            await ReadChain(members).read("https://example.org/")
    assert (await ReadChain([shelf]).read("local:shelf/a.md")).provider == "shelf"


async def test_a_foreign_exception_leaves_no_secret_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(AllFailed) as caught:
        await SearchChain([member("a", KeyError("sk-secret"))]).search(QUERY)
    assert "provider a raised KeyError" in caplog.text
    assert "sk-secret" not in caplog.text + str(caught.value)


async def test_a_pinned_provider_goes_first_and_the_rest_follow() -> None:
    a, b, c = member("a", [HIT]), member("b", []), member("c", errors.TimedOut("late"))
    found = await SearchChain([a, b, c]).search(QUERY, provider="c")
    assert found.provider == "a"
    assert found.failures == (Failure("c", "late"),)
    assert not asked(b)


async def test_an_unknown_pin_names_the_valid_ones() -> None:
    with pytest.raises(errors.BadRequest, match=r"no search provider 'x'; valid names: a, b\."):
        await SearchChain([member("a", [HIT]), member("b", [HIT])]).search(QUERY, provider="x")


async def test_private_does_not_fall_over_to_public() -> None:
    private, public, second = member("p", [], private=True), member("w", [HIT]), member("p2", [HIT], private=True)
    found = await SearchChain([private, public, second]).search(QUERY)
    assert found.provider == "p2"
    assert [failure.provider for failure in found.failures] == ["p", "w"]
    assert "a private provider came first" in found.failures[1].reason
    assert "`tools.public_fallback`" in found.failures[1].advice
    assert not asked(public)


async def test_private_falls_over_to_public_when_allowed() -> None:
    chain = SearchChain([member("p", [], private=True), member("w", [HIT])], public_fallback=True)
    assert (await chain.search(QUERY)).provider == "w"


async def test_public_falls_over_to_private() -> None:
    chain = SearchChain([member("w", []), member("p", [HIT], private=True)])
    assert (await chain.search(QUERY)).provider == "p"


async def test_reading_keeps_to_the_same_privacy() -> None:
    public = member("w", Page("https://example.org/", "t", "x"))
    with pytest.raises(AllFailed, match="No reader could open the page"):
        await ReadChain([member("p", errors.TimedOut("late"), private=True), public]).read("https://example.org/")
    assert not asked(public)


class Dialling(Scripted):
    uses_open_web = True


class Hosted(Scripted):
    hosted = True


async def test_a_reader_that_dials_the_page_itself_is_no_public_provider() -> None:
    page = Page("https://example.org/", "t", "x")
    private, dialling = (
        member("p", errors.TimedOut("late"), private=True),
        NamedProvider("direct", "direct", Dialling(page)),
    )
    assert (await ReadChain([private, dialling]).read("https://example.org/")).provider == "direct"
    searcher = NamedProvider("scraper", "plugin", Dialling([HIT]))  # it dials an engine then, and tells it the query
    with pytest.raises(AllFailed, match="a private provider came first"):
        await SearchChain([member("p", [], private=True), searcher]).search(QUERY)


async def test_a_reader_that_was_not_asked_is_none_that_came_first() -> None:
    async def unless_it_is_ours(url: str) -> bool:
        return False

    page = Page("http://wiki.internal/", "t", "x")
    hosted, second = NamedProvider("crawl4ai", "crawl4ai", Hosted(page), private=True), member("w", page)
    opened = await ReadChain([hosted, second], is_public=unless_it_is_ours).read("http://wiki.internal/")
    assert (opened.provider, len(opened.failures)) == ("w", 1)
    assert not asked(hosted)


async def test_a_plugin_that_fails_to_say_what_it_owns_owns_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Scripted):
        def owns(self, url: str) -> bool:
            raise ValueError("sk-secret")

    broken = NamedProvider("plugin", "plugin", Broken(Page("u", "t", "x")))
    with caplog.at_level(logging.DEBUG):
        opened = await ReadChain([broken, member("web", Page("u", "t", "x"))]).read("https://example.org/")
    assert opened.provider == "web"
    assert "provider plugin raised ValueError" in caplog.text
    assert "sk-secret" not in caplog.text


async def test_a_provider_that_hangs_is_left_behind() -> None:
    late = member("a", forever, timeout=0.05 - GRACE)
    found = await SearchChain([late, member("b", [HIT])]).search(QUERY)
    assert found.failures == (Failure("a", "no answer in time"),)


@pytest.mark.parametrize("kind", ["search", "read"])
async def test_cancellation_passes_through(kind: str) -> None:
    first, second = member("a", forever), member("b", [HIT])
    members = [first, second]
    work: Callable[[], Any] = (
        (lambda: SearchChain(members).search(QUERY))
        if kind == "search"
        else (lambda: ReadChain(members).read("https://example.org/"))
    )
    task = asyncio.create_task(work())
    while not asked(first):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not asked(second)


async def results_of(hits: list[SearchResult], query: SearchQuery, *, private: bool = False) -> list[str]:
    found = await SearchChain([member("a", hits, private=private)]).search(query)
    return [hit.url for hit in found.results.results]


def hits(*urls: str) -> list[SearchResult]:
    return [SearchResult("t", url) for url in urls]


async def test_domains_are_matched_on_the_host_exactly_or_below() -> None:
    urls = [
        "https://example.org/",
        "https://docs.EXAMPLE.org:8443/x",
        "https://badexample.org/",
        "https://example.org.evil.net/",
        "https://evil.net/example.org",
        "https://example.org@evil.net/",
    ]
    assert await results_of(hits(*urls), SearchQuery("q", 9, allowed_domains=("example.org",))) == urls[:2]
    assert await results_of(hits(*urls), SearchQuery("q", 9, blocked_domains=("example.org",))) == urls[2:5]
    both = SearchQuery("q", 9, allowed_domains=("example.org",), blocked_domains=("docs.example.org",))
    assert await results_of(hits(*urls), both) == urls[:1]


@pytest.mark.parametrize(
    "written", ["example.org", "EXAMPLE.ORG.", "*.example.org", ".example.org", "https://example.org/x"]
)
async def test_domains_as_people_write_them(written: str) -> None:
    provider = member("a", hits("https://a.example.org/", "https://other.net/"))
    found = await SearchChain([provider]).search(SearchQuery("q", allowed_domains=(written,)))
    assert [hit.url for hit in found.results.results] == ["https://a.example.org/"]
    assert asked(provider)[0].allowed_domains == ("example.org",)


async def test_international_domains_match_in_either_spelling() -> None:
    urls = ["https://bücher.example/", "https://xn--bcher-kva.example/a"]
    for written in ("bücher.example", "xn--bcher-kva.example"):
        assert await results_of(hits(*urls), SearchQuery("q", allowed_domains=(written,))) == urls


async def test_a_filter_without_a_domain_in_it_is_no_open_door() -> None:
    provider = member("a", hits("https://example.org/"))
    with pytest.raises(errors.BadRequest):
        await SearchChain([provider]).search(SearchQuery("q", allowed_domains=(" ", "/")))
    assert not asked(provider)


async def test_a_local_document_is_filtered_by_its_label() -> None:
    found = hits("local:handbook/a.md", "https://example.org/")
    blocked, allowed = SearchQuery("q", blocked_domains=("handbook",)), SearchQuery("q", allowed_domains=("handbook",))
    assert await results_of(found, blocked, private=True) == ["https://example.org/"]
    assert await results_of(found, allowed, private=True) == ["local:handbook/a.md"]


async def test_documents_of_ours_are_not_for_a_public_engine_to_name() -> None:
    found = hits("local:handbook/a.md", " LOCAL:handbook/b.md", "https://example.org/")
    assert await results_of(found, QUERY) == ["https://example.org/"]
    owner = NamedProvider("docs", "local", Owning("local:handbook/", found))
    assert len((await SearchChain([owner]).search(QUERY)).results.results) == 3


async def test_only_web_and_local_addresses_once_each_and_no_more_than_asked() -> None:
    found = hits(
        "ftp://example.org/a", "https://example.org/a", "https://www.example.org/a/", "http://example.org/a#x", "https://",
        "http://[bad", "data:text/plain,x", "local:d/a.md", "local:d/a.md", "https://example.org/b", "https://example.org/c"
    )  # fmt: skip
    expected = ["https://example.org/a", "local:d/a.md", "https://example.org/b", "https://example.org/c"]
    assert await results_of(found, SearchQuery("q", 9), private=True) == expected
    assert await results_of(found, SearchQuery("q", 2), private=True) == expected[:2]


async def test_dated_results_must_lie_in_the_range() -> None:
    found = [
        SearchResult("old", "https://a.org/1", date="2025-12-31"),
        SearchResult("first", "https://a.org/2", date="2026-01-01T08:00:00"),
        SearchResult("undated", "https://a.org/3"),
        SearchResult("odd", "https://a.org/4", date="2 days ago"),
        SearchResult("new", "https://a.org/5", date="2026-02-02"),
    ]
    query = SearchQuery("q", 9, published_after="2026-01-01", published_before="2026-02-01")
    assert await results_of(found, query) == ["https://a.org/2", "https://a.org/3", "https://a.org/4"]


async def test_a_time_range_holds_for_dated_results_too() -> None:
    today = datetime.now(UTC).date()
    found = [
        SearchResult("old", "https://a.org/1", date="2010-01-01"),
        SearchResult("last week", "https://a.org/2", date=(today - timedelta(days=5)).isoformat()),
        SearchResult("undated", "https://a.org/3"),
        SearchResult("today", "https://a.org/4", date=today.isoformat()),
    ]
    assert await results_of(found, SearchQuery("q", time_range="d")) == ["https://a.org/3", "https://a.org/4"]
    assert len(await results_of(found, SearchQuery("q", time_range="w"))) == 3
    assert len(await results_of(found, SearchQuery("q", time_range="w", published_after="2000-01-01"))) == 3
    assert len(await results_of(found, QUERY)) == 4


async def test_a_direct_answer_alone_is_an_answer_but_not_when_its_sources_were_filtered() -> None:
    alone = SearchChain([member("a", {"results": [], "answer": "42"})])
    assert (await alone.search(QUERY)).results == SearchResults((), "42")
    filtered = SearchChain([member("a", SearchResults((HIT,), "42"))])
    with pytest.raises(AllFailed):
        await filtered.search(SearchQuery("q", blocked_domains=("example.org",)))


async def test_readers_fall_over_and_empty_pages_count_as_failure() -> None:
    good = Page("https://example.org/", "t", "words")
    chain = ReadChain(
        [member("a", errors.PageBlocked("a consent wall")), member("b", Page("u", "t", " \n")), member("c", good)]
    )
    opened = await chain.read("https://example.org/")
    assert (opened.page, opened.provider) == (good, "c")
    assert opened.failures == (Failure("a", "a consent wall"), Failure("b", "the page has no readable text"))


async def test_a_refused_address_goes_to_nobody_else() -> None:
    second = member("b", Page("u", "t", "x"))
    with pytest.raises(errors.NotAllowed):
        await ReadChain([member("a", errors.NotAllowed("not allowed")), second]).read("http://10.0.0.1/")
    assert not asked(second)


async def test_the_owner_reads_its_documents_first_and_alone() -> None:
    page = Page("local:docs/a.md", "t", "words")
    web = member("web", Page("u", "t", "x"))
    local = NamedProvider("docs", "local", Owning("local:docs/", page), private=True)
    assert (await ReadChain([web, local]).read("local:docs/a.md")).page == page
    failing = NamedProvider(
        "docs", "local", Owning("local:docs/", errors.Unavailable("There is no such document.")), private=True
    )
    with pytest.raises(AllFailed, match=r"docs: There is no such document\)"):
        await ReadChain([web, failing], public_fallback=True).read("local:docs/b.md")
    assert not asked(web)


async def test_an_owner_reads_nothing_else_and_keeps_nobody_from_it() -> None:
    local = NamedProvider("docs", "local", Owning("local:docs/", errors.Unavailable("no")), private=True)
    opened = await ReadChain([local, member("web", Page("u", "t", "x"))]).read("https://example.org/")
    assert (opened.provider, opened.failures) == ("web", ())
    assert not asked(local)


@pytest.mark.parametrize("url", ["local:other/a.md", "LOCAL:other/a.md", " local:other/a.md", "local:"])
async def test_local_addresses_reach_no_one_but_their_owner(url: str) -> None:
    web = member("web", Page("u", "t", "x"))
    local = NamedProvider("docs", "local", Owning("local:docs/", None), private=True)
    with pytest.raises(errors.Unavailable, match="no such document"):
        await ReadChain([web, local]).read(url)
    assert not asked(web)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("7", 7.0),
        (" 120 ", 120.0),
        ("soon", None),
        ("-5", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
    ],
)
def test_retry_after(header: str | None, seconds: float | None) -> None:
    assert retry_after(header) == seconds


def test_retry_after_a_date_to_come() -> None:
    seconds = retry_after("Wed, 21 Oct 2099 07:28:00 GMT")
    assert seconds is not None
    assert seconds > 1e6


def test_site_words() -> None:
    query = SearchQuery("q", allowed_domains=("a.org", "b.org"), blocked_domains=("c.org",))
    assert with_sites(query) == "q (site:a.org OR site:b.org) -site:c.org"
    assert with_sites(QUERY) == "q"
