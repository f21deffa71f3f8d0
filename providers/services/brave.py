"""Brave Search: an index of its own, web and news.

Handed a `SearchQuery`; hands on hits. It refuses countries, languages and query lengths that it does not know, so only
what it takes is sent.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from ..api import ServiceApi
from ..base import SearchQuery, SearchResults
from ..errors import AuthFailed, ProviderError, QuotaExceeded
from ..queries import LONG_AGO, days_of, with_sites
from ..rows import error_part, part
from ..settings import BaseUrl, Key
from ..web.egress import DIRECT, Egress

MAX_RESULTS = 20
MAX_LENGTH = 400
MAX_WORDS = 50
COUNTRIES = (  # noqa: SIM905 - dozens of quoted strings read worse
    "AR AU AT BE BR CA CL CN DE DK ES FI FR GB HK ID IN IT JP KR MX MY NL NO NZ PH PL PT RU SA SE TR TW US ZA CH"
).split()
LANGUAGES = (  # noqa: SIM905
    "ar eu bn bg ca hr cs da nl en et fi fr gl de el gu he hi hu is it kn ko lv lt ms ml mr nb pl pa ro ru sr sk sl "
    "es sv ta te th tr uk vi"
).split()
OWN_LANGUAGES = {"ja": "jp", "no": "nb", "pt": "pt-br", "zh": "zh-hans"}  # ISO 639-1 → Brave


class Brave:
    uses_egress = True

    class Settings(BaseModel, extra="forbid"):
        api_key: Key
        base_url: BaseUrl = "https://api.search.brave.com"
        timeout: float = Field(10.0, gt=0)
        extra_snippets: bool = False
        """Ask for up to five more snippets per result."""
        safesearch: Literal["off", "moderate", "strict"] | None = None
        """Brave's filter for adult content. Unset: Brave's own default."""

    def __init__(self, settings: Settings, egress: Egress = DIRECT) -> None:
        self.timeout = settings.timeout
        self._settings = settings
        headers = {"X-Subscription-Token": settings.api_key.get_secret_value()}
        url, timeout = settings.base_url, settings.timeout
        self._api = ServiceApi("Brave", url, timeout=timeout, headers=headers, translate=_translate, egress=egress)

    async def search(self, query: SearchQuery) -> SearchResults:
        params: dict[str, Any] = {
            "q": _fitted(query),
            "count": min(query.limit, MAX_RESULTS),
            "country": _known((query.country or "").upper(), COUNTRIES),
            "search_lang": OWN_LANGUAGES.get(query.language or "") or _known(query.language, LANGUAGES),
            "freshness": _freshness(query),
            "extra_snippets": "true" if self._settings.extra_snippets else None,
            "safesearch": self._settings.safesearch,
        }
        news = query.category == "news"
        if not news:
            params |= {"text_decorations": "false", "result_filter": "web"}
        path = "/res/v1/news/search" if news else "/res/v1/web/search"
        answer = await self._api.get(path, {key: value for key, value in params.items() if value is not None})
        rows = answer.get("results") if news else part(answer, "web", "results")
        return self._api.found(rows, snippet=("description", "extra_snippets"), date=("page_age", "age"))

    async def aclose(self) -> None:
        await self._api.aclose()


def _known(code: str | None, codes: list[str]) -> str | None:
    return code if code in codes else None


def _fitted(query: SearchQuery) -> str:
    """The words and `site:` filters in the length that Brave takes. Blocked domains go first: the chain blocks too."""
    if not _fits(with_sites(query)):
        query = replace(query, blocked_domains=())
    words = query.text.split()
    while not _fits(with_sites(query)) and len(words) > 1:
        words.pop()
        query = replace(query, text=" ".join(words))
    return with_sites(query)[:MAX_LENGTH]


def _fits(text: str) -> bool:
    return len(text) <= MAX_LENGTH and len(text.split()) <= MAX_WORDS


def _freshness(query: SearchQuery) -> str | None:
    first, last = days_of(query)
    if first or last:
        return f"{first or LONG_AGO}to{last or datetime.now(UTC).date()}"
    return None if query.time_range == "all" else f"p{query.time_range}"


def _translate(status: int, body: str) -> ProviderError | None:
    if status == 422 and error_part(body, "error", "code") == "SUBSCRIPTION_TOKEN_INVALID":
        return AuthFailed("Brave refused the key (status 422)")
    used, limit = (error_part(body, "error", "meta", key) for key in ("quota_current", "quota_limit"))
    if status == 429 and isinstance(used, int) and isinstance(limit, int) and used >= limit > 0:
        return QuotaExceeded("the plan at Brave is used up (status 429)")
    return None
