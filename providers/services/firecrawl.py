"""Firecrawl: search, and pages scraped with a browser; the vendor's cloud or an instance of your own.

Handed a `SearchQuery` or a URL; hands on hits or a page. A page's own error comes as a success, with the status in its
metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field, SecretStr, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from ..api import ServiceApi, bearer
from ..base import Page, SearchQuery, SearchResults
from ..errors import PageBlocked, ProviderError, Unavailable
from ..queries import google_time
from ..rows import error_part, part, records
from ..settings import BaseUrl, Key
from ..web.egress import DIRECT, Egress

CLOUD = "https://api.firecrawl.dev"
MAX_RESULTS = 100
CATEGORIES = ("github", "research", "pdf")


class Firecrawl:
    hosted = True
    uses_egress = True

    class Settings(BaseModel, extra="forbid"):
        base_url: BaseUrl = CLOUD
        api_key: Key | None = Field(None, validate_default=True)  # an instance of your own may need none
        timeout: float = Field(30.0, gt=0)
        formats: list[Literal["markdown", "links", "summary"]] = ["markdown", "links"]
        """What Firecrawl returns of a page."""
        only_main_content: bool = True
        """Whether navigation, headers and footers are left out."""
        max_age: int | None = Field(None, ge=0)
        """How old a page in Firecrawl's cache may be, in seconds. 0 always fetches anew."""

        @field_validator("api_key")
        @classmethod
        def _needed_in_the_cloud(cls, key: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
            if key is None and info.data.get("base_url") == CLOUD:
                raise PydanticCustomError("missing", "Field required")
            return key

    def __init__(self, settings: Settings, egress: Egress = DIRECT) -> None:
        self.timeout = settings.timeout
        self._settings = settings
        headers, url, timeout = bearer(settings.api_key), settings.base_url, settings.timeout
        self._search = ServiceApi("Firecrawl", url, timeout=timeout, headers=headers, egress=egress)
        self._reader = ServiceApi(
            "Firecrawl", url, timeout=timeout, headers=headers, translate=_page_error, egress=egress
        )

    async def search(self, query: SearchQuery) -> SearchResults:
        allowed, blocked = list(query.allowed_domains), list(query.blocked_domains)
        data = await self._ask(
            self._search,
            "/v2/search",
            {
                "query": query.text,
                "limit": min(query.limit, MAX_RESULTS),
                "sources": ["news" if query.category == "news" else "web"],
                "categories": [query.category] if query.category in CATEGORIES else None,
                "includeDomains": allowed or None,
                "excludeDomains": None if allowed else blocked or None,  # both at once are refused
                "tbs": google_time(query),
                "country": query.country.upper() if query.country else None,
            },
        )
        rows = [*records(data.get("web")), *records(data.get("news"))]
        return self._search.found(rows, snippet=("description", "snippet"))

    async def read(self, url: str) -> Page:
        max_age = self._settings.max_age
        data = await self._ask(
            self._reader,
            "/v2/scrape",
            {
                "url": url,
                "formats": self._settings.formats,
                "onlyMainContent": self._settings.only_main_content,
                "maxAge": None if max_age is None else max_age * 1000,
            },
        )
        about = data.get("metadata")
        status = part(about, "statusCode")
        if isinstance(status, int) and status >= 400:
            raise PageBlocked(f"the page answered with status {status}")
        return self._reader.page(
            url,
            data.get("markdown") or data.get("summary"),
            url=part(about, "url") or part(about, "sourceURL"),
            title=part(about, "title"),
            date=part(about, "publishedTime"),
            links=data.get("links"),
        )

    async def aclose(self) -> None:
        await self._search.aclose()
        await self._reader.aclose()

    async def _ask(self, api: ServiceApi, path: str, body: dict[str, Any]) -> Mapping[str, Any]:
        answer = await api.post(path, {**body, "timeout": int(self.timeout * 1000)})
        if answer.get("success") is False:
            raise _failed_page(answer.get("code")) or Unavailable("Firecrawl could not do it, and does not say why")
        data = answer.get("data")
        return data if isinstance(data, Mapping) else {}


def _page_error(status: int, body: str) -> ProviderError | None:
    if status == 403:  # a site that Firecrawl does not serve; a wrong key is 401
        return PageBlocked("Firecrawl does not read this site (status 403)")
    return _failed_page(error_part(body, "code"))


def _failed_page(code: object) -> PageBlocked | None:
    return PageBlocked(f"Firecrawl could not read the page ({code})") if str(code).startswith("SCRAPE_") else None
