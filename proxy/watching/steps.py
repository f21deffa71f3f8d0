"""What can happen to a request that is worth telling: plain values, made by the rooms where it happens, handed to the
request's observer. None holds what people wrote but `ToolCalled.contents`, which only who may show contents shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from providers.base import ProviderCall

# What a model is asked for, in OpenTelemetry's words; empty where that has none.
Operation = Literal["chat", "text_completion", "embeddings", ""]

_MOST_TOKENS = 10**12  # a server that counts more than these has not counted


@dataclass(frozen=True, slots=True)
class Tokens:
    input: int = 0
    output: int = 0


@dataclass(frozen=True, slots=True)
class Received:
    """All of the request is here: its client took this long to send the body."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Decided:
    """Whether search is offered, and why; or that the web is searched before the model is asked."""

    offered: bool
    reason: str
    first: bool = False


@dataclass(frozen=True, slots=True)
class ModelAsked:
    upstream: str
    model: str


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """One question to a model and all of its answer, as events."""

    upstream: str
    seconds: float
    tokens: Tokens = Tokens()


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
    contents: Sequence[Mapping[str, str]] = field(default=(), repr=False)  # what was searched for and opened


@dataclass(frozen=True, slots=True)
class FirstContent:
    """The first piece of a streamed answer is here: text, thinking, or a call of the client's."""


@dataclass(frozen=True, slots=True)
class Cited:
    """A marker in the answer became a citation of the source with this number."""

    n: int


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The upstream's own bytes went out, all of them."""

    upstream: str
    status: int
    operation: Operation
    seconds: float
    tokens: Tokens = Tokens()


Step = (
    Received
    | Decided
    | ModelAsked
    | ModelAnswered
    | ModelFailed
    | ProviderCall
    | ToolCalled
    | FirstContent
    | Cited
    | Forwarded
)


def tokens_in(usage: Mapping[str, Any]) -> Tokens:
    """The tokens that a usage object counts, as Chat Completions or Messages names them."""
    read = _first(usage, "prompt_tokens", "input_tokens")
    return Tokens(read, _first(usage, "completion_tokens", "output_tokens"))


def _first(usage: Mapping[str, Any], *names: str) -> int:
    return next((int(usage[name]) for name in names if _is_count(usage.get(name))), 0)


def _is_count(value: object) -> bool:
    """Servers send null, strings, and numbers that no counter could take back."""
    return isinstance(value, int | float) and value is not True and 0 <= value <= _MOST_TOKENS
