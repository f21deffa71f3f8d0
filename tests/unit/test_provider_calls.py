"""What providers report to who watches: a `ProviderCall` for each that was asked or cools down, and each cool-down."""

from __future__ import annotations

import asyncio
from typing import Any, get_args

import pytest

from providers import errors
from providers.base import Page, ProviderCall, SearchQuery
from providers.chain import AllFailed, ReadChain, SearchChain, Withheld
from providers.gateway import ProviderGateway
from providers.settings import CacheSettings, CooldownSettings
from tests.fakes.providers import Engine, Gate, until

QUERY = SearchQuery("q")
URL = "https://example.org/"


def outcomes(calls: list[ProviderCall]) -> list[tuple[str, str, str, bool]]:
    assert all(call.seconds >= 0 for call in calls)
    return [(call.provider, call.role, call.outcome, call.cached) for call in calls]


def every_error(kind: type[errors.ProviderError] = errors.ProviderError) -> list[type[errors.ProviderError]]:
    return [kind, *(sub for child in kind.__subclasses__() for sub in every_error(child))]


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_every_error_has_a_word_of_the_closed_list(kind: type[errors.ProviderError]) -> None:
    assert kind.outcome in get_args(errors.Outcome)
    if kind not in (errors.ProviderError, AllFailed, Withheld):  # these are nobody's answer
        assert kind.outcome not in ("ok", "failed")


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        (None, "ok"),
        ([], "empty"),
        (errors.NoResults("none"), "empty"),
        (errors.AuthFailed("no key"), "auth_failed"),
        (errors.QuotaExceeded("used up"), "quota_exceeded"),
        (errors.RateLimited("slow down"), "rate_limited"),
        (errors.TimedOut("late"), "timed_out"),
        (errors.Unavailable("down"), "unavailable"),
        (errors.PageBlocked("a wall"), "blocked"),
        (errors.BadRequest("bad"), "bad_request"),
        (errors.NotAllowed("no"), "not_allowed"),
        (KeyError("sk-secret"), "unavailable"),
    ],
)
async def test_an_asked_provider_is_reported_with_its_outcome(outcome: Any, word: str) -> None:
    calls: list[ProviderCall] = []
    chain = SearchChain([Engine(outcome).named("mine")])
    try:
        await chain.search(QUERY, observe=calls.append)
    except errors.ProviderError:
        assert word != "ok"
    else:
        assert word == "ok"
    assert outcomes(calls) == [("mine", "search", word, False)]


async def test_each_that_failed_is_reported_before_the_one_that_served() -> None:
    calls: list[ProviderCall] = []
    members = [Engine(errors.TimedOut("late")).named("a"), Engine([]).named("b"), Engine().named("c")]
    await SearchChain([*members, Engine().named("d")]).search(QUERY, observe=calls.append)
    assert [(call.provider, call.outcome) for call in calls] == [("a", "timed_out"), ("b", "empty"), ("c", "ok")]


async def test_pages_are_reported_as_read_and_kept_ones_as_cached() -> None:
    calls: list[ProviderCall] = []
    chain = ReadChain([Engine().named("reader")], gateway=ProviderGateway(cache=CacheSettings()))
    for _ in range(2):
        await chain.read(URL, observe=calls.append)
    assert outcomes(calls) == [("reader", "read", "ok", False), ("reader", "read", "ok", True)]


async def test_an_empty_page_is_a_blocked_one() -> None:
    calls: list[ProviderCall] = []
    with pytest.raises(AllFailed):
        await ReadChain([Engine(Page(URL, "t", " ")).named()]).read(URL, observe=calls.append)
    assert [call.outcome for call in calls] == ["blocked"]


async def test_one_that_cools_down_is_reported_though_it_was_not_asked() -> None:
    calls: list[ProviderCall] = []
    tired = Engine(errors.RateLimited("slow down"))
    chain = SearchChain([tired.named("tired"), Engine().named("fresh")])
    for _ in range(2):
        await chain.search(QUERY, observe=calls.append)
    assert [call.outcome for call in calls] == ["rate_limited", "ok", "cooling_down", "ok"]
    assert len(tired.asked) == 1


async def test_one_that_may_not_hear_of_it_is_not_reported() -> None:
    async def never(url: str) -> bool:
        return False

    calls: list[ProviderCall] = []
    hosted, private = Engine(hosted=True), Engine(errors.TimedOut("late"))
    readers = [hosted.named("hosted"), private.named("private", private=True), Engine().named("public")]
    with pytest.raises(AllFailed):
        await ReadChain(readers, is_public=never).read(URL, observe=calls.append)
    assert [(call.provider, call.outcome) for call in calls] == [("private", "timed_out")]


async def test_a_call_that_is_broken_off_has_no_outcome() -> None:
    calls: list[ProviderCall] = []
    engine = Engine(Gate())
    task = asyncio.create_task(SearchChain([engine.named()]).search(QUERY, observe=calls.append))
    await until(lambda: engine.asked)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert calls == []


async def test_cool_downs_are_told_once_each_with_their_length() -> None:
    reported: list[tuple[str, float]] = []
    gateway = ProviderGateway(
        CooldownSettings(auth_failed=600, unavailable=2, failures=2),
        cooled_down=lambda name, seconds: reported.append((name, seconds)),
    )
    refused, down, busy = (
        Engine(errors.AuthFailed("no key")).named("refused"),
        Engine(errors.Unavailable("down")).named("down"),
        Engine(errors.RateLimited("slow down", retry_after=7)).named("busy"),
    )
    for _ in range(4):
        with pytest.raises(AllFailed):
            await SearchChain([refused, down, busy], gateway=gateway).search(QUERY)
    assert reported == [("refused", 600), ("busy", 7), ("down", 2)]


async def test_who_watches_hears_what_was_asked_and_how_much_came_of_it() -> None:
    calls: list[ProviderCall] = []
    members = [Engine(errors.TimedOut("late")).named("a"), Engine().named("b")]
    await SearchChain(members).search(SearchQuery("  why is\nthe sky blue "), observe=calls.append)
    seen = [(call.asked, call.size, call.results) for call in calls]
    assert seen == [("why is the sky blue", 0, None), ("why is the sky blue", len("Ahttps://example.org/atext"), 1)]
    assert "sky" not in repr(calls)


async def test_bytes_are_counted_of_texts_in_any_alphabet_and_from_the_cache_too() -> None:
    calls: list[ProviderCall] = []
    page = Page(URL, "Größe", "日本 \ud800")
    chain = ReadChain([Engine(page).named("reader")], gateway=ProviderGateway(cache=CacheSettings()))
    for _ in range(2):
        await chain.read(f"{URL}?a=1#b", observe=calls.append)
    assert [(call.asked, call.size, call.results) for call in calls] == [(f"{URL}?a=1#b", 7 + 10, None)] * 2
