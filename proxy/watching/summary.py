"""One request in figures: what the log prints, and what every list of requests shows. Handed steps as they are told;
hands on plain numbers and names without anything that people wrote, unless contents are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from providers.base import ProviderCall

from .steps import (
    Cited,
    Decided,
    FirstContent,
    Forwarded,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Received,
    Step,
    Tokens,
    ToolCalled,
)

MOST_LISTED = 100  # of each kind


class Summary:
    __slots__ = (
        "calls",
        "citations",
        "first_content",
        "input_tokens",
        "model",
        "model_failures",
        "output_tokens",
        "overhead",
        "reason",
        "rounds",
        "search",
        "tools",
        "upstream",
        "waited",
    )

    def __init__(self) -> None:
        self.search = ""  # offered, first (before the model is asked) or off; empty where nobody decided
        self.reason = ""
        self.upstream = ""  # the last one that was asked
        self.model = ""
        self.rounds = 0  # times that a model was asked
        self.model_failures: list[ModelFailed] = []
        self.calls: list[ProviderCall] = []
        self.tools: list[ToolCalled] = []
        self.citations = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.first_content: float | None = None  # seconds
        self.waited = 0.0  # seconds, for the client to send the request's body
        self.overhead: float | None = None  # our own seconds before the first question to a model or a provider

    def take(self, step: Step, seconds: float) -> None:
        """`seconds` is when it was told."""
        _TAKERS[type(step)](self, step, seconds)

    def contents(self) -> list[Mapping[str, str]]:
        """What was searched for and opened, in the model's words."""
        return [{"tool": tool.tool, **shown} for tool in self.tools for shown in tool.contents]

    def _received(self, step: Received, seconds: float) -> None:
        self.waited = step.seconds

    def _decided(self, step: Decided, seconds: float) -> None:
        self.search = "first" if step.first else "offered" if step.offered else "off"
        self.reason = step.reason

    def _asked(self, step: ModelAsked, seconds: float) -> None:
        self.upstream, self.model = step.upstream, step.model
        self.rounds += 1
        self._note_question(seconds)

    def _answered(self, step: ModelAnswered | Forwarded, seconds: float) -> None:
        self._count(step.tokens)

    def _failed(self, step: ModelFailed, seconds: float) -> None:
        self._list(self.model_failures, step)

    def _called(self, step: ProviderCall, seconds: float) -> None:
        self._list(self.calls, step)
        self._note_question(seconds - step.seconds)

    def _tool_called(self, step: ToolCalled, seconds: float) -> None:
        self._list(self.tools, step)

    def _content_began(self, step: FirstContent, seconds: float) -> None:
        self.first_content = seconds

    def _cited(self, step: Cited, seconds: float) -> None:
        self.citations += 1

    def _note_question(self, seconds: float) -> None:
        if self.overhead is None:
            self.overhead = max(0.0, seconds - self.waited)

    def _count(self, tokens: Tokens) -> None:
        self.input_tokens += tokens.input
        self.output_tokens += tokens.output

    def _list(self, kept: list[Any], step: Step) -> None:
        if len(kept) < MOST_LISTED:
            kept.append(step)


_TAKERS: dict[type, Callable[[Summary, Any, float], None]] = {
    Received: Summary._received,
    Decided: Summary._decided,
    ModelAsked: Summary._asked,
    ModelAnswered: Summary._answered,
    ModelFailed: Summary._failed,
    ProviderCall: Summary._called,
    ToolCalled: Summary._tool_called,
    FirstContent: Summary._content_began,
    Cited: Summary._cited,
    Forwarded: Summary._answered,
}
