"""The pages behind a search's best hits, read along with it. Handed what a search found and its session; hands on the
same with passages of the pages in place of an engine's lines about them, as far as they came in time.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from providers.text.relevance import speaks

from . import open_page
from .ledger import Source
from .pages import SHORTEST
from .render import SearchAnswer

if TYPE_CHECKING:
    from .session import ToolSession

MOST_SECONDS = 8.0  # for all of them together: whoever waits for a search waits for this too


async def with_passages(session: ToolSession, found: SearchAnswer) -> SearchAnswer:
    """What no page was read of, or whose page does not speak of the query, stays as the engine gave it."""
    best = found.sources[: session.pages_ahead]
    if not best:
        return found
    tasks = [asyncio.create_task(_read(session, source, found.query)) for source in best]
    try:
        await asyncio.wait(tasks, timeout=MOST_SECONDS)
        read = [task.result() if task.done() else None for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # who asks for such a page next asks anew
    shown = [_shown(session, source, parts, found.query) for source, parts in zip(best, read, strict=True)]
    return replace(found, sources=(*shown, *found.sources[len(best) :]))


async def _read(session: ToolSession, source: Source, query: str) -> open_page.Unnumbered:
    most = max(session.longest_snippet, SHORTEST)
    return await open_page.read(session, open_page.OpenArguments(urls=[source.url], query=query, max_length=most))


def _shown(session: ToolSession, source: Source, read: open_page.Unnumbered | None, query: str) -> Source:
    if read is None:
        return source
    if not speaks(query, read[0][0].content):
        session.reader.give_back(len(read[0][0].content))
        return source
    (part,) = open_page.numbered(session, read)
    return replace(part.source, snippet=part.content) if part.source else source
