"""Turns in which the client was called while something stayed hidden from it: our calls, their results, the rounds
before. Handed such a turn, makes the bytes to store; handed a history whose call ids carry our key, and what the store
still has, hands on the history as the model knows it. Pure: who fetches and stores is the route's affair.

In what comes out every call is answered exactly once, right behind it and in order, whatever the client left out.
"""

from __future__ import annotations

import re
import secrets
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from .query_plan import with_sources

_MARK = "_gw"
_MARKED = re.compile(rf"{_MARK}([A-Za-z0-9]{{12}})\Z")
_FORMAT = 1
MOST_KEYS = 2000  # of one history
MOST_FOUND = 200  # turns that are put back; older ones are left out as if they were forgotten


@dataclass(frozen=True, slots=True)
class Turn:
    """`calls` is the assistant's last message as the model wrote it, with ours and the client's calls in their order;
    `before` are the rounds that led to it."""

    before: list[dict[str, Any]]
    calls: dict[str, Any]
    results: dict[str, str]  # id of a call of ours → what it found
    shown: str  # the text that the client saw
    found: str = ""  # what was read before the model was asked, for one that cannot call
    sources: list[tuple[int, str, str]] = field(default_factory=list)  # number, URL, title

    def encoded(self) -> bytes:
        return orjson.dumps([_FORMAT, self.before, self.calls, self.results, self.shown, self.found, self.sources])


def decoded(data: bytes) -> Turn | None:
    try:
        kind, before, calls, results, shown, found, sources = orjson.loads(data)
        sources = [(n, url, title) for n, url, title in sources]
        return Turn(before, calls, results, shown, found, sources) if kind == _FORMAT else None
    except (ValueError, TypeError):
        return None


def new_key() -> str:
    return b64encode(secrets.token_bytes(9), b"gw").decode()  # letters and digits alone, 12 of them


def marked(call_id: str, key: str) -> str:
    """The id under which the client sees a call. Upstreams repeat theirs; the key tells the turns apart."""
    return f"{call_id}{_MARK}{key}"


def keys_in(messages: Sequence[Any]) -> list[str]:
    """The keys of all turns in a history, the latest first."""
    found = (key for message in reversed(messages) for call in calls_in(message) if (key := _key_of(call["id"])))
    return list(dict.fromkeys(found))[:MOST_KEYS]


@dataclass(frozen=True, slots=True)
class Restored:
    messages: list[Any]
    sources: dict[int, tuple[str, str]]
    searched: bool = False  # does the last question stand with what was found for it?


def restored(messages: Sequence[Any], turns: Mapping[str, Turn]) -> Restored:
    """The history with everything put back that is known, and with the upstream's own ids."""
    out: list[Any] = []
    sources: dict[int, tuple[str, str]] = {}
    searched = False
    places = _Places(messages)
    moved: set[int] = set()  # places of results that stand behind their calls by now
    for place, message in enumerate(messages):
        calls = calls_in(message)
        key = next((key for call in calls if (key := _key_of(call["id"]))), "")
        if key:
            answers = places.answers(place, [call["id"] for call in calls])
            moved.update(answers.values())
            turn = turns.get(key)
            if turn:
                sources.update({n: (url, title) for n, url, title in turn.sources})
                if turn.found and not searched:
                    out, searched = with_sources(out, turn.found), True
            out += _restore(message, turn, {bare(id_): messages[at] for id_, at in answers.items()})
        elif _role(message) == "tool" and (place in moved or _key_of(message.get("tool_call_id"))):
            continue  # behind its call already, or its call is gone
        else:
            searched = searched and _role(message) != "user"
            out.append(message)
    return Restored(out, sources, searched)


