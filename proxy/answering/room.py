"""How much of what was found a model can be handed. Handed the size of its context, what of it is taken, and how many
tokens it makes of a text; hands on what is left for sources, and whether a text fits. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from providers.records import dataclass

from ..values.estimates import likely_tokens, texts_asked
from ..values.messages import is_text

CAUTIOUS = 1.3  # tokens for each that is likely, of a model that has not told us how it counts
_UNKNOWN = 3000  # tokens, where the size of the context is not known
_ROLE = 8  # tokens around each message
_SPARE = 0.03  # of the context, for what templates add
_FRAME = 250  # likely tokens of what stands around the passages: titles, addresses, the rule for citing
_LEAST = 120  # tokens: less is no source
_PICTURE = 1000  # tokens of a picture or another thing that is no text, about
_ANSWER = 1024  # tokens that an answer may take where the client names no limit


@dataclass(frozen=True, slots=True)
class Room:
    """`left` is what there is for sources, in tokens; `rate` how many the model makes of one that is likely. Where
    nobody knows the context, it is not `bounded`: then whatever was chosen by `left` is handed over."""

    left: float
    rate: float
    bounded: bool = True

    @property
    def for_passages(self) -> float:
        """In tokens; nothing where it would be too little to be of use."""
        passages = self.left - _FRAME * self.rate
        return passages if passages >= _LEAST else 0.0

    def weigh(self, text: str) -> float:
        return likely_tokens(text) * self.rate

    def holds(self, text: str) -> bool:
        return not self.bounded or self.weigh(text) <= self.left


def room_for(body: Mapping[str, Any], context: int, rate: float) -> Room:
    """What a body leaves free for sources, with the answer that it asks for. `context` is 0 if nobody knows it, `rate`
    as long as the model has not told it."""
    if not context:
        return Room(_UNKNOWN, 1.0, bounded=False)
    rate = rate or CAUTIOUS
    taken = sum(map(likely_tokens, texts_asked(body))) * rate + _ROLE * len(body["messages"])
    taken += _PICTURE * sum(map(_pictures, body["messages"]))
    return Room(context * (1 - _SPARE) - taken - _answer(body, context), rate)


def _pictures(message: object) -> int:
    content = message.get("content") if isinstance(message, Mapping) else None
    return sum(not is_text(part) for part in content) if isinstance(content, list) else 0


def _answer(body: Mapping[str, Any], context: int) -> int:
    limits = (body.get(name) for name in ("max_completion_tokens", "max_tokens"))
    wanted = next((limit for limit in limits if isinstance(limit, int) and limit > 0), 0)
    return min(wanted or _ANSWER, context if wanted else context // 4)
