"""What an answer's events say to the observer: when content began, which tools ran and how long, citations, tokens, how
it failed. Handed each batch on its way out; tells the request's observer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..values.events import (
    Citation,
    Event,
    Failed,
    ReasoningDelta,
    SearchedFirst,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    ToolStarted,
    UsageSeen,
)
from ..watching.observer import Observer
from ..watching.steps import Cited, Decided, FirstContent, ToolCalled, tokens_in

_CONTENT = frozenset({TextDelta, ReasoningDelta, ToolCallDelta})


class AnswerTelling:
    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._content_began = False
        self._running: dict[str, tuple[float, ToolStarted]] = {}
        self._tellers: dict[type, Callable[..., None]] = {
            ToolStarted: self._tool_started,
            ToolFinished: self._tool_finished,
            Citation: self._cited,
            UsageSeen: self._used,
            SearchedFirst: self._searched_first,
            Failed: self._failed,
        }

    def see(self, batch: Sequence[Event]) -> None:
        for event in batch:
            kind = type(event)
            if kind in _CONTENT:
                if not self._content_began:
                    self._content_began = True
                    self._observer.tell(FirstContent())
            elif teller := self._tellers.get(kind):
                teller(event)

    def _tool_started(self, event: ToolStarted) -> None:
        self._running[event.id] = time.perf_counter(), event

    def _tool_finished(self, event: ToolFinished) -> None:
        if event.id in self._running:
            began, started = self._running.pop(event.id)
            seconds = time.perf_counter() - began
            self._observer.tell(ToolCalled(event.tool, event.ok, seconds, started.arguments))

    def _cited(self, event: Citation) -> None:
        self._observer.tell(Cited(event.source.n))

    def _used(self, event: UsageSeen) -> None:
        self._observer.tell(tokens_in(event.usage))

    def _searched_first(self, event: SearchedFirst) -> None:
        if not event.searched:
            self._observer.tell(Decided(False, event.reason))

    def _failed(self, event: Failed) -> None:
        self._observer.fail(event.error.get("code"))