class _Places:
    """Where in a history calls are made and answered, found once."""

    def __init__(self, messages: Sequence[Any]) -> None:
        self._made: dict[str, list[int]] = {}
        self._answered: dict[str, list[int]] = {}
        for place, message in enumerate(messages):
            for call in calls_in(message):
                self._made.setdefault(call["id"], []).append(place)
            answered = message.get("tool_call_id") if _role(message) == "tool" else None
            if isinstance(answered, str):
                self._answered.setdefault(answered, []).append(place)

    def answers(self, place: int, calls: Sequence[str]) -> dict[str, int]:
        """Call id → where its result stands: behind the call, but not where the same turn stands once more."""
        end = min((next_ for id_ in calls if (next_ := _after(self._made[id_], place)) is not None), default=None)
        found = {id_: _after(self._answered.get(id_, []), place) for id_ in calls}
        return {id_: at for id_, at in found.items() if at is not None and (end is None or at < end)}


def _after(places: Sequence[int], place: int) -> int | None:
    at = bisect_right(places, place)
    return places[at] if at < len(places) else None


def _restore(message: Mapping[str, Any], turn: Turn | None, answers: Mapping[str, Any]) -> Iterator[Any]:
    """One turn. `answers` are the client's results by the upstream's own ids; a call without one is left out."""
    given = {bare(call["id"]): call for call in calls_in(message)}
    if turn is None:
        yield from _answered({**message}, given.values(), {}, answers)
        return
    edited = _is_edited(message.get("content"), turn.shown)
    for hidden in turn.before:
        yield {**hidden, "content": None} if edited and hidden.get("tool_calls") else hidden
    calls = turn.calls["tool_calls"]
    known = {call["id"] for call in calls}
    # The model's own words for a call go back, with what it signed, unless somebody has changed what they say.
    mine = {id_: call for id_, call in given.items() if id_ in known}
    calls = [_unless_edited(call, mine.get(call["id"])) for call in calls if call["id"] in {*given, *turn.results}]
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


def _unless_edited(call: Mapping[str, Any], given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    same = given is None or (call_name(given) == call_name(call) and _arguments(given) == _arguments(call))
    return call if same or given is None else given


def _arguments(call: Mapping[str, Any]) -> Any:
    function = call.get("function")
    said = function.get("arguments") if isinstance(function, dict) else None
    try:
        return orjson.loads(said or "{}")
    except (orjson.JSONDecodeError, TypeError):
        return said


def _is_edited(content: Any, shown: str) -> bool:
    """Did somebody change the text since? Clients that send none of it back have not."""
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        content = "".join(text for text in texts if isinstance(text, str))
    return isinstance(content, str) and bool(content.strip()) and content.strip() != shown.strip()


def without_calls(messages: Sequence[Any], names: Collection[str]) -> list[Any]:
    """A history without the calls of these tools and their results, for a request in which nobody knows them."""
    gone = {call["id"] for message in messages for call in calls_in(message) if call_name(call) in names}
    out: list[Any] = []
    for message in messages:
        if message.get("tool_call_id") in gone:
            continue
        calls = calls_in(message)
        kept = [call for call in calls if call["id"] not in gone]
        if len(kept) < len(calls):
            message = {key: value for key, value in message.items() if key != "tool_calls"}
            if kept:
                message["tool_calls"] = kept
            elif not message.get("content"):
                continue
        out.append(message)
    return out


def call_name(call: Mapping[str, Any]) -> str:
    function = call.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else ""


def calls_in(message: Any) -> list[dict[str, Any]]:
    """The calls that a message of a history makes, as far as they have an id."""
    calls = message.get("tool_calls") if _role(message) == "assistant" else None
    return [c for c in calls if isinstance(c, dict) and isinstance(c.get("id"), str)] if isinstance(calls, list) else []


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, Mapping) else None


def _key_of(call_id: object) -> str:
    found = _MARKED.search(call_id) if isinstance(call_id, str) else None
    return found[1] if found else ""


def bare(call_id: str) -> str:
    """The upstream's own id."""
    return _MARKED.sub("", call_id)
