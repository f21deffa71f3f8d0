"""The upstreams that may serve one request, in order. Handed a body, asks the first; if it fails before anything was
said, the next one is asked, with its own key and its own name for the model. The last one is asked again, if that may
help (`retry.py`). Once one has spoken, the request stays.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import Any, Self

from ..values.errors import NO_RETRY
from ..values.estimates import tokens_asked, tokens_of
from ..values.events import (
    Begun,
    Event,
    EventBatches,
    Failed,
    Feed,
    Finished,
    Replan,
    TakeBatch,
    TextDelta,
    ToolMode,
    UsageSeen,
    feed_of,
)
from ..watching.observer import Observer
from ..watching.steps import (
    Forwarded,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    ModelLeft,
    Operation,
    Retried,
    Tokens,
    tokens_in,
)
from .client import UpstreamClient
from .failures import tokens_refused
from .learned import Sent
from .retry import Retries, RetryBudget
from .upstream_limit import FULL

log = logging.getLogger("groundwire")

_ALWAYS_FREE = nullcontext[Failed | None](None)


class Candidate:
    """An upstream, the model's name there, the headers that may go there (no other one sees a client's own key), and
    what the operator says of the model."""

    __slots__ = ("headers", "model", "settings", "upstream")

    def __init__(self, upstream: UpstreamClient, model: str, headers: Mapping[str, str]) -> None:
        self.upstream = upstream
        self.model = model
        self.headers = headers
        self.settings = upstream.settings(model)


class FallbackPlan:
    """Who is asked is `current`. Until it has spoken another one may take its place, or it is asked again, for events
    and for bytes alike. `deadline` is when the answer must be over, in the loop's time; `line` is whose, where requests
    wait for a place at an upstream."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        observer: Observer,
        budget: RetryBudget | None = None,
        deadline: float = math.inf,
        line: str = "",
    ) -> None:
        self._others = list(candidates)
        self.current = self._others.pop(0)
        self._observer = observer
        self._deadline = deadline
        self._line = line
        self._answered = False  # has a model worked for it already?
        self._budget = budget  # None: what is asked here must not be asked twice
        self._retries: Retries | None = None  # made when it fails first
        self.settled = not self._others  # may nobody else take over any more?
        self._asked = 0.0  # when the current upstream was asked last
        self._question: Mapping[str, Any] = {}  # and what
        self.advice: Mapping[str, str] = {}  # headers for a client that gets the last failure, and may ask again

    def keep(self, wanted: Callable[[Candidate], bool]) -> None:
        """Those alone may take over that are wanted."""
        self._others = [other for other in self._others if wanted(other)]
        self.settled = not self._others

    def look_up(self) -> Awaitable[ToolMode]:
        """How the current model takes tools."""
        return self.current.upstream.look_up(self.current.model)

    def note_question(self) -> Mapping[str, str]:
        """The current upstream is asked now, with its headers and these."""
        if self._budget and not self._asked:
            self._budget.note_request()
        current = self.current
        self._observer.tell(ModelAsked(current.upstream.name, current.model))
        self._asked = time.perf_counter()
        return self._observer.onward

    def note_end(self, batch: Sequence[Event], said: int = 0) -> None:
        """The last events that a question brought. `said`: how many characters came before them."""
        last = batch[-1]
        if isinstance(last, Failed):
            if counted := tokens_refused(last):
                sent = Sent(self._question)
                self._note_count(0 if sent.is_cut or sent.holds(str(counted)) else counted)  # the client's, perhaps
            self.note_failure(last.status, last.error.get("code"))
        elif isinstance(last, Finished):
            self._answered = True
            usage: Mapping[str, Any] = {}
            for event in batch:
                if type(event) is UsageSeen:
                    usage = event.usage
                elif type(event) is TextDelta:
                    said += len(event.text)
            tokens = tokens_in(usage)
            self._note_count(tokens.input)
            if tokens.none:
                tokens = self._estimate(said)
            self._observer.tell(ModelAnswered(self.current.upstream.name, self._seconds, tokens))

    def _note_count(self, tokens: int) -> None:
        """So many tokens were the question, by the count of whoever was asked; 0 if it did not say."""
        if tokens:
            self.current.upstream.note_tokens(self.current.model, self._question, tokens)

    def note_left(self, until_then: Tokens | int) -> None:
        """Nobody waits for the rest of the answer. `until_then`: what it had cost, or the characters of it."""
        tokens = self._estimate(until_then) if isinstance(until_then, int) else until_then
        self._observer.tell(ModelLeft(self.current.upstream.name, tokens))

    def _estimate(self, said: int) -> Tokens:
        return Tokens(tokens_asked(self._question), tokens_of(said), estimated=True)

    def note_forwarded(self, status: int, operation: Operation, tokens: Tokens) -> None:
        self._observer.tell(Forwarded(self.current.upstream.name, status, operation, self._seconds, tokens))

    def note_failure(self, status: int, code: object = None) -> None:
        if code != FULL:  # nobody was asked
            self._observer.tell(ModelFailed(self.current.upstream.name, status, str(code or "")))

    @property
    def _seconds(self) -> float:
        return time.perf_counter() - self._asked

    async def recover(self, failed: Failed) -> bool:
        """The current upstream has failed and said nothing: whether it is to be asked again now. Another upstream may
        stand in its place, or the wait is over; if not, `advice` goes out with the failure."""
        if not self.settled and _is_servers_trouble(failed.status):
            self._fall_back(failed)
            return True
        if self._budget is None or failed.error.get("code") == FULL:
            return False
        self._retries = self._retries or Retries(self._budget)
        left = self._deadline - asyncio.get_running_loop().time()
        verdict = self._retries.judge(failed, self.current.upstream.config, left)
        name = self.current.upstream.name
        if verdict.outcome != "passed_on":
            self._observer.tell(Retried(name, verdict.outcome))
        if verdict.outcome != "asked":
            self.advice = {} if verdict.outcome == "passed_on" else NO_RETRY
            return False
        self.note_failure(failed.status, failed.error.get("code"))
        log.warning("upstream %s failed (HTTP %d): asking again in %.2f s", name, failed.status, verdict.wait)
        await asyncio.sleep(verdict.wait)
        return True

    def _fall_back(self, failed: Failed) -> None:
        self.note_failure(failed.status, failed.error.get("code"))
        gone = self.current.upstream
        self.current = self._others.pop(0)
        self.settled = not self._others
        why = "is full" if failed.error.get("code") == FULL else f"failed (HTTP {failed.status})"
        log.warning("upstream %s %s: trying %s", gone.name, why, self.current.upstream.name)

    def stream(self, body: dict[str, Any], known_tools: Sequence[Any] | None = None) -> Attempts:
        """Asks the model once, as `UpstreamClient.stream`; more often where it fails before it has spoken."""
        return Attempts(self, body, known_tools)

    def ask(self, body: dict[str, Any], known_tools: Sequence[Any] | None) -> EventBatches:
        """One attempt at the current upstream."""
        return _PlacedQuestion(self, body, known_tools)

    def place(self) -> AbstractAsyncContextManager[Failed | None]:
        """A place at the current upstream, or why there is none. Where another one may take over nobody waits for it;
        where a model has worked for this request already, it is worth any wait."""
        limit = self.current.upstream.limit
        if limit is None:
            return _ALWAYS_FREE
        return limit.place(self._line, self._observer, waits=self.settled, patient=self._answered)

    def ask_current(self, body: dict[str, Any], known_tools: Sequence[Any] | None) -> EventBatches:
        """The same for who has a place there."""
        candidate = self.current
        self._question = body
        headers = {**candidate.headers, **self.note_question()}
        return candidate.upstream.stream({**body, "model": candidate.model}, headers, known_tools)

    def ask_aside(self, body: dict[str, Any]) -> EventBatches:
        """Asks the current model something of our own. What it says is not for the client, and settles nothing; whoever
        asks can do without, so it is asked once."""
        return self.ask(body, None)


