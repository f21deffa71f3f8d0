"""For models that cannot call tools: the search that comes before the question. Handed a request and a session; hands
on the events of its own calls and, when it has run, the request with what was found inside the last user message.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
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
from .query_plan import Plan, Planner, deciding, question, with_sources
from .room import Room, room_for

BEST_PAGES = 3
MOST_SECONDS = 10.0  # that the model may take to say what is searched: before a stream begins without it


class FirstSearch:
    """`run()` to its end; then `offer` is what the model is asked, and `usage` what that cost so far. `bare` is the
    same without what was found, for a model that cannot hold it."""

    def __init__(self, request: ChatRequest, offer: Offer, plan: FallbackPlan, session: ToolSession) -> None:
        self.bare = self.offer = without_ours(offer)
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
        planned = await self._planned(messages)
        room = self._room()
        if not room.for_passages and (planned.query or planned.urls):
            planned = Plan(reason="no_room")
        if not planned.query and not planned.urls:
            if "tools" in self.offer.body and self._choice is not None:  # nothing of ours has met it
                self.offer = replace(self.offer, body={**self.offer.body, "tool_choice": self._choice})
            yield [SearchedFirst(False, planned.reason)]
            return
        yield [SearchedFirst(True)]
        found, pages = SearchAnswer(""), list[PagePart]()
        if WEB_SEARCH in self._tools and planned.query:
            began = _started(WEB_SEARCH, {"query": planned.query})
            yield [began]
            found = await self._session.search_first(planned.query)
            yield [ToolFinished(began.id, began.tool, found.ok, found.provider, found.sources)]
        urls = list(dict.fromkeys([*planned.urls, *(source.url for source in found.sources[:BEST_PAGES])]))
        if OPEN_PAGE in self._tools and urls:
            query = (planned.query or question(messages))[:MAX_QUERY]
            began = _started(OPEN_PAGE, {"urls": urls, "query": query})
            yield [began]
            pages = await self._session.read_first(urls, query, planned.urls, room.for_passages, room.weigh)
            sources = tuple(page.source for page in pages if page.source)
            yield [ToolFinished(began.id, began.tool, bool(sources), "", sources)]
        text = self._session.reading(found, pages, planned.urls, room.holds)
        body = {**self.offer.body, "messages": with_sources(messages, text)}
        self.offer = replace(self.offer, body=body, reading=text)

    async def _planned(self, messages: Sequence[Any]) -> Plan:
        planner = Planner(messages, forced=self._forced, inside=self._session.stays_here)
        if not self._plan.current.settings.rewrite_query or not planner.has_words:
            return planner.alone()
        limit = asyncio.timeout(MOST_SECONDS)
        try:
            async with limit:
                said = await self._decision()
        except TimeoutError:
            if not limit.expired():
                raise
            return planner.alone()
        return planner.decided(said) if said else planner.alone()

    async def _decision(self) -> str:
        """What the model says when it is asked what to search; nothing if it fails."""
        said: list[str] = []
        async with aclosing(self._plan.ask_aside(deciding(self.offer.body, _today()))) as batches:
            async for batch in batches:
                self._plan.note_end(batch)
                for event in batch:
                    if isinstance(event, TextDelta):
                        said.append(event.text)
                    elif isinstance(event, UsageSeen):
                        add_usage(self.usage, event.usage)
                    elif isinstance(event, Failed):
                        return ""
        return "".join(said)

    def _room(self) -> Room:
        """What the model has room for, by what it has told of itself until now."""
        upstream, model = self._plan.current.upstream, self._plan.current.model
        return room_for(self.offer.body, upstream.context(model), upstream.token_rate(model))


def _started(tool: str, arguments: dict[str, Any]) -> ToolStarted:
    return ToolStarted("first_" + secrets.token_hex(6), tool, arguments)


def _today() -> str:
    return datetime.now(UTC).date().isoformat()
