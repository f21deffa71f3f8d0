"""What every API that clients speak must be able to do, chosen by path before anything else is known of a request, so
that even a refusal at the door is dressed as that API's clients expect it. Handed a body; hands on a `Decoded` request,
whose `writer` makes the answer of events.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from providers.records import dataclass

from .events import Event, Failed
from .request import ChatRequest, CitationStyle

REQUEST_ID = b"x-request-id"


class AnswerWriter(Protocol):
    """An answer on its way out: frames batch by batch, or one body of all events. What must be kept of it is kept
    before the client hears of its end."""

    def feed(self, events: Sequence[Event]) -> bytes:
        """A batch that does not end the answer, or in which it fails."""

    async def end(self, events: Sequence[Event]) -> bytes:
        """The last batch, which ends in `Finished`."""

    async def whole(self, events: Sequence[Event]) -> bytes:
        """All events as one body; the last is `Finished`."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A client's request in canonical form, and who writes the answer to it, where that is not the upstream."""

    request: ChatRequest
    writer: Callable[[], AnswerWriter]
    forward_to: str = ""  # the path where an upstream takes the client's own bytes; empty: it never sees them
    as_sent: bool = False  # are the client's bytes all that may be forwarded, and only to who says it knows this API?
    hidden_turns: bool = False  # may its history hold turns of ours that the client never saw?
    shows_steps: bool = False  # is there a place in its stream for the steps of a trace?
    background: bool = False  # does the work go on when the client leaves?
    accepted: Callable[[], Awaitable[None]] | None = None  # what is to be done once its caller may have it answered


class Dialect(Protocol):
    @property
    def name(self) -> str:
        """As the log and the metrics call it."""

    @property
    def citation_style(self) -> CitationStyle:
        """How citations look in its answers, where the operator says nothing."""

    @property
    def ping(self) -> bytes:
        """What keeps a silent stream alive."""

    @property
    def id_headers(self) -> Sequence[bytes]:
        """Where its SDKs look for the id of a request: always in `REQUEST_ID`, and some at another place too."""

    async def decode(self, raw: bytes, owner: str, former: str = "") -> Decoded:
        """Refuses bad input with `RequestError`, here and nowhere later. `owner` is whose stored turns it may
        use, `former` what that one was called before its key had a name."""

    def status(self, failed: Failed) -> int:
        """The HTTP status of a failure in this API."""

    def error(self, failed: Failed) -> bytes:
        """A failure as a whole body."""

    def error_event(self, failed: Failed) -> bytes:
        """The same as the last event of a stream that no writer has ended."""
