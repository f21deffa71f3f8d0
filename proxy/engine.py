"""The only driver: obeys the loop, asks the model, runs the tools, and passes the text through the citer. Handed an
offer and an upstream, hands on batches of events for a dialect to encode. Leaving it early (the client went away)
closes the upstream and cancels the tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from tools.ledger import Ledger
from tools.toolbox import Desk, Toolbox

from .citations import Citer, Style
from .errors import NO_RETRY, truncated
from .events import Event, Failed, Finished, TextDelta, UsageSeen
from .inject import Offer
from .loop import End, RunTools, ToolLoop
from .request import ChatRequest
from .search_first import FirstSearch
from .upstreams.lane import tools_refused
from .upstreams.road import Road, Stop

_RESULTS_PER_CONTEXT_SIZE = {"low": 3, "medium": 5, "high": 10}


class Engine:
    """`max_seconds` is how long the model may go on searching; the rest of a request's time is for the answer."""

    def __init__(
        self,
        toolbox: Toolbox,
        *,
        max_rounds: int = 6,
        max_seconds: float = 360.0,
        style: Style = "link",
        footer: bool = False,
    ) -> None:
        self.toolbox = toolbox
        self._max_rounds = max_rounds
        self._max_seconds = max_seconds
        self._style: Style = style
        self._footer = footer

    async def answer(self, request: ChatRequest, offer: Offer, road: Road) -> AsyncGenerator[list[Event], None]:
        """Everything that happens while this request is answered. The last event is Finished or Failed."""
        ledger = Ledger(offer.taken)
        for n, (url, title) in offer.known.items():
            ledger.restore(n, url, title)
        searching, settings = bool(offer.owned), road.here.settings
        plain = not searching or offer.response_format is not None
        citer = Citer(ledger.get, self._style, self._footer, enabled=not plain)
        desk: Desk | None = None  # opened with the first call: most requests never search
        loop = ToolLoop(offer, self._max_rounds, assist=settings.assist)
        time_to_answer = asyncio.get_running_loop().time() + self._max_seconds
        search_first = searching and await road.look_up() == "none"
        known_tools = offer.body["tools"] if searching else None
        adapted = False  # has the model refused tools in this request?
        while not isinstance(action := loop.next_action(), End):
            if search_first:
                search_first = False
                desk = self._desk(request, offer, ledger, road.here, assist=False)
                first = FirstSearch(request, offer, road, desk)
                async with aclosing(first.run()) as found:
                    async for events in found:
                        yield events
                loop = ToolLoop(first.offer, self._max_rounds)
                loop.spend(first.usage)
                known_tools = None  # of ours it has never heard
                continue
            if isinstance(action, RunTools):
                desk = desk or self._desk(request, offer, ledger, road.here, assist=settings.assist)
                results = await desk.run(action.calls)
                late = asyncio.get_running_loop().time() > time_to_answer
                yield loop.tools_done(results, spent=desk.spent or late)
                continue
            ended = again = False
            async with aclosing(road.stream(action.body, known_tools)) as batches:
                async for batch in batches:
                    if not adapted and isinstance(batch[-1], Failed) and tools_refused(batch[-1]):
                        adapted = again = True
                        break
                    events = self._dress(loop.receive(batch), citer, desk, loop)
                    if events:
                        yield events
                    ended = isinstance(batch[-1], Finished | Failed)
            if again:  # the lane knows now how to ask this model; what has begun goes on, in words
                search_first = searching and not loop.begun and road.tool_mode == "none"
            elif not ended:
                yield [truncated()]
                return

    def _dress(self, events: Iterable[Event], citer: Citer, desk: Desk | None, loop: ToolLoop) -> list[Event]:
        """Text through the citer; the end with what the whole request gathered."""
        out: list[Event] = []
        for event in events:
            if isinstance(event, TextDelta):
                out += citer.feed(event.text)
            elif isinstance(event, UsageSeen):
                out += citer.flush()
                out.append(UsageSeen({**event.usage, **_tool_usage(desk)}))
            elif isinstance(event, Failed):
                out += citer.release()
                if tools_refused(event):  # our own word for it
                    event = replace(event, error={**event.error, "code": None})
                searched = desk is not None  # a retry would do it all again
                out.append(replace(event, headers={**event.headers, **NO_RETRY}) if searched else event)
            else:
                out.append(event)
        return out

    def _desk(self, request: ChatRequest, offer: Offer, ledger: Ledger, stop: Stop, *, assist: bool) -> Desk:
        search = request.search
        # A character for each token of its context: a quarter of it in English, most of it in Japanese.
        room = stop.lane.context(stop.model) or None
        return self.toolbox.desk(
            ledger=ledger,
            seen_texts=_texts(offer.body["messages"]),
            country=search.country,
            limit=_RESULTS_PER_CONTEXT_SIZE.get(search.context_size),
            allowed_domains=search.allowed_domains,
            blocked_domains=search.blocked_domains,
            secrets=request.secrets,
            caller=request.caller,
            names=(*sorted(offer.client_tools), *offer.owned),
            room=room,
            assist=assist,
        )


def _tool_usage(desk: Desk | None) -> dict[str, Any]:
    if desk is None or not (desk.searches or desk.pages):
        return {}
    return {"server_tool_use": {"web_search_requests": desk.searches, "web_fetch_requests": desk.pages}}


def _texts(messages: Iterable[Any]) -> list[str]:
    """What people and their tools said, for the URLs in it: those may be opened. What a model wrote proves nothing."""
    texts = []
    for message in messages:
        content = message.get("content")
        if message.get("role") == "assistant":
            continue
        if isinstance(content, str):
            texts.append(content)
        elif isinstance(content, list):
            texts += [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return texts
