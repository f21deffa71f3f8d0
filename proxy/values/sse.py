"""Server-sent events, both ways. Handed bytes as the network cut them, hands on the `data` payloads of whole events;
and wraps payloads for the wire. Follows the WHATWG rules; only `data` matters to the APIs we speak, so event names,
ids and retry times are read and dropped.
"""

from __future__ import annotations

import re

CR, LF = b"\r\n"  # as numbers: to look for bytes in bytes makes an exception first, and drops it (Python 3.11)
PING = b": ping\n\n"
PING_EVENT = b'event: ping\ndata: {"type":"ping"}\n\n'  # where every event has a name
DONE = b"data: [DONE]\n\n"
_LINE_END = rb"(?>\r\n|\n|\r(?!\Z))"  # a CR at the very end may be half of a CRLF
EVENT_END = re.compile(_LINE_END + _LINE_END)  # for who hands on events as they are


class EventTooLong(Exception):
    """An upstream sent an event that no honest answer needs."""


class SSEDecoder:
    """`feed(bytes)` gives the payloads of the events completed by these bytes; `flush()` the unterminated rest."""

    def __init__(self, limit: int = 1_000_000) -> None:
        self._limit = limit
        self.rest = bytearray()  # of an event that has begun and is not whole
        self._started = False

    def feed(self, data: bytes) -> list[bytes]:
        if self.rest:
            # Only what is new is looked at: a long event that comes in small pieces costs its length once.
            looked_at = len(self.rest)
            self.rest += data
            if self._started and not EVENT_END.search(self.rest, max(looked_at - 3, 0)):
                self._check_length()
                return []
            data = bytes(self.rest)
            self.rest.clear()
        if not self._started:
            if len(data) < 3 and b"\xef\xbb\xbf".startswith(data):
                self.rest += data
                return []
            data = data.removeprefix(b"\xef\xbb\xbf")
            self._started = True
        if CR in data:
            # A CR at the very end may be half of a CRLF: it waits for the next bytes.
            held = b"\r" if data.endswith(b"\r") else b""
            data = data.removesuffix(held).replace(b"\r\n", b"\n").replace(b"\r", b"\n") + held
        *blocks, rest = data.split(b"\n\n")
        self.rest += rest
        self._check_length()
        payloads = []
        for block in blocks:
            payload = payload_of(block)
            if payload is not None:
                payloads.append(payload)
        return payloads

    def flush(self) -> list[bytes]:
        """What stands unterminated at the end. The spec drops it; servers that forget the last blank line exist."""
        block = bytes(self.rest)
        self.rest.clear()
        payload = payload_of(block.replace(b"\r", b"\n"))
        return [payload] if payload is not None else []

    def _check_length(self) -> None:
        if len(self.rest) > self._limit:
            raise EventTooLong


def payload_of(block: bytes) -> bytes | None:
    """The data of one event (its lines without the closing blank one), or None for comments and empty events."""
    if block.startswith(b"data: ") and LF not in block:  # nearly every event there is
        return block[6:]
    parts = [
        line[6:] if line.startswith(b"data: ") else line[5:]
        for line in block.split(b"\n")
        if line.startswith(b"data:") or line == b"data"
    ]
    payload = b"\n".join(parts)
    return payload or None


def encode(payload: bytes) -> bytes:
    return b"data: " + payload + b"\n\n"
