"""What the services share, without a wire: days, time ranges, waits, rows of JSON."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.api import ServiceApi, _wait
from providers.base import SearchQuery, TimeRange
from providers.errors import AuthFailed, NoResults, ProviderError, QuotaExceeded, RateLimited
from providers.queries import days_of, google_time, with_sites
from providers.rows import as_day, part, records
from providers.settings import check_base_url
from providers.web.service_wire import ServiceAnswer


def answer(status: int, headers: dict[str, str], content: bytes = b"") -> ServiceAnswer:
    return ServiceAnswer(status, {name.lower().encode(): value.encode() for name, value in headers.items()}, content)


@pytest.mark.parametrize(
    "text",
    [
        "2026-05-01", "2026-05-01T00:00:00.000Z", "2026-05-01 09:00:00+02:00", "Fri, 01 May 2026 09:00:00 GMT",
        "May 1, 2026", "  may 1, 2026 ", "May 01, 2026, 9:00 AM",
    ],
)  # fmt: skip
def test_days(text: str) -> None:
    assert as_day(text) == "2026-05-01"


def test_months_are_written_short_long_and_with_a_dot() -> None:
    assert [as_day(f"{month} 3, 2025") for month in ("Sep", "Sept.", "September")] == ["2025-09-03"] * 3


@pytest.mark.parametrize(
    ("text", "days"),
    [("3 days ago", 3), ("1 week ago", 7), ("a month ago", 30), ("2 years ago", 730), ("An hour ago", 1 / 24)],
)
def test_days_ago(text: str, days: float) -> None:
    before = datetime.now(UTC) - timedelta(days=days)
    found = as_day(text)
    after = datetime.now(UTC) - timedelta(days=days)
    assert found in {before.date().isoformat(), after.date().isoformat()}


@pytest.mark.parametrize(
    "value",
    [
        "", "soon", "2026-13-01", "2026-05", "Foo 1, 2026", "vor 3 Tagen", None, 7, ["2026-05-01"], "9999 years ago",
        "3 mınutes ago", "1 MİNUTE AGO",
    ],
)  # fmt: skip
def test_no_days(value: object) -> None:
    assert as_day(value) is None


@given(st.one_of(st.text(), st.from_regex(r"\w{3}, \d+ \w{3} \d+ \d+:\d+:\d+ [+-]\d+|\d+ years? ago", fullmatch=True)))
@settings(max_examples=200)
def test_a_day_is_a_day_or_nothing(text: str) -> None:
    found = as_day(text)
    assert found is None or date.fromisoformat(found).isoformat() == found


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2100, 1, 1)))
@settings(max_examples=100)
def test_every_form_of_a_day_is_the_same_day(when: datetime) -> None:
    forms = (when.isoformat(), format_datetime(when), f"{when:%B} {when.day}, {when.year}")
    assert {as_day(form) for form in forms} == {when.date().isoformat()}


def test_days_of_a_query() -> None:
    today = datetime.now(UTC).date()
    assert days_of(SearchQuery("q")) == (None, None)
    assert days_of(SearchQuery("q", time_range="w")) == (None, None)
    assert days_of(SearchQuery("q", time_range="w"), relative=True)[0] in (
        today - timedelta(days=7),
        today - timedelta(days=6),
    )
    named = SearchQuery("q", published_after="2026-01-02", published_before="2026-02-01")
    assert days_of(named) == (date(2026, 1, 2), date(2026, 2, 1))
    late = SearchQuery("q", published_after="9000-01-01", time_range="y")
    assert days_of(late)[0] == date(9000, 1, 1)


@pytest.mark.parametrize(("time_range", "tbs"), [("all", None), ("d", "qdr:d"), ("m", "qdr:m"), ("y", "qdr:y")])
def test_google_time(time_range: TimeRange, tbs: str | None) -> None:
    assert google_time(SearchQuery("q", time_range=time_range)) == tbs


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "soon", "X-RateLimit-Reset": "2"}, 2.0),
        ({"X-RateLimit-Reset": "1, 1419704"}, 1.0),
        ({"X-RateLimit-Reset": "never"}, None),
        ({"X-RateLimit-Reset": "1000000001"}, 0.0),  # a moment long past, in seconds since 1970
    ],
)
def test_how_long_to_wait(headers: dict[str, str], wait: float | None) -> None:
    assert _wait(answer(429, headers)) == wait


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"X-RateLimit-Reset": "1, 1419704"}, 1419704.0),
        ({"X-RateLimit-Reset": "1, 60,1419704", "Retry-After": "9"}, 9.0),
        ({"X-RateLimit-Reset": "1"}, None),  # the rate's window says nothing of the plan
        ({}, None),
    ],
)
def test_a_plan_comes_back_with_the_last_window(headers: dict[str, str], wait: float | None) -> None:
    assert _wait(answer(429, headers), plan=True) == wait


@pytest.mark.parametrize(
    ("own", "wait"),
    [
        (RateLimited("x"), 7.0),
        (RateLimited("x", retry_after=3), 3),
        (QuotaExceeded("x"), 7.0),
        (NoResults("x"), 7.0),
        (AuthFailed("x"), None),
    ],
)
def test_an_error_of_the_services_own_carries_the_wait_of_the_headers(own: ProviderError, wait: float | None) -> None:
    api = ServiceApi("Test", "http://localhost", timeout=1, translate=lambda status, body: own)
    with pytest.raises(type(own)) as caught:
        api.decode(answer(432, {"Retry-After": "7"}, b"{}"))
    assert (caught.value, caught.value.retry_after) == (own, wait)


def test_a_used_up_plan_carries_the_wait() -> None:
    with pytest.raises(QuotaExceeded) as caught:
        ServiceApi("Test", "http://localhost", timeout=1).decode(answer(402, {"Retry-After": "77"}))
    assert caught.value.retry_after == 77


def test_half_an_emoji_does_not_cost_the_answer() -> None:
    api = ServiceApi("Test", "http://localhost", timeout=1)
    body = rb'{"rows": [{"title": "Party \ud83d", "url": "https://a.org/"}, {"title": "b", "url": "https://b.org/"}]}'
    found = api.found(api.decode(answer(200, {}, body))["rows"], snippet=())
    assert [hit.url for hit in found.results] == ["https://a.org/", "https://b.org/"]


def test_a_base_has_no_slash_at_its_end() -> None:
    assert check_base_url("https://r.jina.ai/") == check_base_url("https://r.jina.ai") == "https://r.jina.ai"


def test_a_moment_to_come() -> None:
    reset = int(datetime.now(UTC).timestamp()) + 1000
    wait = _wait(answer(429, {"X-RateLimit-Reset": str(reset)}))
    assert wait is not None
    assert 800 < wait <= 1000


def test_rows_and_parts() -> None:
    assert records([{"a": 1}, "b", None, 7, {}]) == [{"a": 1}, {}]
    assert [records(value) for value in (None, {}, "text", 7)] == [[]] * 4
    assert part({"a": {"b": 1}}, "a", "b") == 1
    assert [part(value, "a", "b") for value in (None, [], {"a": 7}, {"a": {}}, {})] == [None] * 5


def test_sites() -> None:
    assert with_sites(SearchQuery("", allowed_domains=("a.org", "b.org"), blocked_domains=("c.org",))) == (
        "(site:a.org OR site:b.org) -site:c.org"
    )
