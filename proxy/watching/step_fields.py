"""Steps as JSON, for everybody who shows them: traces, the last requests, the audit. Handed a step, when it was told
and the round it belongs to; hands on plain fields. What people wrote or read is in them only where it may be shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from providers.base import ProviderCall

from .contents import LONGEST_NAME, whole_characters
from .reasons import why_decided
from .steps import (
    TOOLS,
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
    Tokens,
    ToolBegan,
    ToolCalled,
)

_LONGEST = 8192  # characters of what others wrote: as long as an address may be

CONTENTS = frozenset({"contents", "asked", "url", "title", "cited_text"})  # what people wrote or read

Fields = dict[str, Any]


def fields_of(step: Step, seconds: float, *, rounds: int = 0, contents: bool = False) -> Fields:
    """One step. `seconds` is when it was told, since the request arrived; `rounds` how often a model was asked until
    then."""
    kind, write = _WRITERS[type(step)]
    fields: Fields = {"kind": kind, "at_ms": milliseconds(seconds)}
    took = getattr(step, "seconds", None)
    if took is not None:
        fields["ms"] = milliseconds(took)
    write(fields, step, rounds, contents)
    return fields


def all_fields(steps: Iterable[tuple[float, Step]], *, contents: bool = False) -> list[Fields]:
    """The steps of a request, in their order."""
    out, rounds = [], 0
    for seconds, step in steps:
        rounds += isinstance(step, ModelAsked)
        out.append(fields_of(step, seconds, rounds=rounds, contents=contents))
    return out


def milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 1)


def _queued(fields: Fields, step: Queued, rounds: int, contents: bool) -> None:
    fields |= {"queue": step.queue, "shed": step.shed}


def _nothing_more(fields: Fields, step: Step, rounds: int, contents: bool) -> None:
    """Its time is all there is to say."""


def _decided(fields: Fields, step: Decided, rounds: int, contents: bool) -> None:
    search = "first" if step.first else "offered" if step.offered else "off"
    why = why_decided(step.reason, offered=step.offered, first=step.first)
    fields |= {"search": search, "reason": step.reason, "why": why}


def _asked(fields: Fields, step: ModelAsked, rounds: int, contents: bool) -> None:
    fields |= {"upstream": step.upstream, "model": _name(step.model), "round": rounds}


def _answered(fields: Fields, step: ModelAnswered | ModelLeft, rounds: int, contents: bool) -> None:
    fields |= {"upstream": step.upstream, **_tokens(step.tokens)}


def _forwarded(fields: Fields, step: Forwarded, rounds: int, contents: bool) -> None:
    fields |= {"upstream": step.upstream, "status": step.status, **_tokens(step.tokens)}


def _failed(fields: Fields, step: ModelFailed, rounds: int, contents: bool) -> None:
    fields |= {"upstream": step.upstream, "status": step.status, "code": _name(step.code)}


def _retried(fields: Fields, step: Retried, rounds: int, contents: bool) -> None:
    fields |= {"upstream": step.upstream, "outcome": step.outcome}


def _provider_called(fields: Fields, step: ProviderCall, rounds: int, contents: bool) -> None:
    fields |= {
        "tool": TOOLS[step.role],
        "provider": step.provider,
        "outcome": step.outcome,
        "cached": step.cached,
        "bytes": step.size,
    }
    if step.results is not None:
        fields["results"] = step.results
    if contents:
        fields["asked"] = _text(step.asked)


def _tool_began(fields: Fields, step: ToolBegan, rounds: int, contents: bool) -> None:
    fields |= {"tool": step.tool, **_contents(step.contents, contents)}


def _tool_called(fields: Fields, step: ToolCalled, rounds: int, contents: bool) -> None:
    fields |= {"tool": step.tool, "ok": step.ok, **_contents(step.contents, contents)}


def _cited(fields: Fields, step: Cited, rounds: int, contents: bool) -> None:
    fields |= {"n": step.n, "basis": step.basis}
    if contents:
        fields |= {"url": _text(step.url), "title": _text(step.title), "cited_text": _text(step.quote)}


def _tokens(tokens: Tokens) -> Fields:
    return {"input_tokens": tokens.input, "output_tokens": tokens.output}


def _contents(written: Sequence[Mapping[str, str]], shown: bool) -> Fields:
    return {"contents": [{name: _text(text) for name, text in texts.items()} for texts in written]} if shown else {}


def _name(text: str) -> str:
    return _text(text, LONGEST_NAME)


def _text(text: str, longest: int = _LONGEST) -> str:
    """In a measure that can be shown."""
    return whole_characters(text if len(text) <= longest else text[:longest] + "…")


_WRITERS: dict[type, tuple[str, Callable[[Fields, Any, int, bool], None]]] = {
    Queued: ("queued", _queued),
    Received: ("received", _nothing_more),
    Decided: ("decided", _decided),
    ModelAsked: ("model_asked", _asked),
    ModelAnswered: ("model_answered", _answered),
    ModelLeft: ("model_left", _answered),
    ModelFailed: ("model_failed", _failed),
    Retried: ("retried", _retried),
    ProviderCall: ("provider_called", _provider_called),
    ToolBegan: ("tool_started", _tool_began),
    ToolCalled: ("tool_finished", _tool_called),
    FirstContent: ("first_content", _nothing_more),
    Cited: ("cited", _cited),
    Forwarded: ("forwarded", _forwarded),
}
