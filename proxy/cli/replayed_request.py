"""One request of the audit, for people: who asked what and when, how the searches went, and what a view needs to show
the answer with its sources. Handed a line of the audit, which may hold anything; hands on lines and events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tools.ledger import Source

from ..values.events import Citation, Event, Proof, TextDelta
from .terminal_text import address, title

_MOST_STEPS = 1000  # we never write as many

_CALLED, _ASKED = "provider_called", ("model_answered", "model_failed", "model_left", "forwarded")
_NOT_KEPT = {
    "question": "(The question was not kept: `log.contents` was false when it was asked.)",
    "answer": "(The answer was not kept: `log.contents` was false when it was given.)",
}
_NONE = {
    "question": "(There was no question to a model.)",
    "answer": "(There was no answer that could be kept.)",
}


def heading(request: Mapping[str, Any], when: str) -> Iterator[str]:
    yield f"{when}  {title(str(request.get('id')))}"
    who = _text(request, "key") or "nobody in particular"
    model, upstream = _text(request, "model"), _text(request, "upstream")
    asked = f" asked {model} at {upstream}" if model else ""
    spent = f", {_milliseconds(request.get('ms'))}" if _is_number(request.get("ms")) else ""
    yield f"{who}{asked}: {_text(request, 'method')} {_text(request, 'path')}, {_text(request, 'outcome')}{spent}"
    if why := _text(request, "why"):
        yield why


def lacks(request: Mapping[str, Any], part: str) -> str:
    """Why there is no question, or no answer."""
    return _NONE[part] if part in request else _NOT_KEPT[part]


def lines_of_steps(request: Mapping[str, Any]) -> list[str]:
    """How it went: each question to a model, each search and page, with who was asked for it."""
    return [line for step in _steps(request) if (line := _line_of(step))]


def events_of(request: Mapping[str, Any]) -> list[Event]:
    """The answer as a view takes it."""
    answer = request.get("answer")
    text = answer if isinstance(answer, str) else ""
    cited = [step for step in _steps(request) if step.get("kind") == "cited"]
    citations = [Citation(0, 0, _source(step, text), _proof(step)) for step in cited]
    return [*([TextDelta(text)] if text else []), *citations]


def _line_of(step: Mapping[str, Any]) -> str:
    took = _milliseconds(step.get("ms")) if _is_number(step.get("ms")) else ""
    if step.get("kind") == _CALLED:
        return "  " + _call(step, took)
    if step.get("kind") in _ASKED:
        said = _said_of_model(step)
        return "  " + "  ".join(part for part in ("asked", _text(step, "upstream"), said, took) if part)
    return ""


def _said_of_model(step: Mapping[str, Any]) -> str:
    if step.get("kind") == "model_failed":
        return f"failed ({_text(step, 'code') or _number(step, 'status')})"
    if step.get("kind") == "model_left":
        return "broken off"
    return f"{_number(step, 'input_tokens')} + {_number(step, 'output_tokens')} tokens"


def _call(step: Mapping[str, Any], took: str) -> str:
    verb = "searched" if step.get("tool") == "web_search" else "opened"
    asked = _text(step, "asked")
    results = step.get("results")
    found = f", {results} result{'' if results == 1 else 's'}" if isinstance(results, int) else ""
    how = "from the cache" if step.get("cached") is True else took
    shown = f"“{asked}”" if verb == "searched" and asked else asked
    return "  ".join(
        part for part in (verb, shown, f"{_text(step, 'provider')}: {_text(step, 'outcome')}{found}", how) if part
    )


def _steps(request: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    steps = request.get("steps")
    known = steps[:_MOST_STEPS] if isinstance(steps, list) else []
    return [step for step in known if isinstance(step, dict)]


def _source(step: Mapping[str, Any], answer: str) -> Source:
    n, url = step.get("n"), address(str(step.get("url") or ""))
    known = n if isinstance(n, int) and 0 < n < 10**6 else 0
    return Source(_shown_number(answer, url) or known, url, title(str(step.get("title") or "")) or url)


def _shown_number(answer: str, url: str) -> int:
    """Where the answer has links, its reader saw other numbers than the model: they stand in them."""
    found = re.search(rf"\[\[?(\d{{1,6}})\]?\]\({re.escape(url)}\)", answer) if url else None
    return int(found[1]) if found else 0


def _proof(step: Mapping[str, Any]) -> Proof:
    quote, basis = step.get("cited_text"), step.get("basis")
    known = basis if basis in ("page", "snippet") else None
    return Proof(quote if isinstance(quote, str) else "", known)


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return title(value) if isinstance(value, str) else ""


def _number(fields: Mapping[str, Any], name: str) -> float:
    value = fields.get(name)
    return value if isinstance(value, int | float) else 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _milliseconds(value: Any) -> str:
    return f"{value:,.0f} ms" if value < 10_000 else f"{value / 1000:,.1f} s"
