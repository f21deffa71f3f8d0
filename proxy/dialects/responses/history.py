"""Items → the chat messages that the model is asked with. Handed a decoded request, the stored conversation that it
builds on and what the store knows of its items; hands on a `Conversation`, put together by `values/history.py`.

What cannot stand so: an output that answers no call is refused, as OpenAI does. A call that nobody answered is left out
(and its message too, if nothing else is in it), for the client went on without it. Of two outputs for one call the
first counts. A search that the store has forgotten, and thinking that it never had, are left out too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from providers.records import dataclass

from ...answering.turns import bare
from ...values.errors import refuse
from ...values.history import AssistantTurn, History, HistoryCall, with_unique_ids
from ...values.messages import arguments_of
from ...values.request import check_length
from .custom_input import as_arguments
from .declared_tools import TOOL_SEARCH, DeclaredTools
from .items import OUTPUT_TYPES, chat_content, is_call, is_result, is_tool_search_result, text_of
from .request import ResponsesRequest


@dataclass(frozen=True, slots=True)
class KnownItem:
    """What the store holds for an output item: the item as it was sent, and the hidden messages that it stands for.

    Each hidden message, call and thought stands with one item only: a search with its call and its result, an answer
    with its text, a function call with itself as the model wrote it. Items of one round become one message again.
    A message that came of a call that no item was shown for says which round it is of: see `hidden`.
    """

    item: dict[str, Any]
    messages: tuple[dict[str, Any], ...]
    round_id: str = ""
    place: int = 0  # of a call among the calls of its round: the client's are shown before ours have run


_HIDDEN = "hidden"  # in a stored message: its round, and its place among the calls of that


def hidden(message: Mapping[str, Any], round_id: str, place: int) -> dict[str, Any]:
    """A message that an item stands for beside its own, because nothing else was shown of it."""
    return {**message, _HIDDEN: [round_id, place]}


UNKNOWN = KnownItem({}, ())
_STORED = KnownItem({}, (), "stored")  # what stands in a stored conversation, under the ids that the client was shown


def references(request: ResponsesRequest) -> list[str]:
    """The ids that must be looked up: references, and echoed output, of which more may be known than it says."""
    told = request.instructions if isinstance(request.instructions, list) else []
    return list(dict.fromkeys(name for item in [*told, *request.items] if _refers(item) for name in _names(item)))


def bare_references(request: ResponsesRequest) -> set[str]:
    """Of those, the ids that come with nothing else: without the store nobody knows what they say."""
    return {item["id"] for item in request.items if item["type"] == "item_reference"}


@dataclass(frozen=True, slots=True)
class Conversation:
    messages: list[dict[str, Any]]
    own: list[dict[str, Any]]  # what the request's own items have added to it, as they are stored


def instructions(request: ResponsesRequest, known: Mapping[str, KnownItem]) -> list[dict[str, Any]]:
    if isinstance(request.instructions, str):
        return [{"role": "system", "content": request.instructions}]
    reader = _Reader(request.tools, known)
    reader.read(request.instructions or (), "instructions")
    return [request.tools.with_wire_names(message) for message in reader.history.messages()]


def conversation(
    request: ResponsesRequest,
    previous: Sequence[dict[str, Any]],
    known: Mapping[str, KnownItem],
    told_items: Iterable[str] = (),
) -> Conversation:
    """All that was said before, without instructions, and then the request's own items. `told_items` are the ids of
    those that what was said before came from: a client may send them once more."""
    check_length([*previous, *request.items], "input")
    reader = _Reader(request.tools, known, told_items)
    for message in previous:
        reader.say(message, _STORED)
        reader.history.part()
    reader.history.mark()
    reader.read(request.items, "input")
    told = reader.history.messages()
    if not told:
        raise refuse(400, "`input` holds nothing to answer.", param="input", code="invalid_value")
    messages = [request.tools.with_wire_names(message) for message in with_unique_ids(told)]
    return Conversation(messages, reader.history.since_mark())


def _refers(item: Mapping[str, Any]) -> bool:
    is_output = item["type"] in OUTPUT_TYPES and item.get("role", "assistant") == "assistant"
    return (is_output or item["type"] == "item_reference") and bool(_names(item))


def _names(item: Mapping[str, Any]) -> list[str]:
    """What an item may be stored under. The AI SDK sends calls back without their own id, others under a new one."""
    names = [item.get("id"), item.get("call_id") if is_call(item) else None]
    return [name for name in names if isinstance(name, str) and name]


def _says_the_same(item: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
    """An edited answer or call counts as the client wrote it."""
    if item["type"] == "message":
        return text_of(item["content"]) == text_of(stored.get("content") or ())
    if is_call(item):
        same = all(item.get(name) == stored.get(name) for name in ("type", "call_id", "name", "input"))
        return same and _arguments(item) == _arguments(stored)
    return True


def _arguments(item: Mapping[str, Any]) -> Any:
    given = item.get("arguments")
    return given if isinstance(given, dict) else arguments_of(given)


def _plain(item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What an item says by itself."""
    if is_call(item):
        yield {"role": "assistant", "content": None, "tool_calls": [_plain_call(item)]}
    elif item["type"] == "message" and item["role"] != "assistant":
        yield {"role": item["role"], "content": chat_content(item["content"])}
    elif item["type"] == "message":
        marks = (part.get("annotations") for part in item["content"])
        cited = [mark for listed in marks if isinstance(listed, list) for mark in listed]
        # With several parts the places of the marks would be wrong; what is cited is known from the links anyhow.
        annotated = {"annotations": cited} if cited and len(item["content"]) == 1 else {}
        yield {"role": "assistant", "content": text_of(item["content"]), **annotated}


