"""What is remembered of providers, upstreams and the cache by what was told of them."""

from __future__ import annotations

from typing import Any

import pytest

from providers.base import ProviderCall
from proxy.watching.health import Health, ProviderRecord, UpstreamRecord, iso
from proxy.watching.observer import Observer
from proxy.watching.steps import Forwarded, ModelAnswered, ModelAsked, ModelFailed, Step


def told(*steps: Step) -> Health:
    """Each a second later than the one before, from 1 on."""
    seconds = 0.0

    def now() -> float:
        nonlocal seconds
        seconds += 1
        return seconds

    health = Health(now)
    request = Observer([health])
    for step in steps:
        request.tell(step)
    return health


def call(outcome: Any = "ok", role: Any = "search", *, cached: bool = False, seconds: float = 0.25) -> ProviderCall:
    return ProviderCall("web", role, outcome, cached, seconds)


def test_who_was_never_asked_has_no_record() -> None:
    health = told()
    assert health.of_provider("web") == ProviderRecord()
    assert (health.of_upstream("up"), health.of_upstream("up").state) == (UpstreamRecord(), "untried")
    assert health.of_cache("read") == {"hits": 0, "misses": 0}


def test_calls_count_and_the_last_one_is_remembered() -> None:
    health = told(call(), call("timed_out", seconds=2.0), call("empty", seconds=0.5))
    assert health.of_provider("web") == ProviderRecord(3, 1, "empty", 500.0)


def test_a_provider_fails_until_it_answers_again_and_a_page_is_not_its_fault() -> None:
    assert [told(*calls).of_provider("web").state for calls in ([], [call()], [call("empty")])] == [
        "untried",
        "ok",
        "ok",
    ]
    failing = told(call(), call("timed_out")).of_provider("web")
    assert (failing.state, failing.why) == ("failing", "The last call failed (timed_out).")
    assert told(call("timed_out"), call()).of_provider("web").state == "ok"
    refused = told(call("blocked", "read")).of_provider("web")
    assert (refused.state, refused.why) == ("ok", "The last call failed (blocked).")


def test_what_the_cache_answers_and_who_is_left_alone_are_no_calls() -> None:
    health = told(call(), call(cached=True), call("cooling_down"), call(role="read", cached=True))
    assert health.of_provider("web") == ProviderRecord(1, 0, "ok", 250.0)
    assert health.of_cache("search") == {"hits": 1, "misses": 1}
    assert health.of_cache("read") == {"hits": 1, "misses": 0}


def test_an_upstream_fails_until_it_answers_again() -> None:
    health = told(ModelAsked("up", "m"), ModelAnswered("up", 0.1), ModelFailed("up", 503, "overloaded"))
    seen = health.of_upstream("up")
    assert (seen.state, seen.last_ok, seen.last_failure) == ("failing", 1.0, 2.0)
    assert seen.why == "The last question failed (HTTP 503, overloaded)."
    back = told(ModelFailed("up", 503, ""), Forwarded("up", 200, "chat", 0.1)).of_upstream("up")
    assert back == UpstreamRecord(2.0, 1.0, failing=False, why="")
    assert back.state == "ok"


@pytest.mark.parametrize(
    ("status", "failing"),
    [
        (400, False),
        (404, False),
        (413, False),
        (401, True),
        (403, True),
        (429, True),
        (500, True),
        (504, True),
        (0, True),
    ],
)
def test_what_was_asked_wrongly_is_no_fault_of_the_upstream(status: int, failing: bool) -> None:
    for step in (ModelFailed("up", status, ""), Forwarded("up", status or 500, "chat", 0.1)):
        assert told(step).of_upstream("up").failing is failing


def test_words_of_a_server_are_not_repeated() -> None:
    assert told(ModelFailed("up", 500, "the question was <b>")).of_upstream("up").why.endswith("(HTTP 500, error).")


def test_times_are_told_in_utc() -> None:
    assert iso(0.5) == "1970-01-01T00:00:00.500+00:00"
    assert iso(None) is None
