"""What every faked search engine shares: the hits, the queries, and the server that a row of a table describes.

A row says how the service is asked (path, key, what each of `QUERIES` must become) and how it answers (a hit in its own
words, the envelope around the hits, its own faults). Every hit is of May 1, 2026, however the service writes that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from providers.base import SearchQuery, SearchResult
from providers.errors import NoResults
from providers.registry import ProviderEntry
from tests.fakes.service import KEY, Asked, FakeServer, Fault, Reply, as_json, usual_faults

HITS = (
    SearchResult("Heat pumps", "https://example.org/heat/pumps.md", "A heat pump moves heat from cold to warm."),
    SearchResult("Wärme und 熱 ⚡", "https://example.org/heat/waerme.md", "Die Wärme, 熱, heat & <more> of it."),
    SearchResult("Heat death", "https://docs.example.org/heat/death.md", "Heat spreads until it is even."),
    SearchResult("Latent heat", "https://example.net/heat/latent.md", "Latent heat melts ice without warming it."),
)
DAY = "2026-05-01"
QUERIES = {
    "plain": SearchQuery("heat"),
    "allowed": SearchQuery("heat", allowed_domains=("example.org",)),
    "several allowed": SearchQuery("heat", allowed_domains=("example.org", "example.net")),
    "blocked": SearchQuery("heat", blocked_domains=("a.org", "b.org")),
    "allowed and blocked": SearchQuery("heat", allowed_domains=("example.org",), blocked_domains=("a.example.org",)),
    "time range": SearchQuery("heat", time_range="w"),
    "since": SearchQuery("heat", published_after="2026-01-02"),
    "until": SearchQuery("heat", published_before="2026-02-01"),
    "between": SearchQuery("heat", published_after="2026-01-02", published_before="2026-02-01"),
    "range within dates": SearchQuery("heat", published_after="2020-01-02", time_range="w"),
    "language": SearchQuery("heat", language="de"),
    "country": SearchQuery("heat", country="CH"),
    "unknown country": SearchQuery("heat", country="ZZ"),
    "category": SearchQuery("heat", category="news"),
    "unknown category": SearchQuery("heat", category="gardening"),
}


class DaysAgo:
    """Equal to a text with the day so many days ago, also when the clock passes midnight in between."""

    def __init__(self, days: int, form: str) -> None:
        self._days = days
        self._form = form

    def __eq__(self, other: object) -> bool:
        today = datetime.now(UTC).date()
        days = (today - timedelta(days=self._days + slack) for slack in (0, 1))
        return other in [self._form.format(day=day, today=today) for day in days]

    def __hash__(self) -> int:
        return hash(self._form)

    def __repr__(self) -> str:
        return f"{self._form} {self._days} days ago"


class FakeEngine(FakeServer):
    """A search service. `pages` has replies for single pages of it."""

    words: ClassVar[str] = "q"  # the parameter that holds them
    filters: ClassVar[Mapping[str, tuple[SearchQuery, Mapping[str, Any]]]]

    def __init__(self) -> None:
        super().__init__()
        self.reply = self.page(HITS)
        self.pages: dict[str, Reply] = {}
        self.expects_key = True

    def entry(self, timeout: float = 10.0, **options: Any) -> ProviderEntry:
        return ProviderEntry(name="fake", type=self.type, base_url=self.url, timeout=timeout, options=options)

    def reply_to(self, asked: Asked) -> Reply:
        return self.pages.get(self.page_of(asked), self.reply)

    def page(self, hits: tuple[SearchResult, ...]) -> Reply:
        raise NotImplementedError

    def bare_page(self) -> Reply:
        """One hit with nothing but what the service always sends."""
        raise NotImplementedError

    def page_of(self, asked: Asked) -> str:
        return "1"


@dataclass(frozen=True)
class Row:
    type: str
    request: str  # method and path
    auth: tuple[str, str]
    words: str
    count: tuple[str, int]  # the parameter for the number of results, and the most it takes
    always: Mapping[str, Any]  # what every request holds besides
    sends: Mapping[str, Mapping[str, Any]]  # what each query adds; None takes away
    wrap: Callable[[list[Any]], object]
    hit: Callable[[SearchResult], Mapping[str, Any]]
    faults: Mapping[str, Fault] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)  # queries that go to another path
    address: str = "url"
    options: Mapping[str, Any] = field(default_factory=dict)


def hosted(row: Row) -> type[FakeEngine]:
    method, path = row.request.split()
    plain = {row.words: "heat", row.count[0]: row.always.get(row.count[0]), **row.always}

    class Hosted(FakeEngine):
        type = row.type
        words = row.words
        faults: ClassVar = usual_faults(
            {"empty": Fault(as_json(row.wrap([])), NoResults, "found nothing"), **row.faults}
        )
        filters: ClassVar = {
            name: (QUERIES[name], {key: value for key, value in {**plain, **sent}.items() if value is not None})
            for name, sent in row.sends.items()
        }

        def entry(self, timeout: float = 10.0, **options: Any) -> ProviderEntry:
            return ProviderEntry.model_validate(
                {
                    "name": "fake",
                    "type": row.type,
                    "api_key": KEY,
                    "base_url": self.url,
                    "timeout": timeout,
                    "options": {**row.options, **options},
                }
            )

        def check(self, asked: Asked) -> None:
            assert asked.method == method
            assert asked.path in (path, *row.places.values()), asked.path
            assert asked.headers.get(row.auth[0]) == (row.auth[1] if self.expects_key else None)
            assert (asked.headers["accept"], asked.headers["user-agent"]) == ("application/json", "groundwire")

        def page(self, hits: tuple[SearchResult, ...]) -> Reply:
            return as_json(row.wrap([row.hit(hit) for hit in hits]))

        def bare_page(self) -> Reply:
            rows = [{row.address: HITS[0].url}, {"title": "no address"}, {row.address: None}, "not an object"]
            return Reply(body=json.dumps(row.wrap(rows)).encode(), content_type="text/plain")

    return Hosted
