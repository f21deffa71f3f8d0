"""Turns in which the client was called while something stayed hidden from it: our calls, their results, the rounds
before. Handed such a turn, makes the bytes to store; handed a history whose call ids carry our key, and what the store
still has, hands on the history as the model knows it. Pure: who fetches and stores is the route's affair.

In what comes out every call is answered exactly once, right behind it and in order, whatever the client left out.
"""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

_ALPHABET = string.ascii_letters + string.digits
_MARK = "_gw"
_MARKED = re.compile(rf"{_MARK}([A-Za-z0-9]{{12}})\Z")
_FORMAT = 1
MOST_TURNS = 64  # of one history; older ones are read as if the store had forgotten them


@dataclass(frozen=True, slots=True)
class Turn:
    """`calls` is the assistant's last message as the model wrote it, with ours and the client's calls in their order;
    `before` are the rounds that led to it."""

    before: list[dict[str, Any]]
    calls: dict[str, Any]
    results: dict[str, str]  # id of a call of ours → what it found
    shown: str  # the text that the client saw
    sources: list[tuple[int, str, str]] = field(default_factory=list)  # number, URL, title

    def encoded(self) -> bytes:
        return orjson.dumps([_FORMAT, self.before, self.calls, self.results, self.shown, self.sources])


def decoded(data: bytes) -> Turn | None:
    try:
        kind, before, calls, results, shown, sources = orjson.loads(data)
    except (orjson.JSONDecodeError, ValueError, TypeError):
        return None
    if kind != _FORMAT:
        return None
    return Turn(before, calls, results, shown, [(n, url, title) for n, url, title in sources])


def new_key() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(12))


def marked(call_id: str, key: str) -> str:
    """The id under which the client sees a call. Upstreams repeat theirs; the key tells the turns apart."""
    return f"{call_id}{_MARK}{key}"


def keys_in(messages: Sequence[Any]) -> list[str]:
    """The keys of all turns in a history, the latest first."""
    found = (key for message in reversed(messages) for call in _calls(message) if (key := _key_of(call.get("id"))))
    return list(dict.fromkeys(found))[:MOST_TURNS]


@dataclass(frozen=True, slots=True)
class Restored:
    messages: list[Any]
    sources: dict[int, tuple[str, str]]


def restored(messages: Sequence[Any], turns: Mapping[str, Turn]) -> Restored:
    """The history with everything put back that is known, and with the upstream's own ids."""
    out: list[Any] = []
    sources: dict[int, tuple[str, str]] = {}
    moved: set[int] = set()  # places of results that stand behind their calls by now
    for place, message in enumerate(messages):
        calls = _calls(message)
        key = next((key for call in calls if (key := _key_of(call.get("id")))), "")
        if key:
            answers = _answers(messages, place, calls)
            moved.update(answers.values())
            turn = turns.get(key)
            out += _restore(message, turn, {bare(id_): messages[at] for id_, at in answers.items()})
            if turn:
                sources.update({n: (url, title) for n, url, title in turn.sources})
        elif _role(message) == "tool" and (place in moved or _key_of(message.get("tool_call_id"))):
            continue  # behind its call already, or its call is gone
        else:
            out.append(message)
    return Restored(out, sources)


def _answers(messages: Sequence[Any], place: int, calls: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Call id → where the client's result stands: behind the call, but not where the same turn stands once more."""
    wanted = {call["id"] for call in calls if isinstance(call.get("id"), str)}
    found: dict[str, int] = {}
    for at in range(place + 1, len(messages)):
        message = messages[at]
        if any(call.get("id") in wanted for call in _calls(message)):
            break
        answered = message.get("tool_call_id") if _role(message) == "tool" else None
        if isinstance(answered, str) and answered in wanted:
            found.setdefault(answered, at)
    return found


def _restore(message: Mapping[str, Any], turn: Turn | None, answers: Mapping[str, Any]) -> Iterator[Any]:
    """One turn. `answers` are the client's results by the upstream's own ids; a call without one is left out."""
    given = {bare(call["id"]): call for call in _calls(message) if isinstance(call.get("id"), str)}
    if turn is None:
        yield from _answered({**message}, given.values(), {}, answers)
        return
    edited = _is_edited(message.get("content"), turn.shown)
    for hidden in turn.before:
        yield {**hidden, "content": None} if edited and hidden.get("tool_calls") else hidden
    calls = turn.calls["tool_calls"]
    known = {call["id"] for call in calls}
    # The model's own words for a call: what it signed goes back as it was.
    calls = [call for call in calls if call["id"] in given or call["id"] in turn.results]
    calls += [call for id_, call in given.items() if id_ not in known]
    whole = {**turn.calls, "content": message.get("content")} if edited else dict(turn.calls)
    yield from _answered(whole, calls, turn.results, answers)


def _answered(
    message: dict[str, Any], calls: Iterable[Mapping[str, Any]], ours: Mapping[str, str], answers: Mapping[str, Any]
) -> Iterator[Any]:
    """An assistant's message with those of its calls that are answered, and the answers behind it, in order."""
    kept = [{**call, "id": bare(call["id"])} for call in calls]
    kept = [call for call in kept if call["id"] in ours or call["id"] in answers]
    message.pop("tool_calls", None)
    if kept:
        yield {**message, "tool_calls": kept}
    elif message.get("content"):
        yield message
    for call in kept:
        if call["id"] in ours:
            yield {"role": "tool", "tool_call_id": call["id"], "content": ours[call["id"]]}
        else:
            yield {**answers[call["id"]], "tool_call_id": call["id"]}


def _is_edited(content: Any, shown: str) -> bool:
    """Did somebody change the text since? Clients that send none of it back have not."""
    if isinstance(content, list):
        content = "".join(part.get("text") or "" for part in content if isinstance(part, dict))
    return isinstance(content, str) and bool(content.strip()) and content.strip() != shown.strip()


def _calls(message: Any) -> list[dict[str, Any]]:
    calls = message.get("tool_calls") if _role(message) == "assistant" else None
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, Mapping) else None


def _key_of(call_id: object) -> str:
    found = _MARKED.search(call_id) if isinstance(call_id, str) else None
    return found[1] if found else ""


def bare(call_id: str) -> str:
    """The upstream's own id."""
    return _MARKED.sub("", call_id)
