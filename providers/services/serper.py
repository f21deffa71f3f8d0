"""Serper: Google's results, with its answer box and knowledge panel as the direct answer.

Handed a `SearchQuery`; hands on hits, from the web, news or scholar.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from ..api import ServiceApi
from ..base import SearchQuery, SearchResults
from ..errors import ProviderError, QuotaExceeded
from ..queries import google_time, with_sites
from ..rows import part
from ..settings import BaseUrl, Key
from ..web.egress import DIRECT, Egress

MAX_RESULTS = 100
# Category → path and the key of its rows.
PLACES = {"news": ("/news", "news"), "scholar": ("/scholar", "organic"), "academic": ("/scholar", "organic")}


class Serper:
    uses_egress = True

    class Settings(BaseModel, extra="forbid"):
        api_key: Key
        base_url: BaseUrl = "https://google.serper.dev"
        timeout: float = Field(10.0, gt=0)
        gl: str | None = None
        """The country for queries that name none, such as `ch`."""
        hl: str | None = None
        """The language for queries that name none, such as `de`."""

    def __init__(self, settings: Settings, egress: Egress = DIRECT) -> None:
        self.timeout = settings.timeout
        self._settings = settings
        headers = {"X-API-KEY": settings.api_key.get_secret_value()}
        url, timeout = settings.base_url, settings.timeout
        self._api = ServiceApi("Serper", url, timeout=timeout, headers=headers, translate=_translate, egress=egress)

    async def search(self, query: SearchQuery) -> SearchResults:
        path, rows = PLACES.get(query.category or "", ("/search", "organic"))
        answer = await self._api.post(
            path,
            {
                "q": with_sites(query),
                "num": min(query.limit, MAX_RESULTS),
                "gl": query.country.lower() if query.country else self._settings.gl,
                "hl": query.language or self._settings.hl,
                "lr": f"lang_{query.language}" if query.language else None,
                "tbs": google_time(query),
            },
        )
        return self._api.found(answer.get(rows), url="link", snippet=("snippet",), answer=_answer(answer))

    async def aclose(self) -> None:
        await self._api.aclose()


def _answer(found: Mapping[str, Any]) -> object:
    """What Google says itself above the results."""
    box, panel = part(found, "answerBox"), part(found, "knowledgeGraph")
    return part(box, "answer") or part(box, "snippet") or part(panel, "description")


def _translate(status: int, body: str) -> ProviderError | None:
    if status == 400 and "not enough credits" in body.lower():
        return QuotaExceeded("the credits at Serper are used up (status 400)")
    return None
