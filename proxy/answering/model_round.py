"""What the model has said in one round, as it gathers: text, thinking, calls. Handed pieces by the loop; hands on the
calls as they stand in a history.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

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


@dataclass(slots=True)
class ModelRound:
    text: list[str] = field(default_factory=list)
    fields: GatheredFields = field(default_factory=GatheredFields)
    calls: dict[int, PendingCall] = field(default_factory=dict)
