"""SearXNG, the metasearch engine people host themselves, over its JSON format.

Handed a `SearchQuery`; hands on hits and the instant answers of its answerers. It has no count parameter, so more
results mean more pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, Field

from ..api import BaseUrl, ServiceApi, with_sites
from ..base import SearchQuery, SearchResult, SearchResults
from ..errors import AuthFailed, NoResults, ProviderError, Unavailable

MAX_PAGES = 3
TIME_RANGES = {"d": "day", "w": "week", "m": "month", "y": "year"}
ENABLE_JSON = "add `json` under `search: formats:` in its settings.yml and restart it"


class Searxng:
    class Settings(BaseModel, extra="forbid"):
        base_url: BaseUrl
        timeout: float = Field(10.0, gt=0)
        categories: list[str] = []
        engines: list[str] = []

    def __init__(self, settings: Settings) -> None:
        self.timeout = settings.timeout
        self._settings = settings
        self._api = ServiceApi("SearXNG", settings.base_url, timeout=settings.timeout, translate=_translate)

    async def search(self, query: SearchQuery) -> SearchResults:
        deadline = asyncio.get_running_loop().time() + self.timeout
        first = await self._page(query, 1)
        hits = _hits(first)
        answer = _answer(first)
        if not hits and not answer:
            raise _nothing(first)
        # What page one gave is kept, whatever happens to the pages after it.
        with suppress(ProviderError, TimeoutError):
            async with asyncio.timeout_at(deadline):
                for number in range(2, MAX_PAGES + 1):
                    if len(hits) >= query.limit:
                        break
                    known = len(hits)
                    hits |= _hits(await self._page(query, number))
                    if len(hits) == known:
                        break
        return SearchResults(tuple(hits.values()), answer)

    async def aclose(self) -> None:
        await self._api.aclose()

    async def _page(self, query: SearchQuery, number: int) -> dict[str, Any]:
        params: dict[str, str | int] = {"q": with_sites(query), "format": "json"}
        if query.time_range in TIME_RANGES:
            params["time_range"] = TIME_RANGES[query.time_range]
        if query.language:
            params["language"] = f"{query.language}-{query.country}" if query.country else query.language
        if query.category or self._settings.categories:
            params["categories"] = query.category or ",".join(self._settings.categories)
        if self._settings.engines:
            params["engines"] = ",".join(self._settings.engines)
        if number > 1:
            params["pageno"] = number
        return await self._api.get("/search", params)


def _hits(page: Mapping[str, Any]) -> dict[str, SearchResult]:
    """The hits of one page by URL, in the engine's order."""
    return {
        hit["url"]: SearchResult(
            title=str(hit.get("title") or ""),
            url=hit["url"],
            snippet=str(hit.get("content") or ""),
            date=str(hit.get("publishedDate") or "")[:10] or None,
        )
        for hit in page.get("results") or ()
        if isinstance(hit, Mapping) and isinstance(hit.get("url"), str)
    }


def _answer(page: Mapping[str, Any]) -> str:
    """The instant answers; older versions send strings, newer ones objects."""
    answers = (item.get("answer") if isinstance(item, Mapping) else item for item in page.get("answers") or ())
    return "\n".join(answer for answer in answers if isinstance(answer, str) and answer)


def _nothing(page: Mapping[str, Any]) -> ProviderError:
    """Empty because nothing matched, or because the engines behind it gave up: the second is a fault."""
    silent = page.get("unresponsive_engines") or ()
    if not silent:
        return NoResults("SearXNG found nothing")
    names = (" – ".join(map(str, engine)) if isinstance(engine, list) else str(engine) for engine in silent)
    return Unavailable(f"the engines behind SearXNG did not answer: {', '.join(names)}")


def _translate(status: int, body: str) -> ProviderError | None:
    if status == 403:
        return AuthFailed(f"SearXNG refused the JSON format (status 403); {ENABLE_JSON}")
    if status == 200 and "<html" in body[:2000].lower():
        return Unavailable(f"SearXNG answered with a web page, so its JSON format is off; {ENABLE_JSON}")
    return None
