"""Pages that only exist after JavaScript: fetched and read as by `direct`, with a real Chromium in between.

    providers:
      - {name: browser, type: chromium}                                              # a Chromium of this machine
      - {name: remote, type: chromium, options: {cdp_url: "http://127.0.0.1:9222"}}  # one that runs elsewhere

Handed a URL; hands on the page as its scripts have made it. The browser reaches nothing by itself: see `web/browser`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import AfterValidator, PositiveFloat

from ..web.browser import Browser
from ..web.http import Fetched, Fetcher
from .direct import Direct

_PAGES = ("text/html", "application/xhtml+xml", "")


def _devtools(value: str) -> str:
    if not value.startswith(("http://", "https://", "ws://", "wss://")):
        raise ValueError("it must be the DevTools address, such as http://127.0.0.1:9222")
    return value.rstrip("/")


class Chromium(Direct):
    class Settings(Direct.Settings):
        timeout: PositiveFloat = 30.0
        program: str = ""
        """The browser's executable. Unset: the first of the usual names that is installed."""
        cdp_url: Annotated[str, AfterValidator(_devtools)] = ""
        """The address of a Chromium that runs elsewhere, such as `http://127.0.0.1:9222`. Write either this or
        `program`.
        """

    def __init__(self, settings: Settings, fetcher: Fetcher) -> None:
        super().__init__(settings, fetcher)
        # What is left after rendering is for the extraction.
        self._render_limit = settings.timeout * 0.6
        self._browser = Browser(fetcher, program=settings.program, address=settings.cdp_url)

    async def aclose(self) -> None:
        await super().aclose()
        await self._browser.aclose()

    async def _shown(self, fetched: Fetched) -> Fetched:
        if fetched.content_type not in _PAGES:
            return fetched
        html = await self._browser.render(fetched, self._render_limit)
        return replace(fetched, body=html.encode("utf-8", "replace"), content_type="text/html", charset="utf-8")
