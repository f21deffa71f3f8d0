"""What every API that clients speak must be able to do, chosen by path before anything else is known of a request, so
that even a refusal at the door is dressed as that API's clients expect it. Handed a body; hands on a `Decoded` request,
whose `writer` makes the answer of events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from .events import Event, Failed, Finished
from .request import ChatRequest


class AnswerWriter(Protocol):
    """An answer on its way out: frames batch by batch, or one body of all events; and what is done before its end."""

    def feed(self, events: Iterable[Event]) -> bytes: ...

    def whole(self, events: Iterable[Event]) -> bytes: ...

    async def keep(self, finished: Finished) -> None:
        """Done before the client hears of the end."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A client's request in canonical form. `writer` is given the request as it was prepared for the model."""

    request: ChatRequest
    writer: Callable[[ChatRequest], AnswerWriter]
    forward_to: str = ""  # the path where an upstream takes the client's own bytes; empty: it never sees them
    hidden_turns: bool = False  # may its history hold turns of ours that the client never saw?


class Dialect(Protocol):
    @property
    def name(self) -> str:
        """As the log and the metrics call it."""

    async def decode(self, raw: bytes, owner: str) -> Decoded:
        """Refuses bad input with `RequestError`, here and nowhere later. `owner` is whose stored turns it may use."""

    def error(self, failed: Failed) -> bytes:
        """A failure as a whole body."""

    def error_event(self, failed: Failed) -> bytes:
        """The same in the middle of a stream whose bytes were not ours."""
