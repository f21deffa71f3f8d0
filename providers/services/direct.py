"""Our own reader: handed a URL, fetches it through the guard and hands on the page as Markdown.

Challenges, refusals, consent walls and empty shells are `PageBlocked`, so that nothing is cited that was not read.
"""

from __future__ import annotations

from pydantic import BaseModel, PositiveFloat, PositiveInt

from ..base import Page
from ..deadlines import time_limit
from ..errors import PageBlocked, TimedOut, Unavailable
from ..web.http import Fetched, Fetcher
from ..web.workers import Workers

_REFUSALS = {
    401: "the page is only for those who log in (401)",
    402: "the page is only for those who pay (402)",
    403: "the page refuses to be read by us (403)",
    429: "the page refuses to be read this often (429)",
    451: "the page is withheld for legal reasons (451)",
}


class Direct:
    class Settings(BaseModel, extra="forbid"):
        timeout: PositiveFloat = 15.0  # for the whole of it: fetching and reading
        max_bytes: PositiveInt = 2_000_000
        """How many bytes of a page are read."""

    uses_open_web = True

    def __init__(self, settings: Settings, fetcher: Fetcher) -> None:
        self.timeout = settings.timeout  # the chain gives up a moment later
        self._settings = settings
        self._fetcher = fetcher
        self._workers = Workers()

    async def read(self, url: str) -> Page:
        late = TimedOut("the page could not be read in time")
        async with time_limit(self._settings.timeout, late), self._fetcher.fetching(url) as fetched:
            return await self._read(fetched)

    async def _read(self, fetched: Fetched) -> Page:
        _refuse(fetched.status)
        shown = await self._shown(fetched)
        body = shown.body[: self._settings.max_bytes]
        page = await self._workers.extract(body, shown.content_type, shown.charset, shown.url)
        text = page.text + _note(shown, body)
        return Page(shown.url, page.title, text, page.date, page.links, shown.public, page.cut_short)

    async def aclose(self) -> None:
        await self._workers.aclose()

    async def _shown(self, fetched: Fetched) -> Fetched:
        """What there is to read. Here that is what came; `chromium` runs the page's scripts first."""
        return fetched


def _refuse(status: int) -> None:
    if 200 <= status < 300:
        return
    if status in (404, 410):
        raise Unavailable(f"the page does not exist ({status})")
    if status >= 500:
        raise PageBlocked(f"the page's server is in trouble ({status})")
    raise PageBlocked(_REFUSALS.get(status, f"the page answers with status {status} and nothing to read"))


def _note(fetched: Fetched, body: bytes) -> str:
    cut = fetched.cut or len(body) < len(fetched.body)
    return "\n\n[The page is longer than can be read; the rest was left out.]" if cut else ""
