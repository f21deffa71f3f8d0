"""The only driver: obeys the loop, asks the model, runs the tools, and passes the text through the citer. Handed an
offer and a fallback plan, hands on batches of events for a dialect to encode. Leaving it early (the client went away)
closes the upstream and cancels the tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from itertools import chain
from time import perf_counter
from typing import Any, Literal, Self

from providers.apart import in_thread
from tools.base import ToolCall, ToolResult
from tools.ledger import Ledger
from tools.session import ToolSession
from tools.toolbox import Toolbox

from ..context import RequestContext
from ..store.store import MemoryStore, Store
from ..upstreams.fallback import FallbackPlan
from ..values.errors import NO_RETRY, truncated
from ..values.events import (
    Event,
    EventBatches,
    Failed,
    Finished,
    Replan,
    RoundFinished,
    SearchedFirst,
    TakeBatch,
    TextDelta,
    ToolCallDelta,
    ToolStarted,
    UsageSeen,
    feed_of,
)
from ..values.portions import PORTION, portions
from ..values.request import AutoMarks, ChatRequest, CitationStyle
from .citations import Citer
from .decoration import links_in
from .grounds import Grounds
from .loop import Action, AskModel, KeepTurn, RunTools, SearchFirst, ToolLoop
from .offer import Offer
from .search_first import FirstSearch
from .session_options import session_options, texts_of_client
from .stripped import NamedHosts, StrippedCiter, StrippedThoughts
from .turns import Turn

_ENDS = frozenset((Finished, Failed, Replan))
_TURN_KEPT = 24 * 3600.0  # how long a client may take to run its tools
_A_TURN = 0.01  # seconds that one answer's text may be looked at before others have their turn
_LONGEST_PIECE = 250  # characters that are looked at without a glance at the clock


class Engine:
    """`max_seconds` is how long the model may go on searching; the rest of a request's time is for the answer.
    `style` is the operator's; a request may have its own, and without any citations look as the dialect wants them."""

    def __init__(
        self,
        toolbox: Toolbox,
        *,
        max_rounds: int = 6,
        max_seconds: float = 360.0,
        style: CitationStyle | None = None,
        footer: bool = False,
        auto: AutoMarks = "assist",
        require_read: bool = False,
        strip_foreign: bool = False,
        store: Store | None = None,
    ) -> None:
        self.toolbox = toolbox
        self.auto = auto
        self.require_read = require_read
        self.strip_foreign = strip_foreign
        self.store = store or MemoryStore()
        self.max_rounds = max_rounds
        self.max_seconds = max_seconds
        self.style = style
        self.footer = footer

    def answer(self, request: ChatRequest, offer: Offer, plan: FallbackPlan, context: RequestContext) -> EventBatches:
        """Everything that happens while this request is answered. The last event is Finished or Failed."""
        return _Answering(self, request, offer, plan, context)