def _plain_call(item: Mapping[str, Any]) -> dict[str, Any]:
    """A call as it is stored, with its namespace beside it; see `DeclaredTools.with_wire_names`."""
    name, given = item.get("name"), item.get("arguments")
    if item["type"] == "custom_tool_call":
        given = as_arguments(item["input"])
    elif item["type"] == "tool_search_call":
        name, given = TOOL_SEARCH, given if isinstance(given, str) else orjson.dumps(given).decode()
    call = {"id": item["call_id"], "type": "function", "function": {"name": name, "arguments": given}}
    if item["type"] == "tool_search_call":
        return {**call, "namespace": None}
    namespace = item.get("namespace")
    return {**call, "namespace": namespace} if isinstance(namespace, str) and namespace else call


def _output(item: Mapping[str, Any], tools: DeclaredTools) -> Any:
    if is_tool_search_result(item):
        return tools.text_of_found(item["tools"])
    return chat_content(item["output"]) if isinstance(item["output"], list) else item["output"]


class _Reader:
    """Items and what is known of them, into a history."""

    def __init__(self, tools: DeclaredTools, known: Mapping[str, KnownItem], told_items: Iterable[str] = ()) -> None:
        self.history = History()
        self._tools = tools
        self._known = known
        self._items = set(told_items)  # ids of items that have their place

    def read(self, items: Sequence[dict[str, Any]], param: str) -> None:
        for i, item in enumerate(items):
            if is_result(item):
                self._read_output(item, f"{param}[{i}].call_id")
            else:
                self._read_item(item, f"{param}[{i}].id")

    def _read_output(self, item: Mapping[str, Any], param: str) -> None:
        call_id, result = item["call_id"], {"role": "tool", "content": _output(item, self._tools)}
        answered = any(self.history.answer(name, result) for name in dict.fromkeys((call_id, bare(call_id))))
        if not answered and not is_tool_search_result(item):  # tools are found for later calls, whoever asked for them
            text = f"No tool call found for function call output with call_id {call_id}."
            raise refuse(400, text, param=param, code="invalid_value")

    def _read_item(self, item: Mapping[str, Any], param: str) -> None:
        names = _names(item) if _refers(item) else []
        found = next((self._known[name] for name in names if name in self._known), None)
        if item["type"] == "item_reference" and found is None:
            raise refuse(404, f"Item with id '{item['id']}' not found.", param=param, code="item_not_found")
        if found is None:
            for message in _plain(item):
                self.say(message)
        elif not self._has(found):
            for part, known in _recalled(item, found):
                self.say(part, known)

    def _has(self, known: KnownItem) -> bool:
        """Does it stand here already? Clients send one thing twice: itself, and within what they build on."""
        there = known.item["id"] in self._items
        self._items.add(known.item["id"])
        return there

    def say(self, message: Mapping[str, Any], known: KnownItem = UNKNOWN) -> None:
        if message["role"] == "tool":
            result = {key: value for key, value in message.items() if key != "tool_call_id"}
            self.history.answer(message["tool_call_id"], result)
        elif message["role"] != "assistant":
            self.history.add(dict(message))
        else:
            self._say_assistant(message, known)

    def _say_assistant(self, message: Mapping[str, Any], known: KnownItem) -> None:
        last = self.history.entries[-1] if self.history.entries else None
        if not (isinstance(last, AssistantTurn) and last.takes(known.round_id)):
            last = self.history.begin_turn({"role": "assistant", "content": None}, is_open=True)
        last.round_id = last.round_id or known.round_id
        last.say(message)
        made = [_call(call, known, len(last.calls) + i) for i, call in enumerate(message.get("tool_calls") or ())]
        self.history.call(made)


def _recalled(item: Mapping[str, Any], found: KnownItem) -> Iterator[tuple[Mapping[str, Any], KnownItem]]:
    """What an item stands for, in its order. Where a client has changed what the item says itself, that is told as it
    was changed; what it stands for besides is told all the same."""
    own: list[Mapping[str, Any]] | None = None if _says_the_same(item, found.item) else list(_plain(item))
    for message in found.messages:
        if _HIDDEN in message:
            round_id, place = message[_HIDDEN]
            plain = {key: value for key, value in message.items() if key != _HIDDEN}
            yield plain, KnownItem({}, (), round_id, place)
        elif own is None:
            yield message, found
        else:
            yield from ((changed, found) for changed in own)
            own = []
    yield from ((changed, found) for changed in own or ())


def _call(call: Mapping[str, Any], known: KnownItem, place: int) -> HistoryCall:
    """A call of ours or of a round that is known is told by the upstream's own id; a result may name it by any."""
    id_ = bare(call["id"]) if known.round_id else call["id"]
    names = dict.fromkeys(filter(None, (known.item.get("call_id"), call["id"], id_)))
    return HistoryCall({**call, "id": id_}, tuple(names), place=known.place or place)
