"""A stream of Anthropic's Messages that is forwarded, looked at while it passes. A pure machine: handed bytes as the
network cut them, it hands on the very same bytes up to the end of the last whole event, and says what it noticed.

Only the few events that say something about the answer are read: those with its usage, its end, or an error. What a
model writes stands in JSON strings, where no quote is without its backslash, so that it cannot look like one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..values.errors import as_error, too_large
from ..values.events import Failed
from ..values.sse import CR, EVENT_END, payload_of
from .forwarded_json import NO_JSON, parsed_event

LONGEST_EVENT = 32 << 20  # bytes: a page or a file may stand in one

_TELLING = re.compile(rb'"(?:message_start|message_delta|message_stop|error)"')
_CONTENT = b'"content_block_delta"'
_EMPTY = re.compile(rb'(?>(?::|event: ?ping|data: ?\{"type": ?"ping"\})[^\r\n]*+|[\r\n]++)++')


class MessageFrames:
    """`feed(bytes)` per network read, then `end()`. Once it is `over` it takes and gives no more."""

    def __init__(self) -> None:
        self.begun = False  # an event is here that is no ping
        self.content_began = False
        self.done = False
        self.usage: dict[str, Any] = {}  # as Messages counts
        self.failed: Failed | None = None  # what ended the stream instead
        self.error_event = b""  # the upstream's own words for it
        self._held = bytearray()  # the beginning of an event

    @property
    def over(self) -> bool:
        return self.done or self.failed is not None

    def feed(self, data: bytes) -> bytes:
        """What may leave now."""
        if self.over:
            return b""
        looked_at = max(len(self._held) - 3, 0)
        self._held += data
        end = _last_end(self._held, looked_at)
        if not end and len(self._held) > LONGEST_EVENT:
            self.failed = too_large()
        whole = bytes(self._held[:end])
        del self._held[:end]
        return self._noted(whole) if whole else b""

    def end(self) -> bytes:
        """The body is over; the last bytes. Servers that forget the last blank line exist."""
        rest = bytes(self._held)
        self._held.clear()
        if self.over or parsed_event(_payload(rest) or b"") is NO_JSON:
            return b""
        return self._noted(rest.rstrip(b"\r\n") + b"\n\n")

    def _noted(self, whole: bytes) -> bytes:
        end = len(whole)
        if _TELLING.search(whole):
            end = self._read(whole)
        shown = whole[:end]
        self.begun = self.begun or bool(shown and not _EMPTY.fullmatch(shown))
        self.content_began = self.content_began or _CONTENT in shown
        return shown

    def _read(self, whole: bytes) -> int:
        """Takes note of what is told; hands back where the answer ends in these events."""
        for start, end in _events(whole):
            event = whole[start:end]
            said = parsed_event(_payload(event) or b"") if _TELLING.search(event) else None
            if not isinstance(said, dict):
                continue
            if said.get("type") == "error":
                self.failed, self.error_event = as_error(said), event
                return start
            self._count(said)
            if said.get("type") == "message_stop":
                self.done = True
                return end
        return len(whole)

    def _count(self, said: Mapping[str, Any]) -> None:
        message = said.get("message")
        usage = message.get("usage") if isinstance(message, dict) else said.get("usage")
        if isinstance(usage, dict):  # each counts from the beginning, but not all of it
            self.usage |= {name: count for name, count in usage.items() if count is not None}


def _last_end(held: bytearray, start: int) -> int:
    """Where the last whole event ends; 0 if there is none."""
    if CR not in held:
        at = held.rfind(b"\n\n", start)
        return at + 2 if at >= 0 else 0
    return max((found.end() for found in EVENT_END.finditer(held, start)), default=0)


def _events(whole: bytes) -> Iterator[tuple[int, int]]:
    start = 0
    for found in EVENT_END.finditer(whole + b"\n"):  # the line break shows that no CR is half of anything
        end = min(found.end(), len(whole))
        yield start, end
        start = end


def _payload(event: bytes) -> bytes | None:
    return payload_of(event.replace(b"\r\n", b"\n").replace(b"\r", b"\n").strip(b"\n"))
