"""The only driver: obeys the loop, asks the model, runs the tools, and passes the text through the citer. Handed an
offer and an upstream, hands on batches of events for a dialect to encode. Leaving it early (the client went away)
closes the upstream and cancels the tools.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from tools.base import ToolResult
from tools.ledger import Ledger
from tools.options import SessionOptions
from tools.session import ToolSession
from tools.toolbox import Toolbox

from ..store.store import MemoryStore, Store
from ..upstreams.client import tools_refused
from ..upstreams.fallback import FallbackPlan
from ..values.errors import NO_RETRY, truncated
from ..values.events import Event, Failed, Finished, TextDelta, ToolCallDelta, ToolStarted, UsageSeen
from ..values.request import ChatRequest
from .citations import Citer, Style
from .loop import End, KeepTurn, RunTools, ToolLoop
from .offer import OUR_NAMES, Offer
from .search_first import FirstSearch
from .turns import Turn, call_name, calls_in

_RESULTS_PER_CONTEXT_SIZE = {"low": 3, "medium": 5, "high": 10}


_READ = re.compile(r"<<<(web-[0-9a-f]{16})\n.*?\n\1>>>", re.DOTALL)  # what was read before the question, put back
_TURN_KEPT = 24 * 3600.0  # how long a client may take to run its tools


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
        store: Store | None = None,
    ) -> None:
        self.toolbox = toolbox
        self.store = store or MemoryStore()
        self.max_rounds = max_rounds
        self.max_seconds = max_seconds
        self.style: Style = style
        self.footer = footer

    def answer(self, request: ChatRequest, offer: Offer, plan: FallbackPlan) -> AsyncGenerator[list[Event], None]:
        """Everything that happens while this request is answered. The last event is Finished or Failed."""
        return _Answering(self, request, offer, plan).run()


class _Answering:
    """One request on its way: what the loop says is done here, and what happens is handed on."""

    def __init__(self, engine: Engine, request: ChatRequest, offer: Offer, plan: FallbackPlan) -> None:
        self._engine = engine
        self._request = request
        self._offer = offer
        self._plan = plan
        self._settings = plan.current.settings
        self._ledger = Ledger(offer.highest_number)
        for n, (url, title) in offer.known_sources.items():
            self._ledger.restore(n, url, title)
        self._searching = bool(offer.owned)
        plain = not self._searching or offer.response_format is not None
        self._citer = Citer(self._ledger.get, engine.style, engine.footer, enabled=not plain)
        self._loop = ToolLoop(offer, engine.max_rounds, assist=self._settings.assist)
        self._known_tools = offer.body["tools"] if self._searching else None
        self._session: ToolSession | None = None  # opened with the first call: most requests never search
        self._early: asyncio.Task[list[ToolResult]] | None = None  # calls of ours that run while the model still speaks
        self._shown: list[str] = []  # the text that the client has seen
        self._time_to_answer = asyncio.get_running_loop().time() + engine.max_seconds

    async def run(self) -> AsyncGenerator[list[Event], None]:
        search_first = self._searching and await self._plan.look_up() == "none"
        adapted = False  # has the model refused tools in this request?
        try:
            while not isinstance(action := self._loop.next_action(), End):
                if search_first:
                    search_first = False
                    async with aclosing(self._search_first()) as batches:
                        async for batch in batches:
                            yield batch
                elif isinstance(action, RunTools):
                    yield await self._run_tools(action)
                elif isinstance(action, KeepTurn):
                    if held := self._note([*self._citer.flush()]):
                        yield held
                    await self._keep(action)
                    yield self._dress(self._loop.turn_kept())
                else:
                    ended = refused = False
                    async with aclosing(self._plan.stream(action.body, self._known_tools)) as batches:
                        async for batch in batches:
                            if not adapted and isinstance(batch[-1], Failed) and tools_refused(batch[-1]):
                                adapted = refused = True
                                break
                            if events := self._dress(self._loop.receive(batch)):
                                yield events
                            self._start_early()
                            ended = isinstance(batch[-1], Finished | Failed)
                    if refused:  # the upstream knows now how to ask this model; what has begun goes on, in words
                        begun = self._loop.begun
                        search_first = self._searching and not begun and self._plan.tool_mode == "none"
                    elif not ended:
                        yield [truncated()]
                        return
        finally:
            if self._early:
                self._early.cancel()

    async def _search_first(self) -> AsyncGenerator[list[Event], None]:
        self._session = self._open_session(assist=False)
        first = FirstSearch(self._request, self._offer, self._plan, self._session)
        async with aclosing(first.run()) as batches:
            async for batch in batches:
                yield batch
        self._loop = ToolLoop(first.offer, self._engine.max_rounds)
        self._loop.spend(first.usage)
        self._known_tools = None  # of ours it has never heard

    def _start_early(self) -> None:
        """Ours run while the client's calls of the same turn are still being written."""
        if self._early is None and (calls := self._loop.ready()):
            self._session = self._session or self._open_session(assist=self._settings.assist)
            self._early = asyncio.create_task(self._session.run(calls))

    async def _run_tools(self, action: RunTools) -> list[Event]:
        self._session = self._session or self._open_session(assist=self._settings.assist)
        if self._early:  # the session remembers what it found
            await self._early
            self._early = None
        results = await self._session.run(action.calls)
        late = asyncio.get_running_loop().time() > self._time_to_answer
        return self._loop.tools_done(results, spent=self._session.spent or late)

    async def _keep(self, action: KeepTurn) -> None:
        sources = [(source.n, source.url, source.title) for source in self._ledger]
        found = self._loop.reading
        turn = Turn(action.before, action.calls, action.results, "".join(self._shown), found, sources)
        await self._engine.store.put("turn", self._request.caller, action.key, turn.encoded(), _TURN_KEPT)

    def _dress(self, events: Iterable[Event]) -> list[Event]:
        """Text through the citer; the end with what the whole request gathered."""
        out: list[Event] = []
        for event in events:
            if isinstance(event, TextDelta):
                out += self._citer.feed(event.text)
            elif isinstance(event, ToolStarted | ToolCallDelta):
                out += self._citer.release()  # what waited was the end of this stretch of text
                out.append(event)
            elif isinstance(event, UsageSeen):
                out += self._citer.flush()
                out.append(UsageSeen({**event.usage, **_tool_usage(self._session)}))
            elif isinstance(event, Failed):
                out += self._citer.release()
                if tools_refused(event):  # our own word for it
                    event = replace(event, error={**event.error, "code": None})
                ran = self._session is not None  # a retry would do it all again
                out.append(replace(event, headers={**event.headers, **NO_RETRY}) if ran else event)
            else:
                out.append(event)
        return self._note(out)

    def _note(self, events: list[Event]) -> list[Event]:
        """Takes down the text that the client is about to see."""
        if self._searching:
            self._shown += [event.text for event in events if isinstance(event, TextDelta)]
        return events

    def _open_session(self, *, assist: bool) -> ToolSession:
        request, offer, candidate = self._request, self._offer, self._plan.current
        search = request.search
        # A character for each token of its context: a quarter of it in English, most of it in Japanese.
        room = candidate.upstream.context(candidate.model) or None
        options = SessionOptions(
            ledger=self._ledger,
            seen_texts=_texts(offer.body["messages"], {*offer.owned, *OUR_NAMES} - offer.client_tools),
            found_before=[url for url, _ in request.sources.values()],
            country=search.country,
            language=search.language,
            limit=_RESULTS_PER_CONTEXT_SIZE.get(search.context_size),
            allowed_domains=search.allowed_domains,
            blocked_domains=search.blocked_domains,
            secrets=request.secrets,
            caller=request.caller,
            names=(*sorted(offer.client_tools), *offer.owned),
            room=room,
            most_calls=search.max_calls,
            assist=assist,
        )
        return self._engine.toolbox.session(options)


def _tool_usage(session: ToolSession | None) -> dict[str, Any]:
    if session is None or not (session.searches or session.pages):
        return {}
    return {"server_tool_use": {"web_search_requests": session.searches, "web_fetch_requests": session.pages}}


def _texts(messages: Sequence[Any], ours: Collection[str]) -> list[str]:
    """What people and their tools said, for the URLs in it: those may be opened. What a model wrote proves nothing, and
    neither do the results of our own tools that were put back: a page that they showed may have named anything."""
    own = {call["id"] for message in messages for call in calls_in(message) if call_name(call) in ours}
    texts = []
    for message in messages:
        content = message.get("content")
        if message.get("role") == "assistant" or message.get("tool_call_id") in own:
            continue
        if isinstance(content, str):
            texts.append(content)
        elif isinstance(content, list):
            texts += [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return [_READ.sub("", text) if "<<<web-" in text else text for text in texts]