class _Answering:
    """One request on its way: what the loop says is done here, and what happens is handed on. This is no generator,
    because every piece of an answer passes here."""

    def __init__(
        self, engine: Engine, request: ChatRequest, offer: Offer, plan: FallbackPlan, context: RequestContext
    ) -> None:
        self._engine = engine
        self._request = request
        self._offer = offer
        self._plan = plan
        self._context = context
        self._ledger = Ledger(offer.highest_number)
        if offer.known_sources:
            for n, source in offer.known_sources.items():
                self._ledger.restore(n, *source)
        self._searching = bool(offer.owned)
        style = request.citations or engine.style or context.dialect.citation_style
        enabled = self._searching and offer.response_format is None
        shown, taken = links_in(request.begun) if request.begun else None, offer.known_sources
        read_alone = partial(_said_of_citations, "require_read", engine, plan, context)
        self._grounds = Grounds(self._ledger, taken, read_alone, request.longest_quote)
        lookup, texts = self._grounds.citable, self._grounds.texts
        citer = Citer(lookup, style, engine.footer, enabled, shown, taken, texts)
        self._marker = citer  # of sentences that have no marker
        self._citer: Citer | StrippedCiter = citer
        self._thoughts: StrippedThoughts | None = None
        if engine.strip_foreign and enabled:
            hosts = NamedHosts(self._ledger, partial(texts_of_client, request, offer))
            self._citer, self._thoughts = StrippedCiter(citer, hosts), StrippedThoughts(hosts)
        self._loop: ToolLoop | None = None  # made when it is known how the model takes tools
        self._steps: EventBatches | None = None  # what the loop wants done, while it is
        self._portions: Iterator[Sequence[Event]] | None = None  # the rest of a batch with much text
        self._heard: list[Event] = []  # what was heard already, and is handed on next
        self._session: ToolSession | None = None  # opened with the first call: most requests never search
        self._early: asyncio.Task[list[ToolResult]] | None = None  # calls of ours that run while the model still speaks
        self._may_call_client = self._searching and bool(offer.client_tools)
        self._shown: list[str] = []  # the text that the client has seen, where it may be called
        self._over = False
        self._called = False  # has the model called tools of ours? A client's retry would do it all again
        self._hearing = False  # are the steps what a model says?
        self._asking = False  # and is it still speaking?
        self._said = 0  # characters of this round
        self._time_to_answer = context.running_loop.time() + engine.max_seconds

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Event]:
        if self._heard:
            events, self._heard = self._heard, []
            return events
        try:
            while True:
                if self._loop is None:
                    search_first = self._searching and await self._plan.look_up() == "none"
                    self._loop = self._new_loop(search_first)
                if self._steps is None:
                    action = self._next_action(self._loop)
                    if type(action) is RunTools:
                        return await self._run_tools(action, self._loop)
                    self._steps = self._steps_of(action, self._loop)
                if self._portions is not None:
                    events = await self._next_portion()
                elif self._hearing and not self._asking:  # all is said, and nothing more is awaited
                    events = await self._end_steps(self._steps)
                else:
                    try:
                        batch = await self._steps.__anext__()
                    except StopAsyncIteration:
                        events = await self._end_steps(self._steps)
                    else:
                        events = self._hear(batch) if self._hearing else batch
                if events:
                    return events
        except BaseException:
            await self.aclose()
            raise

    async def feed(self, take: TakeBatch) -> None:
        feed = feed_of(self._steps) if self._asking and self._steps and self._portions is None else None
        if feed is None:
            return

        def take_heard(batch: list[Event]) -> bool:
            events = self._hear(batch)
            if self._asking and self._portions is None:
                return take(events) if events else True
            self._heard = events  # the last of them, or the first of many: from here on something is to be awaited
            return False

        try:
            await feed(take_heard)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """For who leaves early, and at the end."""
        steps, self._steps, self._portions, self._over = self._steps, None, None, True
        try:
            if steps is not None:
                await steps.aclose()
        finally:
            if self._asking:  # left in the middle
                self._asking = False
                self._plan.note_left(self._said)
            if self._early:
                self._early.cancel()

    def _new_loop(self, search_first: bool) -> ToolLoop:
        assist = self._plan.current.settings.assist
        return ToolLoop(self._offer, self._engine.max_rounds, assist, search_first)

    def _next_action(self, loop: ToolLoop) -> Action:
        if self._over:
            raise StopAsyncIteration
        return loop.next_action()

    def _steps_of(self, action: Action, loop: ToolLoop) -> EventBatches:
        """What the loop wants done, as it happens."""
        if type(action) is AskModel:
            self._hearing, self._asking, self._said = True, True, 0
            return self._plan.stream(action.body, action.known_tools)
        self._hearing = False
        if type(action) is KeepTurn:
            return self._keep_turn(action, loop)
        if type(action) is SearchFirst:
            return self._search_first(loop)
        raise StopAsyncIteration

    def _hear(self, batch: list[Event]) -> list[Event]:
        """What the client may see of what the model says."""
        loop = self._loop
        assert loop is not None
        ended = type(batch[-1]) in _ENDS
        if ended:
            self._asking = False
            self._plan.note_end(batch, self._said)
        events = loop.receive(batch)
        if ended and loop.gave_up_reading:
            self._ledger.withdraw(*self._found())
        elif loop.called and not ended:
            self._start_early(loop)
        said = 0
        for event in events:
            if type(event) is TextDelta:
                said += len(event.text)
        self._said += said
        if said <= PORTION:
            return self._dress(events)
        self._portions = portions(events)
        return self._dress(next(self._portions))

    def _start_early(self, loop: ToolLoop) -> None:
        """Ours run while the client's calls of the same turn are still being written."""
        if self._early is None and (calls := loop.ready()):
            self._early = asyncio.create_task(self._run_early(calls))

    async def _run_early(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        return await (await self._tools()).run(calls)

    async def _next_portion(self) -> list[Event]:
        assert self._portions is not None
        portion = next(self._portions, None)
        if portion is None:
            self._portions = None
            return []
        await asyncio.sleep(0)
        return self._dress(portion)

    async def _end_steps(self, steps: EventBatches) -> list[Event]:
        self._steps = None
        await steps.aclose()
        return self._hear([truncated()]) if self._asking else []

    async def _search_first(self, loop: ToolLoop) -> AsyncGenerator[list[Event], None]:
        self._session = await self._open_session(assist=False, room=None)  # what fits is seen to there
        self._may_call_client = True  # a model that cannot call may try: nobody can tell what
        first = FirstSearch(self._request, self._offer, self._plan, self._session)
        async with aclosing(first.run()) as batches:
            async for batch in batches:
                yield batch if isinstance(batch[0], SearchedFirst) else [*loop.begin(), *batch]
        loop.searched(first.offer, first.usage, first.bare)
        await self._searched(weak=True)

    async def _run_tools(self, action: RunTools, loop: ToolLoop) -> list[Event]:
        self._called = True
        if self._early:  # the session remembers what it found
            await self._early
            self._early = None
        session = await self._tools()
        results = await session.run(action.calls)
        await self._searched(weak=self._plan.current.settings.assist)
        late = self._context.running_loop.time() > self._time_to_answer
        return self._dress(loop.tools_done(results, spent=session.spent or late))

    async def _keep_turn(self, action: KeepTurn, loop: ToolLoop) -> AsyncGenerator[list[Event], None]:
        if held := self._note(list(self._citer.flush())):
            yield held
        shown = "".join(self._shown)
        turn = Turn(action.before, action.calls, action.results, shown, loop.reading, self._ledger.to_keep())
        await self._engine.store.put("turn", self._context.caller.owner, action.key, turn.encoded(), _TURN_KEPT)
        yield self._dress(loop.turn_kept())

    def _dress(self, events: Iterable[Event]) -> list[Event]:
        """Text through the citer; the end with what the whole request gathered."""
        out: list[Event] = []
        citer, until = self._citer, 0.0
        left = iter(events)
        for event in self._thoughts.filter(left) if self._thoughts else left:
            if type(event) is TextDelta:
                if citer.passes(event.text):
                    out.append(event)
                    continue
                until = until or perf_counter() + _A_TURN
                pieces = _short_pieces(event.cut)
                for piece in pieces:
                    out += citer.feed(piece)
                    if perf_counter() > until:
                        self._put_back([*map(TextDelta, pieces), *left])
                        break
            elif type(event) in _DRESSED:
                out += _DRESSED[type(event)](self, event)
            else:
                out.append(event)
        return self._note(out) if self._may_call_client else out

    def _put_back(self, events: list[Event]) -> None:
        """Others have their turn before these: some text takes much longer to look at than its length tells."""
        if events:
            self._portions = chain([events], self._portions or ())

    def _behind_text(self, event: Event) -> list[Event]:
        """What waited was the end of this stretch of text."""
        return [*self._citer.release(), event]

    def _behind_round(self, event: RoundFinished) -> list[Event]:
        return [*self._citer.end_round(), event]

    def _with_cost(self, event: UsageSeen) -> list[Event]:
        """With what our tools did, and what all of it cost so far, where there are prices."""
        summary = self._context.observer.summary
        cost = {"cost": round(summary.cost, 8)} if summary.prices.set else {}
        if self._session is not None or cost:
            event = UsageSeen({**event.usage, **_tool_usage(self._session), **cost})
        return [*self._citer.flush(), event]

    def _with_advice(self, event: Failed) -> list[Event]:
        failed = replace(event, headers={**event.headers, **NO_RETRY}) if self._called else event
        return [*self._citer.release(), failed]

    def _note(self, events: list[Event]) -> list[Event]:
        """Takes down the text that the client is about to see."""
        self._shown += [event.text for event in events if isinstance(event, TextDelta)]
        return events

    def _found(self) -> list[int]:
        """The numbers of what this request has found."""
        return [source.n for source in self._ledger if source.n not in self._offer.known_sources]

    async def _searched(self, *, weak: bool) -> None:
        """From here on sentences without a marker get one, where that is wanted: mostly for models that write none."""
        wanted = _said_of_citations("auto", self._engine, self._plan, self._context)
        found = self._session is not None and bool(self._session.searches or self._session.pages)
        auto = found and (wanted == "on" or (wanted == "assist" and weak))
        if auto:
            self._marker.mark_sentences(self._grounds.plain_source)
        if found:
            await self._grounds.read_aside(all_of_them=auto)

    async def _tools(self) -> ToolSession:
        if self._session is None:
            candidate = self._plan.current
            # A character for each token of its context: a quarter of it in English, most of it in Japanese.
            room = candidate.upstream.context(candidate.model) or None
            self._session = await self._open_session(assist=candidate.settings.assist, room=room)
        return self._session

    async def _open_session(self, *, assist: bool, room: int | None) -> ToolSession:
        given = (self._request, self._offer, self._context, self._ledger)
        make = partial(session_options, *given, assist=assist, room=room)
        return self._engine.toolbox.session(await in_thread(make) if self._request.is_long else make())


_DRESSED: dict[type, Callable[[_Answering, Any], list[Event]]] = {
    ToolStarted: _Answering._behind_text,
    ToolCallDelta: _Answering._behind_text,
    RoundFinished: _Answering._behind_round,
    UsageSeen: _Answering._with_cost,
    Failed: _Answering._with_advice,
}


def _short_pieces(pieces: Sequence[str]) -> Iterator[str]:
    """Each short enough that the time may be looked at between two of them."""
    for piece in pieces:
        for start in range(0, len(piece), _LONGEST_PIECE):
            yield piece[start : start + _LONGEST_PIECE]


def _said_of_citations(
    setting: Literal["auto", "require_read"], engine: Engine, plan: FallbackPlan, context: RequestContext
) -> Any:
    """By the key, else by the upstream, else for all."""
    for policy in (context.caller.policy.citations, plan.current.settings.citations):
        if (said := getattr(policy, setting)) is not None:
            return said
    return getattr(engine, setting)


def _tool_usage(session: ToolSession | None) -> dict[str, Any]:
    if session is None or not (session.searches or session.pages):
        return {}
    return {"server_tool_use": {"web_search_requests": session.searches, "web_fetch_requests": session.pages}}
