"""A query in the words of services. Handed a `SearchQuery`; hands on its domains as operators of a search engine, and
its time range as days or in Google's own form. Pure but for the clock.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from .base import SearchQuery

DAYS = {"d": 1, "w": 7, "m": 31, "y": 366}
PERIODS = {"d": "day", "w": "week", "m": "month", "y": "year"}  # as most services call them
LONG_AGO = date(1990, 1, 1)  # where a service wants both ends of a range


def with_sites(query: SearchQuery) -> str:
    """The query's text with its domain filters as `site:` and `-site:`, for engines that have no parameter for them."""
    if not query.allowed_domains and not query.blocked_domains:
        return query.text
    only = " OR ".join(f"site:{domain}" for domain in query.allowed_domains)
    but = " ".join(f"-site:{domain}" for domain in query.blocked_domains)
    grouped = f"({only})" if len(query.allowed_domains) > 1 else only
    return " ".join(part for part in (query.text, grouped, but) if part)


def days_of(query: SearchQuery, *, relative: bool = False) -> tuple[date | None, date | None]:
    """The first and the last day, if the query names one; its time range then narrows the first.

    `relative` is for a service without time ranges: for it the range alone makes a first day.
    """
    first = date.fromisoformat(query.published_after) if query.published_after else None
    last = date.fromisoformat(query.published_before) if query.published_before else None
    if query.time_range != "all" and (first or last or relative):
        start = datetime.now(UTC).date() - timedelta(days=DAYS[query.time_range])
        first = max(first, start) if first else start
    return first, last


def google_time(query: SearchQuery) -> str | None:
    """Google's `tbs`, which its resellers pass on."""
    first, last = days_of(query)
    if not first and not last:
        return None if query.time_range == "all" else f"qdr:{query.time_range}"
    ends = (first or LONG_AGO, last or datetime.now(UTC).date())
    return "cdr:1,cd_min:{},cd_max:{}".format(*(f"{day.month}/{day.day}/{day.year}" for day in ends))
