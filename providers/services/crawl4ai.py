"""Crawl4AI: pages rendered by a browser and turned into Markdown, over the HTTP API of its server.

Handed a URL; hands on a page. The server fetches pages itself, past our guard, so it counts as a hosted reader.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from ..api import ServiceApi, bearer
from ..base import Page
from ..errors import PageBlocked, ProviderError
from ..rows import error_part
from ..settings import BaseUrl, Key
from ..web.egress import DIRECT, Egress


class Crawl4AI:
    hosted = True
    uses_egress = True

    class Settings(BaseModel, extra="forbid"):
        base_url: BaseUrl = "http://127.0.0.1:11235"
        api_key: Key | None = None  # its CRAWL4AI_API_TOKEN
        timeout: float = Field(30.0, gt=0)
        filter: Literal["fit", "raw"] = "fit"
        """`fit`: the main content of the page. `raw`: all of it."""
        cache: bool = False
        """Whether Crawl4AI may answer from its own cache."""

    def __init__(self, settings: Settings, egress: Egress = DIRECT) -> None:
        self.timeout = settings.timeout
        self._settings = settings
        headers, url, timeout = bearer(settings.api_key), settings.base_url, settings.timeout
        self._api = ServiceApi("Crawl4AI", url, timeout=timeout, headers=headers, translate=_translate, egress=egress)

    async def read(self, url: str) -> Page:
        body = {"url": url, "f": self._settings.filter, "c": "1" if self._settings.cache else "0"}
        answer = await self._api.post("/md", body)
        if answer.get("success") is False:
            raise PageBlocked("Crawl4AI could not read the page")
        return self._api.page(url, answer.get("markdown"))

    async def aclose(self) -> None:
        await self._api.aclose()


def _translate(status: int, body: str) -> ProviderError | None:
    """400, 403, 413: an address or a page it does not take. 500 with a detail: the page failed, not the server."""
    if status in (400, 403, 413) or (status == 500 and isinstance(error_part(body, "detail"), str)):
        return PageBlocked(f"Crawl4AI could not read the page (status {status})")
    return None
