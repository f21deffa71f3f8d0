"""What each output item stands for. Handed every finished round of an answer with the items that were written in it;
hands on the messages by which the conversation has grown, and for each item those parts of them that come back with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .history import KnownItem
from .output import Called, Item, Searched

Message = Mapping[str, Any]


@dataclass(slots=True)
class _Part:
    """What one item stands for."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    round_id: str = ""
    place: int = 0


class AnswerRounds:
    def __init__(self, response_id: str) -> None:
        self._response_id = response_id
        self._parts: dict[str, _Part] = {}
        self._count = 0
        self.messages: list[dict[str, Any]] = []

    def finish(self, messages: Iterable[Message], items: Sequence[Item], calls: Mapping[str, str]) -> None:
        """A round is over in which these items were written. `calls`: search item → our call behind it."""
        grown = [_with_refusal(message) for message in messages]
        left, shown_as = _Round(grown), dict[str, str]()
        for item in items:
            part = self._parts.setdefault(item.id, _Part())
            part.round_id = f"{self._response_id}:{self._count}"
            part.messages += left.thoughts()
            if isinstance(item, Called):
                part.place = left.place_of(call := left.next_client_call())
                part.messages += left.call(call)
                shown_as[call] = item.call_id
            elif isinstance(item, Searched):
                part.place = left.place_of(call := calls[item.id])
                part.messages += left.call(call)
            elif item.kind != "reasoning":
                part.messages += left.text()
        self._count += 1
        self.messages += [_as_shown(grown[0], shown_as), *grown[1:]]

    def known(self, items: Iterable[Item]) -> list[KnownItem]:
        """All items as they stand now, each with what it stands for."""
        return [self._known(item) for item in items]

    def _known(self, item: Item) -> KnownItem:
        part = self._parts.get(item.id, _Part())
        return KnownItem(item.item(), tuple(part.messages), part.round_id, part.place)


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


def _as_shown(message: dict[str, Any], shown_as: Mapping[str, str]) -> dict[str, Any]:
    """The client's calls under the ids that it was shown: of the upstream's own there may be many alike."""
    if not shown_as:
        return message
    calls = [{**call, "id": shown_as.get(call["id"], call["id"])} for call in message["tool_calls"]]
    return {**message, "tool_calls": calls}


def _with_refusal(message: Message) -> dict[str, Any]:
    """A message as it is told to the model again: a refusal is what it said."""
    plain = {key: value for key, value in message.items() if key != "refusal"}
    return {**plain, "content": plain.get("content") or message.get("refusal")} if "refusal" in message else plain
