"""One request in figures: what the log prints, and what every list of requests shows. Handed steps as they are told;
hands on a plain mapping without anything that people wrote, unless contents are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from providers.base import ProviderCall

from .steps import (
    Cited,
    Decided,
    FirstContent,
    Forwarded,
    ModelAsked,
    ModelFailed,
    Step,
    TokensCounted,
    ToolCalled,
)

MOST_LISTED = 100  # of each kind


class Summary:
    def __init__(self) -> None:
        self.search = ""  # offered or off; empty where nobody decided
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
        self._takers: dict[type, Callable[..., None]] = {
            Decided: self._decided,
            ModelAsked: self._asked,
            ModelFailed: lambda step: self._list(self.model_failures, step),
            ProviderCall: lambda step: self._list(self.calls, step),
            ToolCalled: lambda step: self._list(self.tools, step),
            Cited: self._cited,
            TokensCounted: self._counted,
            Forwarded: self._forwarded,
        }

    def take(self, step: Step, seconds: float) -> None:
        if type(step) is FirstContent:
            self.first_content = seconds
        else:
            self._takers[type(step)](step)

    def contents(self) -> list[dict[str, Any]]:
        """What was searched for and opened, in the model's words."""
        return [{"tool": tool.tool, **tool.arguments} for tool in self.tools]

    def _decided(self, step: Decided) -> None:
        self.search, self.reason = "offered" if step.offered else "off", step.reason

    def _asked(self, step: ModelAsked) -> None:
        self.upstream, self.model = step.upstream, step.model
        self.rounds += 1

    def _forwarded(self, step: Forwarded) -> None:
        self.upstream = step.upstream

    def _cited(self, step: Cited) -> None:
        self.citations += 1

    def _counted(self, step: TokensCounted) -> None:
        self.input_tokens += step.input
        self.output_tokens += step.output

    def _list(self, kept: list[Any], step: Step) -> None:
        if len(kept) < MOST_LISTED:
            kept.append(step)
