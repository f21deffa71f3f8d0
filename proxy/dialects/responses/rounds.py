"""What each output item stands for. Handed every finished round of an answer with the items that were written in it;
hands on the messages by which the conversation has grown, and for each item those parts of them that come back with it.
Calls of ours that no item was shown for come back with the next item that clients send again, or with the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from providers.records import dataclass

from .declared_tools import DeclaredTools
from .history import KnownItem, hidden
from .output import Called, Item, Searched

Message = Mapping[str, Any]


@dataclass(slots=True)
class _Part:
    """What one item stands for."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    round_id: str = ""
    place: int = 0


class AnswerRounds:
    def __init__(self, response_id: str, tools: DeclaredTools) -> None:
        self._response_id = response_id
        self._tools = tools
        self._parts: dict[str, _Part] = {}
        self._count = 0
        self._waiting: list[dict[str, Any]] = []  # what no item was shown for, until there is one
        self.messages: list[dict[str, Any]] = []

    def finish(self, messages: Iterable[Message], items: Sequence[Item], calls: Mapping[str, str]) -> None:
        """A round is over in which these items were written. `calls`: search item → our call behind it."""
        grown = [self._tools.with_own_names(_with_refusal(message)) for message in messages]
        left, shown = _Round(grown), dict[str, Called]()
        round_id = f"{self._response_id}:{self._count}"
        for item in items:
            part = self._parts.setdefault(item.id, _Part())
            part.round_id = round_id
            if _comes_back(item):
                part.messages += self._waiting
                self._waiting = []
            part.messages += left.thoughts()
            if isinstance(item, Called):
                part.place = left.place_of(call := left.next_client_call())
                part.messages += [_with_sound_calls(message, {call: item}) for message in left.call(call)]
                shown[call] = item
            elif isinstance(item, Searched):
                part.place = left.place_of(call := calls[item.id])
                part.messages += left.call(call)
            elif item.kind != "reasoning":
                part.messages += left.text()
        self._waiting += left.unshown(round_id)
        self._count += 1
        self.messages += [_as_shown(grown[0], shown), *grown[1:]]

    def known(self, items: Sequence[Item]) -> list[KnownItem]:
        """All items as they stand now, each with what it stands for."""
        last = next((item for item in reversed(items) if _comes_back(item)), None)
        return [self._known(item, self._waiting if item is last else ()) for item in items]

    def _known(self, item: Item, more: Iterable[dict[str, Any]]) -> KnownItem:
        part = self._parts.get(item.id, _Part())
        return KnownItem(item.item(), (*part.messages, *more), part.round_id, part.place)


class _Round:
    """What is left of a round's messages: each part of them goes to one item."""

    def __init__(self, messages: Sequence[dict[str, Any]]) -> None:
        said = messages[0]
        self._text = said.get("content")
        self._thoughts = {k: v for k, v in said.items() if k not in ("role", "content", "tool_calls")}
        self._calls = {call["id"]: call for call in said.get("tool_calls") or ()}
        self._places = {id_: place for place, id_ in enumerate(self._calls, 1)}
        self._results = {message["tool_call_id"]: message for message in messages if message["role"] == "tool"}
        self._clients = [id_ for id_ in self._calls if id_ not in self._results]

    def thoughts(self) -> list[dict[str, Any]]:
        fields, self._thoughts = self._thoughts, {}
        return [{"role": "assistant", "content": None, **fields}] if fields else []

    def text(self) -> list[dict[str, Any]]:
        text, self._text = self._text, None
        return [{"role": "assistant", "content": text}] if text else []

    def next_client_call(self) -> str:
        return self._clients.pop(0) if self._clients else ""

    def place_of(self, call_id: str) -> int:
        """Counted from 1; 0 for a call that is none of this round's."""
        return self._places.get(call_id, 0)

    def call(self, call_id: str) -> list[dict[str, Any]]:
        """A call and its result; of several pages that one call opened, the first stands for it."""
        call = self._calls.pop(call_id, None)
        if call is None:
            return []
        called = {"role": "assistant", "content": None, "tool_calls": [call]}
        result = self._results.get(call_id)
        return [called, result] if result else [called]

    def unshown(self, round_id: str) -> list[dict[str, Any]]:
        """Our calls that no item stands for, with their results; thoughts that led to nothing else go with them."""
        out: list[dict[str, Any]] = []
        for call_id in [id_ for id_ in self._calls if id_ in self._results]:
            parts = [*self.thoughts(), *self.call(call_id)]
            out += [hidden(part, round_id, self.place_of(call_id)) for part in parts]
        return out


def _comes_back(item: Item) -> bool:
    """Do clients send it again? Thinking is left out by many."""
    return isinstance(item, Called | Searched) or item.kind != "reasoning"


def _as_shown(message: dict[str, Any], shown: Mapping[str, Called]) -> dict[str, Any]:
    """The client's calls under the ids that it was shown: of the upstream's own there may be many alike."""
    if not shown:
        return message
    calls = _with_sound_calls(message, shown)["tool_calls"]
    ids = {id_: item.call_id for id_, item in shown.items()}
    return {**message, "tool_calls": [{**call, "id": ids.get(call["id"], call["id"])} for call in calls]}


def _with_sound_calls(message: dict[str, Any], shown: Mapping[str, Called]) -> dict[str, Any]:
    """A model may call a custom tool in a form that no server takes back."""
    calls = message.get("tool_calls")
    return {**message, "tool_calls": [_sound(call, shown.get(call["id"])) for call in calls]} if calls else message


def _sound(call: dict[str, Any], item: Called | None) -> dict[str, Any]:
    function = call.get("function")
    if item is None or not isinstance(function, dict):
        return call
    return {**call, "function": {**function, "arguments": item.told(function.get("arguments") or "")}}


def _with_refusal(message: Message) -> dict[str, Any]:
    """A message as it is told to the model again: a refusal is what it said."""
    plain = {key: value for key, value in message.items() if key != "refusal"}
    return {**plain, "content": plain.get("content") or message.get("refusal")} if "refusal" in message else plain
