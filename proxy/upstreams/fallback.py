"""The upstreams that may serve one request, in order. Handed a body, asks the first; if it fails before anything was
said, the next one is asked, with its own key and its own name for the model. Once one has spoken, the request stays.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from ..config.upstreams import UpstreamConfig
from ..values.events import Begun, Event, Failed, Finished, Replan, ToolMode, UsageSeen
from ..watching.observer import Observer
from ..watching.steps import Forwarded, ModelAnswered, ModelAsked, ModelFailed, Operation, Tokens, tokens_in
from .client import UpstreamClient

log = logging.getLogger("groundwire")


@dataclass(frozen=True, slots=True)
class Candidate:
    """An upstream, the model's name there, and the headers that may go there: no other one sees a client's own key."""

    upstream: UpstreamClient
    model: str
    headers: Mapping[str, str]

    @property
    def settings(self) -> UpstreamConfig:
        return self.upstream.config.of(self.model)


class FallbackPlan:
    """Who is asked is `current`. Until it has spoken another one may take its place, for events and for bytes alike."""

    def __init__(self, candidates: Sequence[Candidate], observer: Observer) -> None:
        self._candidates = list(candidates)
        self._observer = observer
        self._settled = len(self._candidates) == 1
        self._asked = 0.0  # when the current upstream was asked last

    @property
    def current(self) -> Candidate:
        return self._candidates[0]

    def keep(self, wanted: Callable[[Candidate], bool]) -> None:
        """Those alone may take over that are wanted."""
        self._candidates[1:] = filter(wanted, self._candidates[1:])
        self._settled = len(self._candidates) == 1

    async def look_up(self) -> ToolMode:
        """How the current model takes tools."""
        return await self.current.upstream.look_up(self.current.model)

    def note_question(self) -> None:
        """The current upstream is asked now."""
        self._observer.tell(ModelAsked(self.current.upstream.name, self.current.model))
        self._asked = time.perf_counter()

    def note_end(self, batch: Sequence[Event]) -> None:
        """The last events that a question brought."""
        last = batch[-1]
        if isinstance(last, Failed):
            self.note_failure(last.status, last.error.get("code"))
        elif isinstance(last, Finished):
            usage = next((event.usage for event in batch if isinstance(event, UsageSeen)), {})
            self._observer.tell(ModelAnswered(self.current.upstream.name, self._seconds, tokens_in(usage)))

    def note_forwarded(self, status: int, operation: Operation, tokens: Tokens) -> None:
        self._observer.tell(Forwarded(self.current.upstream.name, status, operation, self._seconds, tokens))

    def note_failure(self, status: int, code: object = None) -> None:
        self._observer.tell(ModelFailed(self.current.upstream.name, status, str(code or "")))

    @property
    def _seconds(self) -> float:
        return time.perf_counter() - self._asked

    def fall_back(self, status: int, code: object = None) -> bool:
        """The current upstream has failed and said nothing: whether another one stands in its place now."""
        if len(self._candidates) == 1 or not _is_servers_trouble(status):
            return False
        self.note_failure(status, code)
        failed = self._candidates.pop(0).upstream
        self._settled = len(self._candidates) == 1
        log.warning("upstream %s failed (HTTP %d): trying %s", failed.name, status, self.current.upstream.name)
        return True

    def stream(
        self, body: dict[str, Any], known_tools: Sequence[Any] | None = None
    ) -> AsyncGenerator[list[Event], None]:
        """Asks the model once, as `UpstreamClient.stream`."""
        if self._settled:  # nobody else is left to ask: nothing stands between the upstream and the loop
            return self._ask(body, known_tools)
        return self._try_in_order(body, known_tools)

    def ask_aside(self, body: dict[str, Any]) -> AsyncGenerator[list[Event], None]:
        """Asks the current model something of our own. What it says is not for the client, and settles nothing."""
        return self._ask(body, None)

    def _ask(self, body: dict[str, Any], known_tools: Sequence[Any] | None) -> AsyncGenerator[list[Event], None]:
        candidate = self.current
        self.note_question()
        return candidate.upstream.stream({**body, "model": candidate.model}, candidate.headers, known_tools)

    async def _try_in_order(
        self, body: dict[str, Any], known_tools: Sequence[Any] | None
    ) -> AsyncGenerator[list[Event], None]:
        while True:
            early: list[Event] = []  # what was said before the first content
            async with aclosing(self._ask(body, known_tools)) as batches:
                async for batch in batches:
                    if self._settled:
                        yield batch
                        continue
                    early += batch
                    if isinstance(early[-1], Begun):
                        continue
                    failed = _silent_failure(early)
                    if failed and self.fall_back(failed.status, failed.error.get("code")):
                        break
                    self._settled = not isinstance(early[-1], Failed | Replan)
                    yield early
                    early = []
                else:
                    if early:
                        yield early
                    return
            assert failed is not None
            mode = await self.look_up()
            if mode == "none" and body.get("tools"):  # who takes over wants to be searched for first
                yield [Replan(mode, failed)]
                return


def _silent_failure(events: Sequence[Event]) -> Failed | None:
    """The failure that is all there is."""
    last = events[-1]
    return last if isinstance(last, Failed) and all(isinstance(event, Begun) for event in events[:-1]) else None


def _is_servers_trouble(status: int) -> bool:
    """Is it the server that failed, not the request? Then another server may do better."""
    return status >= 500 or status in (408, 429)
