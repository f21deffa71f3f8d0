"""SearXNG, the metasearch engine people host themselves, over its JSON format.

Handed a `SearchQuery`; hands on hits and the instant answers of its answerers. It has no count parameter, so more
results mean more pages. It knows no users either; a proxy before it may, so it takes a key or a name and password.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

from pydantic import BaseModel, Field, SecretStr, model_validator

from ..api import PERIODS, BaseUrl, Key, ServiceApi, as_day, bearer, part, records, with_sites
from ..base import MOST_HITS, SearchQuery, SearchResult, SearchResults
from ..errors import AuthFailed, NoResults, ProviderError, Unavailable
from ..web.egress import DIRECT, Egress

MAX_PAGES = 3
ENABLE_JSON = "add `json` under `search: formats:` in its settings.yml and restart it"


class Searxng:
    uses_egress = True

    class Settings(BaseModel, extra="forbid"):
        base_url: BaseUrl
        timeout: float = Field(10.0, gt=0)
        api_key: Key | None = None
        username: str | None = None
        password: SecretStr | None = None
        categories: list[str] = []
        engines: list[str] = []

        @model_validator(mode="after")
        def _one_way_in(self) -> Self:
            if (self.username is None) != (self.password is None):
                raise ValueError("username and password belong together")
            if self.api_key and self.username is not None:
                raise ValueError("it takes an api_key, or username and password, not both")
            return self

    def __init__(self, settings: Settings, egress: Egress = DIRECT) -> None:
        self.timeout = settings.timeout
        self._settings = settings
        url, headers = settings.base_url, bearer(settings.api_key) or _basic(settings.username, settings.password)
        self._api = ServiceApi(
            "SearXNG", url, timeout=settings.timeout, headers=headers, translate=_translate, egress=egress
        )

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
        if query.time_range in PERIODS:
            params["time_range"] = PERIODS[query.time_range]
        if query.language:
            params["language"] = f"{query.language}-{query.country}" if query.country else query.language
        if query.category or self._settings.categories:
            params["categories"] = query.category or ",".join(self._settings.categories)
        if self._settings.engines:
            params["engines"] = ",".join(self._settings.engines)
        if number > 1:
            params["pageno"] = number
        return await self._api.get("/search", params)


def _basic(username: str | None, password: SecretStr | None) -> dict[str, str]:
    if username is None or password is None:
        return {}
    credentials = b64encode(f"{username}:{password.get_secret_value()}".encode()).decode()
    return {"Authorization": f"Basic {credentials}"}


def _hits(page: Mapping[str, Any]) -> dict[str, SearchResult]:
    """The hits of one page by URL, in the engine's order."""
    return {
        hit["url"]: SearchResult(
            title=str(hit.get("title") or ""),
            url=hit["url"],
            snippet=str(hit.get("content") or ""),
            date=as_day(hit.get("publishedDate")),
        )
        for hit in records(page.get("results"))[:MOST_HITS]
        if isinstance(hit.get("url"), str)
    }


def _answer(page: Mapping[str, Any]) -> str:
    """The instant answers; older versions send strings, newer ones objects."""
    given = page.get("answers")
    answers = (part(item, "answer") or item for item in given) if isinstance(given, list) else ()
    return "\n".join(answer for answer in answers if isinstance(answer, str) and answer)


def _nothing(page: Mapping[str, Any]) -> ProviderError:
    """Empty because nothing matched, or because the engines behind it gave up: the second is a fault."""
    silent = page.get("unresponsive_engines")
    if not silent or not isinstance(silent, list):
        return NoResults("SearXNG found nothing")
    names = (" – ".join(map(str, engine)) if isinstance(engine, list) else str(engine) for engine in silent)
    return Unavailable(f"the engines behind SearXNG did not answer: {', '.join(names)}")


def _translate(status: int, body: str) -> ProviderError | None:
    if status == 401:
        return AuthFailed("SearXNG wants to know who asks (status 401); check api_key, or username and password")
    if status == 403:
        return AuthFailed(f"SearXNG refused the JSON format (status 403); {ENABLE_JSON}")
    if status == 200 and "<html" in body[:2000].lower():
        return Unavailable(f"SearXNG answered with a web page, so its JSON format is off; {ENABLE_JSON}")
    return None
