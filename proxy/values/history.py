"""A conversation as it is put together from what a client sent and what was kept. Handed messages, calls and results in
any order; hands on a history in which every call is answered exactly once, right behind the message that made it and in
the order of the calls. A call without a result is left out, and of two results the first counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from hashlib import sha256
from typing import Any

from providers.records import dataclass

from .events import GatheredFields
from .messages import calls_in


@dataclass(slots=True, eq=False)
class HistoryCall:
    call: dict[str, Any]  # as it is told to the model
    ids: tuple[str, ...] = ()  # all that a result may call it by, the most telling first; none: by name or in turn
    name: str = ""
    place: int = 0  # among the calls of its turn
    results: list[dict[str, Any]] = field(default_factory=list)
    entry: int = 0  # where in the history its turn stands


@dataclass(slots=True, eq=False)
class AssistantTurn:
    """What the assistant said in one go, with its calls and their results."""

    message: dict[str, Any]
    calls: list[HistoryCall] = field(default_factory=list)
    round_id: str = ""  # the round of an answer of ours that it is known to be
    is_open: bool = False  # may what follows still belong to it?
    is_answered: bool = False  # has any of its calls a result?
    _texts: list[Any] = field(default_factory=list)  # what `say` has added: put together when it is asked for
    _fields: GatheredFields = field(default_factory=GatheredFields)

    def takes(self, round_id: str) -> bool:
        """Does what the assistant says next belong to this turn?"""
        if self.round_id and round_id:
            return self.is_open and self.round_id == round_id
        return self.is_open and not self.is_answered

    def say(self, message: Mapping[str, Any]) -> None:
        """More of the same turn: texts are parted, all other fields grow."""
        fields = {key: value for key, value in message.items() if key not in ("role", "content", "tool_calls")}
        if content := message.get("content"):
            if self._texts:
                fields.pop("annotations", None)  # their places count from the start of their own text
            self._texts.append(content)
        self._fields.add(fields)

    def _said(self) -> dict[str, Any]:
        """The message with all that was added to it."""
        fields = self._fields.whole()
        if not self._texts:
            return {**self.message, **fields} if fields else self.message
        content = self._texts[0] if len(self._texts) == 1 else "\n\n".join(self._texts)
        return {**self.message, **fields, "content": content}

    @property
    def answered(self) -> list[HistoryCall]:
        return sorted((call for call in self.calls if call.results), key=lambda call: call.place)

    def messages(self) -> Iterator[dict[str, Any]]:
        answered, message = self.answered, self._said()
        if answered:
            yield {**message, "tool_calls": [call.call for call in answered]}
        elif message.get("content"):
            yield message
        for call in answered:
            yield {**call.results[0], "tool_call_id": call.call["id"]}


class History:
    """`entries` are messages that are nobody's affair here, and the assistant's turns."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self._newest: dict[str, HistoryCall] = {}  # id → the last call that bears it
        self._waiting: dict[str, list[deque[HistoryCall]]] = {}  # id → calls without a result, by turn
        self._in_order: dict[tuple[bool, str], deque[HistoryCall]] = {}  # (lacks an id, name) → calls, oldest first
        self._mark = 0
        self._late: list[dict[str, Any]] = []

    def add(self, message: Any) -> None:
        """A message as it is. Results that name its calls are not looked for: they are added as they are, too."""
        for call in calls_in(message):
            self._waiting.pop(call["id"], None)
            self._newest.pop(call["id"], None)
        self.entries.append(message)

    def begin_turn(self, message: dict[str, Any], *, is_open: bool = False) -> AssistantTurn:
        turn = AssistantTurn(message, is_open=is_open)
        self.entries.append(turn)
        return turn

    def call(self, calls: Sequence[HistoryCall]) -> None:
        """The latest turn makes these calls."""
        turn = self.entries[-1]
        turn.calls += calls
        groups: dict[str, list[HistoryCall]] = {}
        for call in calls:
            call.entry = len(self.entries) - 1
            for id_ in call.ids:
                self._newest[id_] = call
                groups.setdefault(id_, []).append(call)
            for key in {(False, call.name), (False, ""), (not call.ids, call.name), (not call.ids, "")}:
                self._in_order.setdefault(key, deque()).append(call)
        for id_, made in groups.items():
            waiting = self._waiting.setdefault(id_, [])
            if waiting and waiting[-1][-1].entry == len(self.entries) - 1:
                waiting[-1] += made
            else:
                waiting.append(deque(made))

    def answer(self, call_id: str, result: dict[str, Any]) -> bool:
        """Puts a result behind its call: the first unanswered one with that id in the latest turn that has one. Whether
        there is any call with that id."""
        call = self._unanswered(call_id) or self._newest.get(call_id)
        return call is not None and self._put(call, result)

    def answer_in_order(self, name: str, result: dict[str, Any], *, has_id: bool) -> bool:
        """The same for a result whose id is missing or unknown: the oldest open call of that name, or of any."""
        waiting = self._in_order.get((has_id, name), deque())
        while waiting:
            if not waiting[0].results:
                return self._put(waiting.popleft(), result)
            waiting.popleft()
        return False

    def part(self) -> None:
        """What follows is never told in one breath with what stands here."""
        if self.entries and isinstance(last := self.entries[-1], AssistantTurn):
            last.is_open = False

    def mark(self) -> None:
        """From here on `since_mark` is told."""
        self.part()
        self._mark, self._late = len(self.entries), []

    def since_mark(self) -> list[dict[str, Any]]:
        """What the history has grown by: results of calls that stand before the mark, and all that stands behind it."""
        return [*self._late, *_told(self.entries[self._mark :])]

    def messages(self) -> list[Any]:
        return _told(self.entries)

    def _unanswered(self, call_id: str) -> HistoryCall | None:
        turns = self._waiting.get(call_id, [])
        while turns:
            call = turns[-1].popleft()
            if not turns[-1]:
                turns.pop()
            if not call.results:
                return call
        return None

    def _put(self, call: HistoryCall, result: dict[str, Any]) -> bool:
        call.results.append(result)
        self.entries[call.entry].is_answered = True
        if call.entry < self._mark:  # under the name that is most its own: ids of calls are repeated
            self._late.append({**result, "tool_call_id": call.ids[0]})
        return True


def _told(entries: Sequence[Any]) -> list[Any]:
    out: list[Any] = []
    for entry in entries:
        out += entry.messages() if isinstance(entry, AssistantTurn) else [entry]
    return out


def with_unique_ids(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A history as above in which no id stands twice: some models number their calls anew every turn. The same history
    is always told with the same ids, so that prompt caches hold."""
    seen: dict[str, int] = {}
    due: deque[str] = deque()  # the ids of the results that come next
    out: list[dict[str, Any]] = []
    for message in messages:
        if calls := message.get("tool_calls"):
            due = deque(_unique(call["id"], seen) for call in calls)
            message = {**message, "tool_calls": [{**call, "id": id_} for call, id_ in zip(calls, due, strict=True)]}
        elif message["role"] == "tool":
            message = {**message, "tool_call_id": due.popleft()}
        out.append(message)
    return out


def _unique(call_id: str, seen: dict[str, int]) -> str:
    """The id, or for one that was seen before nine letters and digits, the form of id that every upstream accepts."""
    seen[call_id] = seen.get(call_id, 0) + 1
    if seen[call_id] == 1:
        return call_id
    return sha256(f"{seen[call_id]}:{call_id}".encode("utf-8", "surrogatepass")).hexdigest()[:9]
