"""Everything that can happen while a question is answered. Upstreams make these, the loop and the citer pass them on
or change them, dialects encode them. They are plain values: no I/O, no identity, safe to compare in tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tools.ledger import Source


@dataclass(frozen=True, slots=True)
class Begun:
    """A model accepted the request and its first event is here. Top-level fields worth keeping ride along."""

    model: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """Thinking, and every other delta field that is neither text nor a call: kept verbatim, echoed within the loop
    unless it was found in the answer's text, where no model wants it back."""

    fields: Mapping[str, Any]
    echoed: bool = True


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a call. `id` and `name` are set on the first piece of a call and nowhere else."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""
    extra: Mapping[str, Any] | None = None  # vendor fields of the call (thought signatures …), verbatim


@dataclass(frozen=True, slots=True)
class SearchedFirst:
    """For a model that cannot call: whether the web is searched before it is asked, or why not."""

    searched: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """One of our own calls begins. `tool` is our name (`web_search`, `open_page`), whatever the wire called it."""

    id: str
    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolFinished:
    id: str
    tool: str
    ok: bool
    provider: str = ""
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class Citation:
    """A marker in the text: `[start, end)` in code points over the whole answer."""

    start: int
    end: int
    source: Source


@dataclass(frozen=True, slots=True)
class UsageSeen:
    usage: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finished:
    reason: str  # stop | length | tool_calls | content_filter | function_call
    # What the loop has put behind the request's messages, and the answer as the model wrote it, for who stores it.
    transcript: tuple[Mapping[str, Any], ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer cannot be completed. `error` is the OpenAI error object; `status` is used if none was sent yet."""

    status: int
    error: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)
    attempt: str | None = (
        None  # what the model wrote, where its server refused it for that (Groq's `failed_generation`)
    )


Event = (
    Begun
    | TextDelta
    | ReasoningDelta
    | ToolCallDelta
    | SearchedFirst
    | ToolStarted
    | ToolFinished
    | Citation
    | UsageSeen
    | Finished
    | Failed
)


def merge_fields(into: dict[str, Any], fields: Mapping[str, Any]) -> None:
    """Adds the fields of one delta to those of the deltas before it: text and lists grow, the rest is replaced."""
    for key, value in fields.items():
        old: Any = into.get(key)
        grows = isinstance(value, str | list) and type(old) is type(value)
        into[key] = old + value if grows else value
