"""Items → the chat messages that the model is asked with. Handed a decoded request, the stored transcript that it
builds on and what the store knows of its items; hands on a history in which every call is answered exactly once, right
behind the message that made it, in the order of the calls.

What cannot stand so: an output that answers no call is refused, as OpenAI does. A call that nobody answered is left out
(and its message too, if nothing else is in it), for the client went on without it. Of two outputs for one call the
first counts. A search that the store has forgotten, and thinking that it never had, are left out too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from ...answering.turns import bare
from ...upstreams.repairs import new_call_id
from ...values.errors import refuse
from ...values.events import merge_fields
from .items import OUTPUT_TYPES, chat_content, text_of
from .request import ResponsesRequest


@dataclass(frozen=True, slots=True)
class KnownItem:
    """What the store holds for an output item: the item as it was sent, and the hidden messages that it stands for.

    Each hidden message, call and thought stands with one item only: a search with its call and its result, an answer
    with its text, a function call with itself as the model wrote it. Items of one round become one message again.
    """

    item: dict[str, Any]
    messages: tuple[dict[str, Any], ...]
    round_id: str = ""
    place: int = 0  # of a call among the calls of its round: the client's are shown before ours have run


UNKNOWN = KnownItem({}, ())


def references(request: ResponsesRequest) -> list[str]:
    """The ids that must be looked up: references, and echoed output, of which more may be known than it says."""
    told = request.instructions if isinstance(request.instructions, list) else []
    return list(dict.fromkeys(name for item in [*told, *request.items] if _refers(item) for name in _names(item)))


def bare_references(request: ResponsesRequest) -> set[str]:
    """Of those, the ids that come with nothing else: without the store nobody knows what they say."""
    return {item["id"] for item in request.items if item["type"] == "item_reference"}


def messages(
    request: ResponsesRequest, previous: Sequence[dict[str, Any]], known: Mapping[str, KnownItem]
) -> list[dict[str, Any]]:
    history = _History()
    if isinstance(request.instructions, str):
        history.add({"role": "system", "content": request.instructions})
    elif request.instructions:
        _read(request.instructions, "instructions", known, history)
    for message in previous:
        history.add(message)
        history.part()
    _read(request.items, "input", known, history)
    out = history.messages()
    if not out:
        raise refuse(400, "`input` holds nothing to answer.", param="input", code="invalid_value")
    return out


def _refers(item: Mapping[str, Any]) -> bool:
    is_output = item["type"] in OUTPUT_TYPES and item.get("role", "assistant") == "assistant"
    return (is_output or item["type"] == "item_reference") and bool(_names(item))


def _names(item: Mapping[str, Any]) -> list[str]:
    """What an item may be stored under. The AI SDK sends calls back without their own id, others under a new one."""
    names = [item.get("id"), item.get("call_id") if item["type"] == "function_call" else None]
    return [name for name in names if isinstance(name, str) and name]


def _read(items: Sequence[dict[str, Any]], param: str, known: Mapping[str, KnownItem], history: _History) -> None:
    for i, item in enumerate(items):
        names = _names(item) if _refers(item) else []
        found = next((known[name] for name in names if name in known), None)
        if item["type"] == "item_reference" and found is None:
            text = f"Item with id '{item['id']}' not found."
            raise refuse(404, text, param=f"{param}[{i}].id", code="item_not_found")
        if item["type"] == "function_call_output":
            answer = {"role": "tool", "content": _output(item)}
            if not history.answer(item["call_id"], answer):
                text = f"No tool call found for function call output with call_id {item['call_id']}."
                raise refuse(400, text, param=f"{param}[{i}].call_id", code="invalid_value")
        elif found is None:
            for message in _plain(item):
                history.add(message)
        elif not history.has(found):
            said = found.messages if _says_the_same(item, found.item) else _plain(item)
            for message in said:
                history.add(message, found)


def _says_the_same(item: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
    """An edited answer or call counts as the client wrote it."""
    if item["type"] == "message":
        return text_of(item["content"]) == text_of(stored.get("content") or ())
    if item["type"] == "function_call":
        same = all(item[name] == stored.get(name) for name in ("call_id", "name"))
        return same and _value(item["arguments"]) == _value(stored.get("arguments"))
    return True


def _value(arguments: Any) -> Any:
    """What arguments say, however they are spaced."""
    try:
        return orjson.loads(arguments)
    except (orjson.JSONDecodeError, TypeError):
        return arguments


def _plain(item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What an item says by itself."""
    if item["type"] == "function_call":
        function = {"name": item["name"], "arguments": item["arguments"]}
        yield {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": item["call_id"], "type": "function", "function": function}],
        }
    elif item["type"] == "message" and item["role"] != "assistant":
        yield {"role": item["role"], "content": chat_content(item["content"])}
    elif item["type"] == "message":
        marks = (part.get("annotations") for part in item["content"])
        cited = [mark for listed in marks if isinstance(listed, list) for mark in listed]
        # With several parts the places of the marks would be wrong; what is cited is known from the links anyhow.
        annotated = {"annotations": cited} if cited and len(item["content"]) == 1 else {}
        yield {"role": "assistant", "content": text_of(item["content"]), **annotated}


