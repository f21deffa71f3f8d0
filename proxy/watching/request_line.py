"""What the log says of one request, as a line for people or as one of JSON. Handed a request that has ended, and what
was searched for and opened in it where that may be shown; hands on the line. What is not known is left out of it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import orjson

from providers.base import ProviderCall, Role

from .contents import LONGEST_NAME, printable
from .observer import Observer
from .summary import Summary

_MORE = LONGEST_NAME + 1  # as much of one as tells that it is too long
_PLAIN = re.compile(r"[\w.:/@%+,;=()~!*'&$\[\]-]{1,200}")

Facts = dict[str, Any]
Contents = Sequence[Mapping[str, str]]


def text_line(request: Observer, contents: Contents) -> str:
    summary = request.summary
    asked = _words(request.method, request.path[:_MORE])
    words = [f"{_clock(int(request.ended_at))} {asked} {request.status or '-'} seconds={request.seconds:.3f}"]
    if summary.queued or summary.first_content:
        words += _pairs(_waits(summary))
    if names := _names_text(request.caller, summary.model[:_MORE], summary.upstream, summary.search, summary.reason):
        words.append(names)
    words += _pairs(_counts(summary))
    words.append(f"outcome={request.outcome}")
    if request.id:
        words.append(f"request={request.id}")
    if contents:
        words.append(f"contents={_json(contents)}")
    return " ".join(words)


def json_line(request: Observer, contents: Contents) -> str:
    summary = request.summary
    facts = {
        "time": datetime.fromtimestamp(request.ended_at, UTC).isoformat(timespec="milliseconds"),
        "level": "info",
        "method": request.method,
        "path": printable(request.path, LONGEST_NAME),
        "status": request.status,
        "seconds": round(request.seconds, 3),
        **_waits(summary),
        **_names(request.caller, summary.model, summary.upstream, summary.search, summary.reason),
        **_counts(summary),
        "outcome": request.outcome,
    }
    if request.id:
        facts["request"] = request.id
    if contents:
        facts["contents"] = contents
    return _json(facts)


def said_by_others(request: Observer) -> str:
    """What clients and servers chose of it."""
    return f"{request.method} {request.path[:_MORE]} {request.summary.model[:_MORE]} {request.outcome[:_MORE]}"


def _waits(summary: Summary) -> Facts:
    return _known({"queued": round(summary.queued, 3), "first_content": round(summary.first_content or 0.0, 3)})


def _names(key: str, model: str, upstream: str, search: str, reason: str) -> Facts:
    names = {"key": key, "model": printable(model, LONGEST_NAME), "upstream": upstream}
    return _known({**names, "search": search, "reason": reason})


def _counts(summary: Summary) -> Facts:
    facts: Facts = {}
    if summary.rounds:
        facts["rounds"] = summary.rounds
    if summary.calls or summary.tools or summary.model_failures or summary.retries:
        facts |= _calls_and_failures(summary)
    if summary.citations:
        facts["citations"] = summary.citations
    if summary.input_tokens:
        facts["input_tokens"] = summary.input_tokens
    if summary.output_tokens:
        facts["output_tokens"] = summary.output_tokens
    if summary.estimated_tokens:
        facts["estimated_tokens"] = summary.estimated_tokens
    if summary.costs and (cost := round(summary.cost, 8)):
        facts["cost"] = cost
    return facts


def _calls_and_failures(summary: Summary) -> Facts:
    return _known(
        {
            "retries": summary.retries,
            "searches": _calls(summary.calls, "search"),
            "pages": _calls(summary.calls, "read"),
            "failed_calls": sum([not tool.ok for tool in summary.tools]),
            "model_failures": [
                {"upstream": failed.upstream, "status": failed.status} for failed in summary.model_failures
            ],
        }
    )


def _known(facts: Facts) -> Facts:
    known = {}
    for name, value in facts.items():
        if value:
            known[name] = value
    return known


def _calls(calls: Sequence[ProviderCall], role: Role) -> list[Facts]:
    return [
        {"provider": call.provider, "outcome": call.outcome, "cached": call.cached, "ms": round(call.seconds * 1000)}
        for call in calls
        if call.role == role
    ]


# In words for people


def _pairs(facts: Facts) -> list[str]:
    pairs = []
    for name, value in facts.items():
        pairs.append(f"{name}={value if name not in _LISTED else _listed(name, value)}")
    return pairs


def _listed(name: str, facts: Sequence[Facts]) -> str:
    return _as_word(",".join(map(_LISTED[name], facts)))


def _call_text(call: Facts) -> str:
    return f"{call['provider']}:{call['outcome']}:{'cache' if call['cached'] else str(call['ms']) + 'ms'}"


def _failure_text(failure: Facts) -> str:
    return f"{failure['upstream']}:{failure['status']}"


_LISTED: Mapping[str, Callable[[Facts], str]] = {
    "searches": _call_text,
    "pages": _call_text,
    "model_failures": _failure_text,
}


# Most requests are named as some before them: how that is written is remembered, of names that are cut already.


@lru_cache(maxsize=256)
def _words(method: str, path: str) -> str:
    return f"{_as_word(method)} {_as_word(printable(path, LONGEST_NAME))}"


@lru_cache(maxsize=256)
def _names_text(key: str, model: str, upstream: str, search: str, reason: str) -> str:
    names = _names(key, model, upstream, search, reason)
    return " ".join([f"{name}={_as_word(value)}" for name, value in names.items()])


@lru_cache(maxsize=1)
def _clock(second: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(second))


def _as_word(text: str) -> str:
    """As it is where it cannot be mistaken for more than one field; else quoted, on one line."""
    return text if _PLAIN.fullmatch(text) else _json(text)


def _json(value: object) -> str:
    return orjson.dumps(value, default=str).decode()
