"""Exa: search by meaning, with the passages that matter as snippets, and page contents.

Handed a `SearchQuery` or a URL; hands on hits or a page. It has no time ranges, so one becomes a first day, and it
takes a list of domains to keep or to leave out, not both.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from ..api import ServiceApi
from ..base import Page, SearchQuery, SearchResults
from ..errors import PageBlocked
from ..queries import days_of
from ..rows import part, records
from ..settings import BaseUrl, Key
from ..web.egress import DIRECT, Egress

MAX_RESULTS = 100
CATEGORIES = ("company", "research paper", "news", "personal site", "financial report", "people")
UNFILTERED = ("company", "people")  # these refuse dates and excluded domains; the chain filters what it gets


class Exa:
    hosted = True
    uses_egress = True

    class Settings(BaseModel, extra="forbid"):
        api_key: Key
        base_url: BaseUrl = "https://api.exa.ai"
        timeout: float = Field(15.0, gt=0)
        type: Literal["auto", "fast", "instant", "neural", "deep-lite", "deep", "deep-reasoning"] = "auto"
        """Exa's kind of search."""
        highlights: bool = True
        """Ask for the passages that match the query. They become the snippet."""
        summary: bool = False
        """Ask for a summary of each page. It becomes the snippet."""
        max_age_hours: int | None = Field(None, ge=-1)
        """How old a page in Exa's cache may be. 0 always fetches anew, -1 never does."""

    def __init__(self, settings: Settings, egress: Egress = DIRECT) -> None:
        self.timeout = settings.timeout
        self._settings = settings
        headers = {"x-api-key": settings.api_key.get_secret_value()}
        self._api = ServiceApi("Exa", settings.base_url, timeout=settings.timeout, headers=headers, egress=egress)

    async def search(self, query: SearchQuery) -> SearchResults:
        answer = await self._api.post(
            "/search",
            {
                "query": query.text,
                "type": self._settings.type,
                "numResults": min(query.limit, MAX_RESULTS),
                "userLocation": query.country.upper() if query.country else None,
                "contents": self._contents(),
                **_filters(query),
            },
        )
        return self._api.found(answer.get("results"), snippet=("summary", "highlights"), date=("publishedDate",))

    async def read(self, url: str) -> Page:
        body = {"urls": [url], "text": True, "maxAgeHours": self._settings.max_age_hours}
        answer = await self._api.post("/contents", body)
        for status in records(answer.get("statuses")):
            if status.get("status") == "error":
                reason = part(status, "error", "tag") or "no reason given"
                raise PageBlocked(f"Exa could not read the page ({reason})")
        row = next(iter(records(answer.get("results"))), {})
        return self._api.page(
            url, row.get("text"), url=row.get("url"), title=row.get("title"), date=row.get("publishedDate")
        )

    async def aclose(self) -> None:
        await self._api.aclose()

    def _contents(self) -> dict[str, Any] | None:
        wanted: dict[str, Any] = {}
        if self._settings.highlights:
            wanted["highlights"] = True
        if self._settings.summary:
            wanted["summary"] = {}
        if wanted and self._settings.max_age_hours is not None:
            wanted["maxAgeHours"] = self._settings.max_age_hours
        return wanted or None


def _filters(query: SearchQuery) -> dict[str, Any]:
    filters: dict[str, Any] = {"category": query.category if query.category in CATEGORIES else None}
    if query.allowed_domains:
        filters["includeDomains"] = list(query.allowed_domains)
    if query.category not in UNFILTERED:
        first, last = days_of(query, relative=True)
        filters["startPublishedDate"] = first and f"{first}T00:00:00.000Z"
        filters["endPublishedDate"] = last and f"{last}T23:59:59.999Z"
        if query.blocked_domains and not query.allowed_domains:
            filters["excludeDomains"] = list(query.blocked_domains)
    return filters
