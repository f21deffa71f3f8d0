"""What can happen to a request that is worth telling: plain values, made by the rooms where it happens, handed to the
request's observer. None holds what people wrote but `ToolCalled.arguments`, which only who may show contents shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from providers.base import ProviderCall


@dataclass(frozen=True, slots=True)
class Decided:
    """Whether search is offered, and why."""

    offered: bool
    reason: str


@dataclass(frozen=True, slots=True)
class ModelAsked:
    upstream: str
    model: str


@dataclass(frozen=True, slots=True)
class ModelFailed:
    upstream: str
    status: int
    code: str


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """One of our own tools has run. Which providers it asked is told by themselves, as `ProviderCall`."""

    tool: str
    ok: bool
    seconds: float
    arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class FirstContent:
    """The first piece of the answer is here: text, thinking, or a call of the client's."""


@dataclass(frozen=True, slots=True)
class Cited:
    """A marker in the answer became a citation of the source with this number."""

    n: int


@dataclass(frozen=True, slots=True)
class TokensCounted:
    input: int
    output: int


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The upstream's own bytes went out."""

    upstream: str
    status: int


Step = Decided | ModelAsked | ModelFailed | ProviderCall | ToolCalled | FirstContent | Cited | TokensCounted | Forwarded


def tokens_in(usage: Mapping[str, Any]) -> TokensCounted:
    """The tokens that a usage object counts, as Chat Completions or Messages names them."""
    read = _first(usage, "prompt_tokens", "input_tokens")
    return TokensCounted(read, _first(usage, "completion_tokens", "output_tokens"))


def _first(usage: Mapping[str, Any], *names: str) -> int:
    numbers = (usage.get(name) for name in names)
    return next((int(number) for number in numbers if isinstance(number, int | float)), 0)
