"""Everything that can happen while a question is answered. Upstreams make these, the loop and the citer pass them on
or change them, dialects encode them. They are plain values: no I/O, no identity, safe to compare in tests.

Events travel in batches: lists, never empty, one for each network read or step.

- What asks a model hands on `Begun` first and `Finished` or `Failed` last, and nothing behind that. A failure may stand
  alone. An upstream client and a fallback plan may end in `Replan` instead, in a batch of its own and before `Begun`.
- What answers a client (the engine) may begin with `SearchedFirst`, in a batch of its own. Of all that follows `Begun`
  is the first, once, however many rounds there are, unless `Failed` is all there is. `RoundFinished` and `UsageSeen`
  stand before `Finished`. Who encodes an answer can rely on this order, and must not check it again.
- `StepTold` comes only to who says that it shows steps: anywhere before the end, also before `Begun`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any, Literal, Protocol

from providers.base import Basis
from providers.records import dataclass
from tools.ledger import Source

ToolMode = Literal["native", "prompted", "none"]  # how a model takes tools: as JSON, in words, or not at all
_THOUGHTS = ("reasoning_content", "reasoning")  # a server that sends both says the same in both


@dataclass(frozen=True, slots=True)
class Begun:
    """A model accepted the request and its first event is here. Top-level fields worth keeping ride along."""

    model: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """`pieces` are how it was cut when it came, if it was: several that came together are looked at together."""

    text: str
    pieces: tuple[str, ...] = field(default=(), compare=False)

    @property
    def cut(self) -> tuple[str, ...]:
        return self.pieces or (self.text,)


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """Thinking, and every other delta field that is neither text nor a call: kept verbatim, echoed within the loop
    unless it was found in the answer's text, where no model wants it back. `text` is what there is to read in them."""

    fields: Mapping[str, Any]
    echoed: bool = True

    @property
    def text(self) -> str:
        found = (self.fields.get(name) for name in _THOUGHTS)
        return next((text for text in found if isinstance(text, str)), "")


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
class Proof:
    """What a citation rests on. `quote` is a passage of what the model was given of the source, word for word: the one
    that best matches the sentence in front of the marker; empty where none matches. Without a `basis` the model was
    given nothing of the source in this request: an earlier answer cited it. `unmatched` are numbers, dates and
    quotations of the sentence that stand nowhere in the source."""

    quote: str = ""
    basis: Basis | None = None
    unmatched: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Citation:
    """A marker in the text: `[start, end)` in code points over the whole answer. `auto`: the model did not write it."""

    start: int
    end: int
    source: Source
    proof: Proof = Proof()
    auto: bool = False


@dataclass(frozen=True, slots=True)
class RoundFinished:
    """The model was asked and all is done that it called for. `messages` are what the conversation has grown by: the
    assistant's, as the model wrote it, and the results behind it. The client sees none of this; who keeps it does."""

    messages: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class UsageSeen:
    usage: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finished:
    reason: str  # stop | length | tool_calls | content_filter | function_call
    stop_word: str = ""  # at which the model was stopped, where its server says so


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer cannot be completed. `error` is the OpenAI error object; `status` is used if none was sent yet."""

    status: int
    error: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)
    # What the model wrote, where its server refused it for that (Groq's `failed_generation`).
    attempt: str | None = None
    foreign: bool = False  # in the words of the model's server, which may repeat what it was sent


@dataclass(frozen=True, slots=True)
class StepTold:
    """A step of the request's trace, as JSON, between the events of an answer whose client asked for it."""

    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Replan:
    """The model cannot be asked like this, but in another way: `tool_mode` says how it, or who stands in for it, takes
    tools. `failed` is what its server said, for when nobody knows another way."""

    tool_mode: ToolMode
    failed: Failed


Event = (
    Begun
    | TextDelta
    | ReasoningDelta
    | ToolCallDelta
    | SearchedFirst
    | ToolStarted
    | ToolFinished
    | Citation
    | RoundFinished
    | UsageSeen
    | Finished
    | Failed
    | StepTold
    | Replan
)


class EventBatches(Protocol):
    """Batches as they come. Whoever takes them closes them, however far they were read: a connection in the middle of
    an answer is gone at once. An async generator is one; but every piece of an answer passes here, so that those on the
    way of most answers are objects that cost less."""

    def __aiter__(self) -> AsyncIterator[list[Event]]: ...

    def __anext__(self) -> Awaitable[list[Event]]: ...

    def aclose(self) -> Awaitable[None]: ...


TakeBatch = Callable[[list[Event]], bool]  # whether it wants the next one at once
Feed = Callable[[TakeBatch], Awaitable[None]]


def feed_of(batches: EventBatches) -> Feed | None:
    """Some batches can also be had in the moment in which they come, where to wake a task for each would cost as much
    time as all that is done with it. `feed(take)` hands them on as long as `take` wants them and nothing has to be
    awaited; what comes then, if anything, is asked for as usual."""
    feed: Feed | None = getattr(batches, "feed", None)
    return feed


class _Pieces(list[str]):
    """Of one text."""


VENDOR_FIELDS = "provider_specific_fields"  # LiteLLM's place for what only one vendor has


class GatheredFields:
    """The fields of many deltas, as `merge_fields` adds them up. A text is joined when it is asked for: to join it with
    every delta would cost the square of its length. Those of a vendor grow by themselves."""

    __slots__ = ("_fields",)

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}

    def add(self, fields: Mapping[str, Any]) -> None:
        for key, value in fields.items():
            old = self._fields.get(key)
            if key == VENDOR_FIELDS and isinstance(value, Mapping):
                if not isinstance(old, _VendorFields):
                    old = self._fields[key] = _VendorFields()
                old.add(value)
            elif isinstance(value, str):
                if isinstance(old, _Pieces):
                    old.append(value)
                else:
                    self._fields[key] = _Pieces([value])
            elif isinstance(value, list) and isinstance(old, list) and not isinstance(old, _Pieces):
                self._grow(old, value)
            else:
                self._fields[key] = list(value) if isinstance(value, list) else value

    def _grow(self, old: list[Any], value: list[Any]) -> None:
        old += value

    def whole(self) -> dict[str, Any]:
        return {key: _whole(value) for key, value in self._fields.items()}


class _VendorFields(GatheredFields):
    __slots__ = ()

    def _grow(self, old: list[Any], value: list[Any]) -> None:
        add_items(old, value)


def _whole(value: Any) -> Any:
    if isinstance(value, GatheredFields):
        return value.whole()
    return "".join(value) if isinstance(value, _Pieces) else value


def add_items(known: list[Any], given: list[Any]) -> list[Any]:
    """Adds to a list of a vendor's, and says what is new. LiteLLM tells some piece by piece, and others as a whole
    whenever they have grown or an entry has changed."""
    whole = len(given) >= len(known) and all(map(_is_same, known, given))
    new = [item for at, item in enumerate(given) if not whole or at >= len(known) or item != known[at]]
    if whole:
        known[:] = given
    else:
        known += given
    return new


def _is_same(old: Any, new: Any) -> bool:
    if old == new:
        return True
    return isinstance(old, dict) and isinstance(new, dict) and bool(old.get("id")) and old.get("id") == new.get("id")


def merge_fields(into: dict[str, Any], fields: Mapping[str, Any]) -> None:
    """Adds the fields of one delta to those of the deltas before it: text and lists grow, the rest is replaced."""
    for key, value in fields.items():
        old: Any = into.get(key)
        grows = isinstance(value, str | list) and type(old) is type(value)
        into[key] = old + value if grows else value
