"""What can happen to a request that is worth telling: plain values, made by the rooms where it happens, handed to the
request's observer. What people wrote or read stands in a few fields that `repr` leaves out; only who may show
contents shows these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, NamedTuple, get_args

from providers.base import Basis, ProviderCall, Role
from providers.records import dataclass

# What a model is asked for, in OpenTelemetry's words; empty where that has none.
Operation = Literal["chat", "text_completion", "embeddings", ""]

RetryOutcome = Literal["asked", "spent", "over_budget"]

# What a request may wait for before it begins: a turn on the event loop, a place in all or of its key's, an upstream.
Queue = Literal["turn", "server", "upstream"]

TOOLS: Mapping[Role, str] = {"search": "web_search", "read": "open_page"}  # on whose behalf a provider is asked

_MOST_TOKENS = 10**12  # a server that counts more than these has not counted
_NUMBERS = (int, float)


class Tokens(NamedTuple):
    """As a model's server counted them, or `estimated` by us where it did not say."""

    input: int = 0
    output: int = 0
    cached: int = 0  # of the input, what the server had in its cache
    estimated: bool = False

    @property
    def none(self) -> bool:
        return not (self.input or self.output)


NO_TOKENS = Tokens()


@dataclass(frozen=True, slots=True)
class Queued:
    """It has waited for its turn, or for a place. `shed` says why it was refused in the end, if it was."""

    queue: Queue
    seconds: float
    shed: str = ""


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
    tokens: Tokens = NO_TOKENS


@dataclass(frozen=True, slots=True)
class ModelLeft:
    """The answer was broken off in its middle by us or by who asked. The tokens are those until then."""

    upstream: str
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class ModelFailed:
    upstream: str
    status: int
    code: str


@dataclass(frozen=True, slots=True)
class Retried:
    """A model failed before its first word: it is `asked` again, or not, because the request's retries are `spent` or
    the process is `over_budget`."""

    upstream: str
    outcome: RetryOutcome


@dataclass(frozen=True, slots=True)
class ToolBegan:
    """One of our own tools is about to run."""

    tool: str
    contents: Sequence[Mapping[str, str]] = field(default=(), repr=False)  # what is searched for and opened


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
    """A marker in the answer became a citation of the source with this number. `basis` says whether the model was
    given text of the page itself; None: an earlier answer cited it."""

    n: int
    basis: Basis | None = None
    url: str = field(default="", repr=False)
    title: str = field(default="", repr=False)
    quote: str = field(default="", repr=False)  # the passage that it rests on


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The upstream's own bytes went out, all of them."""

    upstream: str
    status: int
    operation: Operation
    seconds: float
    tokens: Tokens = NO_TOKENS


Step = (
    Queued
    | Received
    | Decided
    | ModelAsked
    | ModelAnswered
    | ModelLeft
    | ModelFailed
    | Retried
    | ProviderCall
    | ToolBegan
    | ToolCalled
    | FirstContent
    | Cited
    | Forwarded
)

KINDS: tuple[type[Step], ...] = get_args(Step)


def tokens_in(usage: Mapping[str, Any]) -> Tokens:
    """The tokens that a usage object counts, as Chat Completions or Messages names them."""
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    return Tokens(
        _count(usage, "prompt_tokens", "input_tokens"),
        _count(usage, "completion_tokens", "output_tokens"),
        _count(details, "cached_tokens") if isinstance(details, dict) else 0,
    )


def _count(usage: Mapping[str, Any], *names: str) -> int:
    """The first of them that is one. Servers send null, strings, and numbers that no counter could take back."""
    for name in names:
        value: Any = usage.get(name)
        if type(value) in _NUMBERS and 0 <= value <= _MOST_TOKENS:
            return int(value)
    return 0
