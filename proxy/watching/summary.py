"""One request in figures: what the log prints, and what every list of requests shows. Handed steps as they are told;
hands on plain numbers and names without anything that people wrote, unless contents are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from providers.base import ProviderCall

from .prices import NO_PRICES, PriceList
from .steps import (
    Cited,
    Decided,
    FirstContent,
    Forwarded,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    ModelLeft,
    Queued,
    Received,
    Retried,
    Step,
    ToolBegan,
    ToolCalled,
)

MOST_LISTED = 100  # of each kind

CostKind = Literal["model", "search", "read"]


class Summary:
    __slots__ = (
        "calls",
        "citations",
        "costs",
        "estimated_tokens",
        "first_content",
        "input_tokens",
        "model",
        "model_failures",
        "output_tokens",
        "overhead",
        "pages",
        "prices",
        "queued",
        "reason",
        "retries",
        "rounds",
        "search",
        "searches",
        "tools",
        "upstream",
        "waited",
    )

    def __init__(self, prices: PriceList = NO_PRICES) -> None:
        self.prices = prices
        self.search = ""  # offered, first (before the model is asked) or off; empty where nobody decided
        self.reason = ""
        self.upstream = ""  # the last one that was asked
        self.model = ""
        self.rounds = 0  # times that a model was asked
        self.model_failures: list[ModelFailed] = []
        self.retries = 0  # times that a model was asked again after it had failed
        self.calls: list[ProviderCall] = []
        self.searches = 0  # that a provider answered, or its cache
        self.pages = 0
        self.tools: list[ToolCalled] = []
        self.citations = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.estimated_tokens = 0  # of both, where no server counted
        self.costs: dict[tuple[CostKind, str], float] = {}  # and by whom: an upstream or a provider
        self.first_content: float | None = None  # seconds
        self.queued = 0.0  # seconds, for its turn and for places
        self.waited = 0.0  # seconds, for the client to send the request's body
        self.overhead: float | None = None  # our own seconds before the first question to a model or a provider

    def copied(self) -> Summary:
        """Its lists are the same ones. Name by name, because a loop over the names takes five times as long."""
        other = Summary.__new__(Summary)
        other.calls = self.calls
        other.citations = self.citations
        other.costs = self.costs
        other.estimated_tokens = self.estimated_tokens
        other.first_content = self.first_content
        other.input_tokens = self.input_tokens
        other.model = self.model
        other.model_failures = self.model_failures
        other.output_tokens = self.output_tokens
        other.overhead = self.overhead
        other.pages = self.pages
        other.prices = self.prices
        other.queued = self.queued
        other.reason = self.reason
        other.retries = self.retries
        other.rounds = self.rounds
        other.search = self.search
        other.searches = self.searches
        other.tools = self.tools
        other.upstream = self.upstream
        other.waited = self.waited
        return other

    @property
    def cost(self) -> float:
        return sum(self.costs.values())

    def contents(self) -> list[Mapping[str, str]]:
        """What was searched for and opened, in the model's words."""
        return [{"tool": tool.tool, **shown} for tool in self.tools for shown in tool.contents]

    def _queued(self, step: Queued, seconds: float) -> None:
        self.queued += step.seconds

    def _received(self, step: Received, seconds: float) -> None:
        self.waited = step.seconds

    def _decided(self, step: Decided, seconds: float) -> None:
        self.search = "first" if step.first else "offered" if step.offered else "off"
        self.reason = step.reason

    def _asked(self, step: ModelAsked, seconds: float) -> None:
        self.upstream, self.model = step.upstream, step.model
        self.rounds += 1
        if self.overhead is None:
            self._note_question(seconds)

    def _answered(self, step: ModelAnswered | ModelLeft | Forwarded, seconds: float) -> None:
        tokens = step.tokens
        self.input_tokens += tokens.input
        self.output_tokens += tokens.output
        if tokens.estimated:
            self.estimated_tokens += tokens.input + tokens.output
        if self.prices.set and (cost := self.prices.of_tokens(self.upstream, self.model, tokens)):
            self._spend("model", self.upstream, cost)

    def _failed(self, step: ModelFailed, seconds: float) -> None:
        self._list(self.model_failures, step)

    def _retried(self, step: Retried, seconds: float) -> None:
        self.retries += step.outcome == "asked"

    def _called(self, step: ProviderCall, seconds: float) -> None:
        self._list(self.calls, step)
        if self.overhead is None:
            self._note_question(seconds - step.seconds)
        if step.answered:
            if step.role == "search":
                self.searches += 1
            else:
                self.pages += 1
        if self.prices.set and (cost := self.prices.of_call(step)):
            self._spend(step.role, step.provider, cost)

    def _tool_began(self, step: ToolBegan, seconds: float) -> None:
        """Counted when it has run."""

    def _tool_called(self, step: ToolCalled, seconds: float) -> None:
        self._list(self.tools, step)

    def _content_began(self, step: FirstContent, seconds: float) -> None:
        self.first_content = seconds

    def _cited(self, step: Cited, seconds: float) -> None:
        self.citations += 1

    def _note_question(self, seconds: float) -> None:
        self.overhead = max(0.0, seconds - self.waited)

    def _spend(self, kind: CostKind, name: str, cost: float) -> None:
        self.costs[kind, name] = self.costs.get((kind, name), 0.0) + cost

    def _list(self, kept: list[Any], step: Step) -> None:
        if len(kept) < MOST_LISTED:
            kept.append(step)


# How each kind of step is taken, with the second at which it was told.
TAKERS: dict[type, Callable[[Summary, Any, float], None]] = {
    Queued: Summary._queued,
    Received: Summary._received,
    Decided: Summary._decided,
    ModelAsked: Summary._asked,
    ModelAnswered: Summary._answered,
    ModelLeft: Summary._answered,
    ModelFailed: Summary._failed,
    Retried: Summary._retried,
    ProviderCall: Summary._called,
    ToolBegan: Summary._tool_began,
    ToolCalled: Summary._tool_called,
    FirstContent: Summary._content_began,
    Cited: Summary._cited,
    Forwarded: Summary._answered,
}
