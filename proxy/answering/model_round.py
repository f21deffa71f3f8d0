"""What the model has said in one round, as it gathers: text, thinking, calls. Handed pieces by the loop; hands on the
calls as they stand in a history.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from providers.records import dataclass

from ..upstreams import repairs
from ..values.events import GatheredFields


@dataclass(slots=True)
class PendingCall:
    id: str
    name: str
    arguments: list[str]
    extra: dict[str, Any]
    ours: bool
    shown_as: int = -1  # its number among the client's calls

    def as_message(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": repairs.replayable("".join(self.arguments))}
        return {"id": self.id, "type": "function", "function": function, **self.extra}

    def as_object(self) -> dict[str, Any]:
        """Its arguments."""
        value = orjson.loads(repairs.replayable("".join(self.arguments)))
        assert isinstance(value, dict)
        return value

    def is_cut(self) -> bool:
        """Did the token limit cut this call short?"""
        try:
            orjson.loads("".join(self.arguments))
        except orjson.JSONDecodeError:
            return True
        return False


class ModelRound:
    __slots__ = ("calls", "fields", "ours", "text", "theirs")

    def __init__(self) -> None:
        self.text: list[str] = []
        self.fields: GatheredFields | None = None  # of its thinking, where there is any
        self.calls: dict[int, PendingCall] = {}  # by the model's number
        self.ours: list[PendingCall] = []  # of these
        self.theirs: list[PendingCall] = []  # the others, that the client answers

    def begin_call(self, index: int, call: PendingCall) -> None:
        self.calls[index] = call
        (self.ours if call.ours else self.theirs).append(call)

    def think(self, fields: Mapping[str, Any]) -> None:
        if self.fields is None:
            self.fields = GatheredFields()
        self.fields.add(fields)
