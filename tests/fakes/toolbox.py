"""Small real providers for the toolbox, and the chains and desks around them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from providers.base import Page, SearchQuery, SearchResult, SearchResults
from providers.chain import ReadChain, SearchChain
from providers.errors import NotAllowed, PageBlocked, TimedOut
from providers.registry import NamedProvider
from tools.base import ToolCall, ToolResult
from tools.ledger import Ledger
from tools.options import SessionOptions, ToolPolicy
from tools.session import ToolSession
from tools.toolbox import Toolbox


class Engine:
    """A search engine over two fixed sites. Words in the query make it slow, empty or broken."""

    def __init__(self) -> None:
        self.asked: list[SearchQuery] = []
        self.cancelled = 0

    async def search(self, query: SearchQuery) -> SearchResults:
        self.asked.append(query)
        if "slow" in query.text:
            await asyncio.sleep(0.05)
        if "hang" in query.text:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if "broken" in query.text:
            raise TimedOut("no answer in time")
        name = query.text.replace(" ", "-")
        hits = [
            SearchResult(
                f"{query.text} {number}", f"https://{site}/{name}/{number}", f"About {query.text}.", "2026-05-01"
            )
            for number in range(1, 16)
            for site in ("e.org", "other.net")
        ]
        return SearchResults(tuple(hits), "It is so." if "direct" in query.text else "")


class Shelf:
    """A reader of made-up pages. The path says how the page behaves."""

    def __init__(self) -> None:
        self.read_urls: list[str] = []

    async def read(self, url: str) -> Page:
        self.read_urls.append(url)
        if "blocked" in url:
            raise PageBlocked("the page answered with a challenge")
        if "private" in url:
            raise NotAllowed("address not allowed")
        if "late" in url and self.read_urls.count(url) == 1:  # and at once when it is asked for again
            await asyncio.sleep(10)
        paragraphs = [f"Paragraph {number} speaks of topic{number}. It has a second sentence." for number in range(200)]
        final = url.replace("moved", "here")
        return Page(final, f"Page {url}", "\n\n".join(paragraphs), "2026-05-01", (f"{url}/next", "https://link.org/x"))


class Bench:
    def __init__(self, policy: ToolPolicy | None = None, *members: Any) -> None:
        self.engine, self.shelf = Engine(), Shelf()
        search = [NamedProvider(f"engine{at}", "test", member) for at, member in enumerate([*members, self.engine])]
        self.toolbox = Toolbox(
            SearchChain(search), ReadChain([NamedProvider("shelf", "test", self.shelf)]), policy or ToolPolicy()
        )
        self.ledger = Ledger()

    def session(self, **options: Any) -> ToolSession:
        return self.toolbox.session(SessionOptions(self.ledger, **options))


def search(arguments: Any, call_id: str = "c1") -> ToolCall:
    return ToolCall(call_id, "web_search", arguments if isinstance(arguments, str) else json.dumps(arguments))


def open_page(arguments: Any, call_id: str = "c1") -> ToolCall:
    return ToolCall(call_id, "open_page", arguments if isinstance(arguments, str) else json.dumps(arguments))


async def one(session: ToolSession, call: ToolCall) -> ToolResult:
    [result] = await session.run([call])
    return result