def _output(item: Mapping[str, Any]) -> Any:
    return chat_content(item["output"]) if isinstance(item["output"], list) else item["output"]


@dataclass(slots=True, eq=False)
class _HistoryCall:
    call: dict[str, Any]
    names: tuple[str, ...]  # the ids that an answer may name it by
    place: int
    answer: dict[str, Any] | None = None


@dataclass(slots=True)
class _HistoryTurn:
    """What the assistant said in one go, with its calls and their answers."""

    message: dict[str, Any]
    calls: list[_HistoryCall] = field(default_factory=list)
    round_id: str = ""
    open: bool = True  # may what follows still belong to it?

    def takes(self, round_id: str) -> bool:
        if self.round_id and round_id:
            return self.open and self.round_id == round_id
        return self.open and not any(call.answer for call in self.calls)

    def say(self, message: Mapping[str, Any], known: KnownItem) -> list[_HistoryCall]:
        self.round_id = self.round_id or known.round_id
        fields = {key: value for key, value in message.items() if key not in ("role", "content", "tool_calls")}
        said, content = self.message.get("content"), message.get("content")
        if said and content:
            fields.pop("annotations", None)  # their places count from the start of their own text
            content = f"{said}\n\n{content}"
        merge_fields(self.message, fields)
        self.message["content"] = content or said
        made: list[_HistoryCall] = []
        for call in message.get("tool_calls") or ():
            id_ = bare(call["id"]) if known.round_id else call["id"]
            names = dict.fromkeys(filter(None, (id_, call["id"], known.item.get("call_id"))))
            made.append(_HistoryCall({**call, "id": id_}, tuple(names), known.place or len(self.calls) + len(made)))
        self.calls += made
        return made

    def messages(self) -> Iterator[dict[str, Any]]:
        answered = sorted((call for call in self.calls if call.answer), key=lambda call: call.place)
        if answered:
            yield {**self.message, "tool_calls": [call.call for call in answered]}
        elif self.message.get("content"):
            yield self.message
        for call in answered:
            yield {**(call.answer or {}), "tool_call_id": call.call["id"]}


class _History:
    def __init__(self) -> None:
        self._entries: list[dict[str, Any] | _HistoryTurn] = []
        self._waiting: dict[str, list[list[_HistoryCall]]] = {}  # name → calls without an answer, by turn
        self._items: set[str] = set()  # ids of known items that have their place
        self._ids: set[str] = set()  # of all calls

    def has(self, known: KnownItem) -> bool:
        """Does it stand here already? Clients send one thing twice: itself, and within what they build on."""
        made = {call["id"] for message in known.messages for call in message.get("tool_calls") or ()}
        there = known.item["id"] in self._items or (bool(made) and made <= self._ids)
        self._items.add(known.item["id"])
        return there

    def part(self) -> None:
        """What follows is never told in one breath with what stands here."""
        if self._entries and isinstance(last := self._entries[-1], _HistoryTurn):
            last.open = False

    def add(self, message: Mapping[str, Any], known: KnownItem = UNKNOWN) -> None:
        if message["role"] == "tool":
            self.answer(message["tool_call_id"], {key: v for key, v in message.items() if key != "tool_call_id"})
        elif message["role"] != "assistant":
            self._entries.append(dict(message))
        else:
            last = self._entries[-1] if self._entries else None
            if not (isinstance(last, _HistoryTurn) and last.takes(known.round_id)):
                last = _HistoryTurn({"role": "assistant", "content": None})
                self._entries.append(last)
            made = last.say(message, known)
            self._ids.update(call.call["id"] for call in made)
            for call in made:
                for name in call.names:
                    turns = self._waiting.setdefault(name, [])
                    if not turns or turns[-1][-1] not in last.calls:
                        turns.append([])
                    turns[-1].append(call)

    def answer(self, call_id: str, message: dict[str, Any]) -> bool:
        """Puts an answer behind its call: of the calls with that id the first unanswered one of the latest turn."""
        found = False
        for name in dict.fromkeys((call_id, bare(call_id))):
            found = found or name in self._waiting
            turns = self._waiting.get(name, [])
            while turns:
                call = turns[-1].pop(0)
                if not turns[-1]:
                    turns.pop()
                if call.answer is None:
                    call.answer = message
                    return True
        return found

    def messages(self) -> list[dict[str, Any]]:
        """All of it; an id that stands twice is made anew the second time, with its answer."""
        out: list[dict[str, Any]] = []
        seen: set[str] = set()
        for entry in self._entries:
            if isinstance(entry, _HistoryTurn):
                for call in (call for call in entry.calls if call.answer):
                    if call.call["id"] in seen:
                        call.call = {**call.call, "id": new_call_id()}
                    seen.add(call.call["id"])
            out += entry.messages() if isinstance(entry, _HistoryTurn) else [entry]
        return out
