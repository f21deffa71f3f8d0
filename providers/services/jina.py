"""Jina: the reader r.jina.ai, which also works without a key, and the search s.jina.ai, which does not.

Handed a `SearchQuery` or a URL; hands on hits or a page. A page that answered with an error is a page to Jina: only
its `warning` tells.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pydantic import BaseModel, Field

from ..api import ServiceApi, bearer
from ..base import Page, SearchQuery, SearchResults
from ..errors import NoResults, PageBlocked, ProviderError, Unavailable
from ..queries import with_sites
from ..rows import part
from ..settings import BaseUrl, Key
from ..web.egress import DIRECT, Egress

READER = "https://r.jina.ai"
SEARCH = "https://s.jina.ai"
MAX_RESULTS = 20
KINDS = ("web", "news")
LANGUAGES = {"zh": "zh-cn"}  # ISO 639-1 → Google
FAILED = re.compile(r"returned error (\d{3})|captcha", re.I)


class Jina:
    hosted = True
    uses_egress = True

    class Settings(BaseModel, extra="forbid"):
        api_key: Key | None = None
        base_url: BaseUrl = READER
        search_url: BaseUrl | None = None
        """The address of the search. Unset: Jina's own, or `base_url` if you set one."""
        timeout: float = Field(30.0, gt=0)
        engine: Literal["browser", "direct", "cf-browser-rendering"] | None = None
        """How Jina fetches pages. Unset: Jina decides."""
        no_content: bool = True
        """Search returns snippets only, so hits are neither fetched nor paid for. `false` makes Jina read every hit,
        which is slow.
        """

    def __init__(self, settings: Settings, egress: Egress = DIRECT) -> None:
        self.timeout = timeout = settings.timeout
        key = bearer(settings.api_key)
        reader = key | {"X-Retain-Images": "none"} | ({"X-Engine": settings.engine} if settings.engine else {})
        search = key | ({"X-Respond-With": "no-content"} if settings.no_content else {})
        # A key and the queries of a private instance go nowhere else.
        search_url = settings.search_url or (SEARCH if settings.base_url == READER else settings.base_url)
        self.search_url = search_url
        self._needs_key = search_url == SEARCH and settings.api_key is None
        self._reader = ServiceApi(
            "Jina", settings.base_url, timeout=timeout, headers=reader, translate=_page_error, egress=egress
        )
        self._search = ServiceApi(
            "Jina", search_url, timeout=timeout, headers=search, translate=_search_error, egress=egress
        )

    async def search(self, query: SearchQuery) -> SearchResults:
        if self._needs_key:  # not AuthFailed: reading goes on without one
            raise Unavailable("Jina's search needs a key", advice="set JINA_API_KEY, or its api_key")
        params: dict[str, str | int | Sequence[str]] = {
            "q": with_sites(replace(query, allowed_domains=())),
            "num": min(query.limit, MAX_RESULTS),
        }
        if query.allowed_domains:
            params["site"] = query.allowed_domains
        if query.country:
            params["gl"] = query.country.lower()
        if query.language:
            params["hl"] = LANGUAGES.get(query.language, query.language)
        if query.category in KINDS:
            params["type"] = query.category
        answer = await self._search.get("/", params)
        return self._search.found(answer.get("data"), snippet=("description", "content"))

    async def read(self, url: str) -> Page:
        data = (await self._reader.post("/", {"url": url})).get("data")
        if failed := FAILED.search(str(part(data, "warning") or "")):
            raise PageBlocked(f"the page answered with {f'status {failed[1]}' if failed[1] else 'a challenge'}")
        return self._reader.page(
            url,
            part(data, "content"),
            url=part(data, "url"),
            title=part(data, "title"),
            date=part(data, "publishedTime"),
        )

    async def aclose(self) -> None:
        await self._reader.aclose()
        await self._search.aclose()


def _page_error(status: int, body: str) -> ProviderError | None:
    """403: too many failures on this page; 409 and 413: too large; 422: nothing there; 451: not a page it may fetch."""
    if status in (403, 409, 413, 422, 451):
        return PageBlocked(f"Jina could not read the page (status {status})")
    return None


def _search_error(status: int, body: str) -> ProviderError | None:
    return NoResults("Jina found nothing") if status == 422 else None
