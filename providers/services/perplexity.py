"""Perplexity's Search API: ranked pages with long extracts, no model in between.

Handed a `SearchQuery`; hands on hits. It takes a list of domains to keep or to leave out, not both, and either a
recency or dates.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from ..api import ServiceApi, bearer
from ..base import SearchQuery, SearchResults
from ..queries import PERIODS, days_of
from ..settings import BaseUrl, Key
from ..web.egress import DIRECT, Egress

MAX_RESULTS = 20
MAX_DOMAINS = 20
MODES = ("web", "academic", "sec")


class Perplexity:
    uses_egress = True

    class Settings(BaseModel, extra="forbid"):
        api_key: Key
        base_url: BaseUrl = "https://api.perplexity.ai"
        timeout: float = Field(15.0, gt=0)
        max_tokens_per_page: int = Field(512, gt=0)
        """How long a snippet may be, in tokens."""

    def __init__(self, settings: Settings, egress: Egress = DIRECT) -> None:
        self.timeout = settings.timeout
        self._settings = settings
        headers = bearer(settings.api_key)
        self._api = ServiceApi(
            "Perplexity", settings.base_url, timeout=settings.timeout, headers=headers, egress=egress
        )

    async def search(self, query: SearchQuery) -> SearchResults:
        first, last = days_of(query)
        answer = await self._api.post(
            "/search",
            {
                "query": query.text,
                "max_results": min(query.limit, MAX_RESULTS),
                "max_tokens_per_page": self._settings.max_tokens_per_page,
                "country": query.country.upper() if query.country else None,
                "search_domain_filter": _domains(query),
                "search_language_filter": [query.language] if query.language else None,
                "search_recency_filter": None if first or last else PERIODS.get(query.time_range),
                "search_after_date_filter": first and f"{first:%m/%d/%Y}",
                "search_before_date_filter": last and f"{last:%m/%d/%Y}",
                "search_mode": query.category if query.category in MODES else None,
            },
        )
        return self._api.found(answer.get("results"), snippet=("snippet",), date=("date", "last_updated"))

    async def aclose(self) -> None:
        await self._api.aclose()


def _domains(query: SearchQuery) -> list[str] | None:
    domains = list(query.allowed_domains) or [f"-{domain}" for domain in query.blocked_domains]
    return domains[:MAX_DOMAINS] or None
