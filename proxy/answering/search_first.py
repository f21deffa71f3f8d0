"""For models that cannot call tools: the search that comes before the question. Handed a request and a session; hands
on the events of its own calls and, when it has run, the request with what was found inside the last user message.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from tools.base import OPEN_PAGE, WEB_SEARCH
from tools.render import PagePart, SearchAnswer
from tools.session import ToolSession
from tools.web_search import MAX_QUERY

from ..upstreams.fallback import FallbackPlan
from ..values.events import Event, Failed, SearchedFirst, TextDelta, ToolFinished, ToolStarted, UsageSeen
from ..values.request import ChatRequest
from ..values.usage import add_usage
from .offer import Offer, without_ours
from .query_plan import Plan, plan, question, rewriting, rewritten, with_sources

BEST_PAGES = 3
READING = 12_000  # characters of pages, where the model's context size is not known


class FirstSearch:
    """`run()` to its end; then `offer` is what the model is asked, and `usage` what that cost so far."""

    def __init__(self, request: ChatRequest, offer: Offer, plan: FallbackPlan, session: ToolSession) -> None:
        self.offer = without_ours(offer)
        self.usage: dict[str, Any] = {}
        self._forced = request.search.forced and request.search.forced_tool != OPEN_PAGE  # a page is no search
        self._searched = request.searched
        self._choice = request.body.get("tool_choice")  # the client's own
        self._plan = plan
        self._session = session
        self._tools = set(offer.owned.values())

    async def run(self) -> AsyncGenerator[list[Event], None]:
        messages = self.offer.body["messages"]
        if self._searched:
            yield [SearchedFirst(False, "searched_before")]
            return
        planned = plan(messages, forced=self._forced)
        if not planned.query and not planned.urls:
            if "tools" in self.offer.body and self._choice is not None:  # nothing of ours has met it
                self.offer = replace(self.offer, body={**self.offer.body, "tool_choice": self._choice})
            yield [SearchedFirst(False, planned.reason)]
            return
        yield [SearchedFirst(True)]
        if self._plan.current.settings.rewrite_query and planned.query:
            planned = await self._rewritten(planned)
        found, pages = SearchAnswer(""), list[PagePart]()
        if WEB_SEARCH in self._tools and planned.query:
            began = _started(WEB_SEARCH, {"query": planned.query})
            yield [began]
            found = await self._session.search_once(began.arguments)
            yield [ToolFinished(began.id, began.tool, found.ok, found.provider, found.sources)]
        urls = [*planned.urls, *(source.url for source in found.sources[:BEST_PAGES])]
        if OPEN_PAGE in self._tools and urls:
            began = _started(OPEN_PAGE, {"urls": urls, "query": question(messages)[:MAX_QUERY], "max_length": READING})
            yield [began]
            pages = await self._session.open_once(began.arguments)
            sources = tuple(page.source for page in pages if page.source)
            yield [ToolFinished(began.id, began.tool, bool(sources), "", sources)]
        text = self._session.reading(found, pages, named=planned.urls)
        body = {**self.offer.body, "messages": with_sources(messages, text)}
        self.offer = replace(self.offer, body=body, reading=text)

    async def _rewritten(self, planned: Plan) -> Plan:
        """The query in the model's own words, if it finds good ones."""
        said: list[str] = []
        async with aclosing(self._plan.ask_aside(rewriting(self.offer.body))) as batches:
            async for batch in batches:
                self._plan.note_end(batch)
                for event in batch:
                    if isinstance(event, TextDelta):
                        said.append(event.text)
                    elif isinstance(event, UsageSeen):
                        add_usage(self.usage, event.usage)
                    elif isinstance(event, Failed):
                        return planned
        return rewritten("".join(said), planned)


def _started(tool: str, arguments: dict[str, Any]) -> ToolStarted:
    return ToolStarted("first_" + secrets.token_hex(6), tool, arguments)