class _PlacedQuestion:
    """One question, and the place at its upstream for as long as it is asked. Whoever asks must close it."""

    __slots__ = ("_batches", "_begun", "_body", "_known_tools", "_place", "_plan")

    def __init__(self, plan: FallbackPlan, body: dict[str, Any], known_tools: Sequence[Any] | None) -> None:
        self._plan = plan
        self._body = body
        self._known_tools = known_tools
        self._begun = False
        self._place: AbstractAsyncContextManager[Failed | None] | None = None  # that is held
        self._batches: EventBatches | None = None

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[list[Event]]:
        return self._begin() if self._batches is None else self._batches.__anext__()

    async def _begin(self) -> list[Event]:
        if self._begun:
            raise StopAsyncIteration
        self._begun = True
        place = self._plan.place()
        full = await place.__aenter__()
        self._place = place
        if full:
            return [full]
        self._batches = self._plan.ask_current(self._body, self._known_tools)
        return await self._batches.__anext__()

    async def feed(self, take: TakeBatch) -> None:
        feed = None if self._batches is None else feed_of(self._batches)
        if feed is not None:
            await feed(take)

    async def aclose(self) -> None:
        batches, place = self._batches, self._place
        self._begun, self._batches, self._place = True, None, None
        try:
            if batches is not None:
                await batches.aclose()
        finally:
            if place is not None:
                await place.__aexit__(None, None, None)


