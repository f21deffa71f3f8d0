"""What an answer's events say to the observer: when content began, which tools ran and how long, citations, how it
failed. Handed each batch on its way out; tells the request's observer. Keys are taken out of what is told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tools.provenance import holds_secret
from tools.toolbox import tool_named

from ..context import RequestContext
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
)
from ..watching.steps import Cited, Decided, FirstContent, ToolBegan, ToolCalled


class RunningTool:
    """One call of a tool of ours, from its beginning on."""

    def __init__(self, context: RequestContext, tool: str, arguments: Mapping[str, Any]) -> None:
        self._observer = context.observer
        self._tool = tool
        self._contents = contents_of(tool, arguments, context.caller.secrets)
        self._observer.tell(ToolBegan(tool, self._contents))
        self._began = time.perf_counter()

    def ended(self, *, ok: bool) -> None:
        self._observer.tell(ToolCalled(self._tool, ok, time.perf_counter() - self._began, self._contents))


class AnswerTelling:
    """`streamed`: a whole answer has no first piece."""

    def __init__(self, context: RequestContext, streamed: bool) -> None:
        self._context = context
        self._observer = context.observer
        self._tellers = _TELLERS_OF_STREAM if streamed else _TELLERS
        self._running: dict[str, RunningTool] = {}

    def see(self, batch: Sequence[Event]) -> None:
        for event in batch:
            if type(event) in self._tellers:
                self._tellers[type(event)](self, event)

    def _content(self, event: Event) -> None:
        self._tellers = _TELLERS
        self._observer.tell(FirstContent())

    def _tool_started(self, event: ToolStarted) -> None:
        self._running[event.id] = RunningTool(self._context, event.tool, event.arguments)

    def _tool_finished(self, event: ToolFinished) -> None:
        if event.id in self._running:
            self._running.pop(event.id).ended(ok=event.ok)

    def _cited(self, event: Citation) -> None:
        source, proof = event.source, event.proof
        texts = (_shown(text, self._context.caller.secrets) for text in (source.url, source.title, proof.quote))
        self._observer.tell(Cited(source.n, proof.basis, *texts))

    def _searched_first(self, event: SearchedFirst) -> None:
        reason = event.reason or self._observer.summary.reason
        self._observer.tell(Decided(event.searched, reason, first=event.searched))

    def _failed(self, event: Failed) -> None:
        self._observer.fail(event.error.get("code"))


_TELLERS: dict[type, Callable[[AnswerTelling, Any], None]] = {
    ToolStarted: AnswerTelling._tool_started,
    ToolFinished: AnswerTelling._tool_finished,
    Citation: AnswerTelling._cited,
    SearchedFirst: AnswerTelling._searched_first,
    Failed: AnswerTelling._failed,
}
_TELLERS_OF_STREAM = _TELLERS | dict.fromkeys((TextDelta, ReasoningDelta, ToolCallDelta), AnswerTelling._content)


def contents_of(tool: str, arguments: Mapping[str, Any], secrets: Collection[str]) -> list[dict[str, str]]:
    """What a call searches for and opens, and no other word of it. What holds a key is shown nowhere."""
    known = tool_named(tool)
    contents = []
    for action in known.actions(arguments) if known else ():
        if texts := _texts(action, secrets):
            contents.append(texts)
    return contents


def _texts(action: Mapping[str, Any], secrets: Collection[str]) -> dict[str, str]:
    texts = {}
    for name, text in action.items():
        if isinstance(text, str) and text and name != "type":
            texts[name] = _shown(text, secrets)
    return texts


def _shown(text: str, secrets: Collection[str]) -> str:
    return "…" if holds_secret(text, secrets) else text
