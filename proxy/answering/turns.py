"""Turns in which the client was called while something stayed hidden from it: our calls, their results, the rounds
before. Handed such a turn, makes the bytes to store; handed a history whose call ids carry our key, and what the store
still has, hands on the history as the model knows it. Pure: the preparation fetches, the engine stores.

In what comes out every call is answered exactly once, right behind it and in order, whatever the client left out.
"""

from __future__ import annotations

import re
import secrets
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

import orjson

from providers.records import dataclass
from tools.ledger import KnownSource, joined, source_rows, sources_from

from ..values.history import History, HistoryCall
from ..values.messages import arguments_of, call_name, calls_in, role_of, text_of
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
    sources: Mapping[int, KnownSource] = field(default_factory=dict)

    def encoded(self) -> bytes:
        sources = source_rows(self.sources)
        return orjson.dumps([_FORMAT, self.before, self.calls, self.results, self.shown, self.found, sources])


def decoded(data: bytes) -> Turn | None:
    try:
        kind, before, calls, results, shown, found, sources = orjson.loads(data)
        return Turn(before, calls, results, shown, found, sources_from(sources)) if kind == _FORMAT else None
    except (ValueError, TypeError):
        return None


def new_key() -> str:
    return b64encode(secrets.token_bytes(9), b"gw").decode()  # letters and digits alone, 12 of them


def marked(call_id: str, key: str) -> str:
    """The id under which the client sees a call. Upstreams repeat theirs; the key tells the turns apart."""
    return f"{call_id}{_MARK}{key}"


def keys_in(messages: Sequence[Any]) -> list[str]:
    """The keys of all turns in a history, the latest first."""
    calling = []
    for message in messages:
        if "tool_calls" in message:
            calling.append(message)
    if not calling:
        return []
    found = (key for message in reversed(calling) for call in calls_in(message) if (key := _key_of(call["id"])))
    return list(dict.fromkeys(found))[:MOST_KEYS]


@dataclass(frozen=True, slots=True)
class Restored:
    messages: list[Any]
    sources: dict[int, KnownSource]
    searched: bool = False  # does the last question stand with what was found for it?


def restored(messages: Sequence[Any], turns: Mapping[str, Turn]) -> Restored:
    """The history with everything put back that is known, and with the upstream's own ids."""
    history = History()
    sources: list[Mapping[int, KnownSource]] = []
    searched = False
    for message in messages:
        key = next((key for call in calls_in(message) if (key := _key_of(call["id"]))), "")
        answered = message.get("tool_call_id") if role_of(message) == "tool" else None
        if key:
            turn = turns.get(key)
            if turn:
                sources.append(turn.sources)
            if turn and turn.found and not searched:
                history.entries, searched = with_sources(history.entries, turn.found), True
            _restore(history, message, turn)
        elif isinstance(answered, str) and (history.answer(answered, message) or _key_of(answered)):
            continue  # behind its call, or its call is gone
        else:
            searched = searched and role_of(message) != "user"
            history.add(message)
    return Restored(history.messages(), joined(sources), searched)


def _restore(history: History, message: Mapping[str, Any], turn: Turn | None) -> None:
    """One turn: the rounds that led to it, and its calls, of which ours are answered."""
    given = {bare(call["id"]): call for call in calls_in(message)}
    said, results = message, dict[str, str]()
    calls: Sequence[Mapping[str, Any]] = list(given.values())
    if turn:
        edited = _is_edited(text_of(message), turn.shown)
        for hidden in turn.before:
            history.add({**hidden, "content": None} if edited and hidden.get("tool_calls") else hidden)
        said = {**turn.calls, "content": message.get("content")} if edited else turn.calls
        calls, results = _calls_of(turn, given), turn.results
    history.begin_turn({key: value for key, value in said.items() if key != "tool_calls"})
    for place, call in enumerate(calls):
        id_ = bare(call["id"])
        answer = [{"role": "tool", "content": results[id_]}] if id_ in results else []
        names = (given[id_]["id"],) if id_ in given else ()
        history.call([HistoryCall({**call, "id": id_}, names, place=place, results=answer)])


def _calls_of(turn: Turn, given: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The calls of a turn in the model's own words, with what it signed, unless somebody has changed what they say;
    behind them those that the client has added."""
    made = {call["id"]: call for call in turn.calls["tool_calls"]}
    kept = [_unless_edited(call, given.get(id_)) for id_, call in made.items() if id_ in given or id_ in turn.results]
    return [*kept, *(call for id_, call in given.items() if id_ not in made)]


def _unless_edited(call: Mapping[str, Any], given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    same = given is None or (call_name(given) == call_name(call) and _arguments(given) == _arguments(call))
    return call if same or given is None else given


def _arguments(call: Mapping[str, Any]) -> Any:
    function = call.get("function")
    return arguments_of(function.get("arguments") if isinstance(function, dict) else None)


def _is_edited(text: str, shown: str) -> bool:
    """Did somebody change the text since? Clients that send none of it back have not."""
    return bool(text.strip()) and text.strip() != shown.strip()


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


def _key_of(call_id: object) -> str:
    found = _MARKED.search(call_id) if isinstance(call_id, str) else None
    return found[1] if found else ""


def bare(call_id: str) -> str:
    """The upstream's own id."""
    return _MARKED.sub("", call_id)