class Attempts:
    """The batches of one question, over as many attempts as it takes. Until the model has spoken each is looked at;
    from then on nothing stands between its client and the loop, because every piece of an answer passes here."""

    __slots__ = ("_batches", "_begun", "_body", "_early", "_fed_failure", "_known_tools", "_next", "_passes", "_plan")

    def __init__(self, plan: FallbackPlan, body: dict[str, Any], known_tools: Sequence[Any] | None) -> None:
        self._plan = plan
        self._body = body
        self._known_tools = known_tools
        self._early: list[Event] = []  # what came before the first content and is held
        self._fed_failure: list[Event] = []  # came by `feed`; `_look` decides whether to ask again
        self._batches = plan.ask(body, known_tools)
        self._next: Callable[[], Awaitable[list[Event]]] = self._look
        self._begun = False  # was `Begun` handed on?
        self._passes = False  # does nothing have to be looked at any more?

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[list[Event]]:
        return self._next()

    async def feed(self, take: TakeBatch) -> None:
        feed = feed_of(self._batches)
        if feed is None:
            return
        if self._passes or await self._feed_first(feed, take):
            await feed(take)

    async def _feed_first(self, feed: Feed, take: TakeBatch) -> bool:
        """The first content behind `Begun`; or a failure in its place, which is to be looked at. Whether `take` wants
        what comes behind it."""
        if not self._begun:
            return False
        wanted = False

        def take_first(batch: list[Event]) -> bool:
            nonlocal wanted
            if type(batch[-1]) is Failed:
                self._fed_failure = batch
            else:
                self._pass()
                wanted = take(batch)
            return False

        await feed(take_first)
        return wanted

    def aclose(self) -> Awaitable[None]:
        return self._batches.aclose()

    async def _look(self) -> list[Event]:
        """The next batch that may be handed on."""
        plan = self._plan
        while True:
            try:
                self._early += self._fed_failure or await self._batches.__anext__()
            except StopAsyncIteration:
                return self._hand_on()
            self._fed_failure = []
            last = self._early[-1]
            if isinstance(last, Begun):
                if not plan.settled:  # it may be another one's answer yet
                    continue
                early, self._early, self._begun = self._early, [], True
                return early
            if not isinstance(last, Failed):
                plan.settled = plan.settled or not isinstance(last, Replan)
                return self._hand_on()
            if not all(isinstance(event, Begun) for event in self._early[:-1]):
                return self._hand_on()
            asked = plan.current
            await self._batches.aclose()  # a wait must not hold a place at the upstream
            if not await plan.recover(last):
                self._early[-1] = replace(last, headers={**last.headers, **plan.advice})
                return self._hand_on()
            self._early = []
            if plan.current is not asked and await self._wants_search_first():
                self._early = [Replan("none", last)]
                return self._hand_on()
            self._batches = plan.ask(self._body, self._known_tools)

    async def _wants_search_first(self) -> bool:
        """Must be searched for who takes over, before it is asked?"""
        return bool(self._body.get("tools")) and await self._plan.look_up() == "none"

    def _hand_on(self) -> list[Event]:
        """What was held; what comes behind it passes."""
        self._pass()
        if not self._early:
            raise StopAsyncIteration
        return self._early

    def _pass(self) -> None:
        self._next, self._passes = self._batches.__anext__, True


def _is_servers_trouble(status: int) -> bool:
    """Is it the server that failed, not the request? Then another server may do better."""
    return status >= 500 or status in (408, 429)
