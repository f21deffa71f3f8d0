"""The bytes of a streamed answer → events. Handed them as the network cut them, hands on the events of all whole chunks
in them.

Nearly all chunks of an answer differ in one string, its next piece. So a chunk that was read in full becomes the
pattern of those that follow: as long as they are cut from it, the pieces of a network read are parsed together, and
travel as one `TextDelta` that knows how it was cut.
"""

from __future__ import annotations

from itertools import takewhile

import orjson

from ..values.events import Event, TextDelta
from ..values.sse import SSEDecoder
from .chunks import ChunkReader

_BACKSLASH = ord("\\")  # see `sse.py` for why it is a number
_MOST_TOGETHER = 256  # pieces: between two such runs others may have their turn


class ChunkStream:
    """`feed(bytes)` per network read, then `flush()`; the events are those of `ChunkReader`."""

    def __init__(self, reader: ChunkReader) -> None:
        self._reader = reader
        self._decoder = SSEDecoder()
        self._alike = AlikeChunks()
        # The last chunk with nothing but text, until it is learned from.
        self._unlearned: tuple[bytes, Event] | None = None

    def feed(self, data: bytes) -> list[Event]:
        reader, decoder, alike = self._reader, self._decoder, self._alike
        if self._unlearned is not None:
            self._learn(*self._unlearned)
        if not decoder.rest and not reader.over and (piece := alike.only(data)):
            return [TextDelta(piece)]
        out: list[Event] = []
        at = 0
        while at < len(data) and not reader.over:
            if self._unlearned is not None:
                self._learn(*self._unlearned)
            if alike.before and not decoder.rest:
                pieces, at = alike.take(data, at)
                if len(pieces) == 1:
                    out.append(TextDelta(pieces[0]))
                elif pieces:
                    out += _runs(pieces)
                if at == len(data):
                    break
            end = data.find(b"\n\n", at) + 2
            part = data[at:end] if end > 1 else data[at:]
            at += len(part)
            payloads = decoder.feed(part)
            events, plain = reader.feed_noting(payloads)
            if plain:
                self._unlearned = payloads[0], events[-1]
            out += events
        return out

    def _learn(self, payload: bytes, read: Event) -> None:
        """Not before the next one comes: somebody waits for the first words of an answer."""
        self._alike.learn(payload, read)
        self._unlearned = None

    def flush(self) -> list[Event]:
        return self._reader.flush(self._decoder.flush())


def _runs(pieces: list[str]) -> list[Event]:
    cut = [tuple(pieces[at : at + _MOST_TOGETHER]) for at in range(0, len(pieces), _MOST_TOGETHER)]
    return [TextDelta("".join(run), run) for run in cut]


class AlikeChunks:
    """Chunks that differ in their piece of text alone: what stands before it, and what stands behind it."""

    _MOST = 8  # in vain, one after the other: there are servers whose chunks differ in more than one place
    _KEYS = (b'"content":"', b'"content": "')

    def __init__(self) -> None:
        self.before = b""  # nothing: none was read yet that is like many
        self._behind = b""
        self._between = b""  # from the end of a piece to the beginning of the next
        self._size = 0  # of all but the piece
        self._in_vain = 0

    def learn(self, payload: bytes, read: Event) -> None:
        """A chunk in which nothing but its text was to be read."""
        if self._in_vain >= self._MOST:
            return
        for key in self._KEYS:
            begin = payload.find(key) + len(key)
            end = payload.find(b'"', begin)
            if begin < len(key) or payload.count(key) != 1 or payload[begin:end] != _inside(read):
                continue
            self.before, self._behind = b"data: " + payload[:begin], payload[end:] + b"\n\n"
            self._between = self._behind + self.before
            self._size = len(self._between)
            self._in_vain += 1  # until it has been of use
            return

    def only(self, data: bytes) -> str:
        """The piece of the one chunk that these bytes are, if it is cut from it; else nothing. Most network reads hold
        one: a model writes more slowly than the network carries."""
        if not 0 < len(data) - self._size < self._size:  # nothing was learned, too short, or as long as two of them
            return ""
        before, behind = self.before, self._behind
        begin, end = len(before), len(data) - len(behind)
        if data[:begin] != before or data[end:] != behind:  # by calls of methods it would take three times as long
            return ""
        try:
            piece: str = orjson.loads(data[begin - 1 : end + 1])  # with the marks around it
        except orjson.JSONDecodeError:
            return ""
        self._in_vain = 0
        return piece

    def take(self, data: bytes, start: int) -> tuple[list[str], int]:
        """The pieces of the chunks that begin here and are cut from it, and where they end."""
        if not data.startswith(self.before, start):
            return [], start
        begin, end = start + len(self.before), data.rfind(self._behind)
        if end < begin:
            return [], start
        inside = data[begin:end]
        pieces = _strings(inside.replace(self._between, b'","'), inside.count(self._between) + 1)
        if pieces is None:
            # Something else stands between them, or a quotation mark in one of them: those before it are taken.
            cut = self._those_alike(inside)
            pieces = _strings(b'","'.join(cut), len(cut)) if cut else None
            if not pieces:
                return [], start
            end = begin + sum(map(len, cut)) + (len(cut) - 1) * len(self._between)
        self._in_vain = 0
        return pieces if all(pieces) else [piece for piece in pieces if piece], end + len(self._behind)

    def _those_alike(self, inside: bytes) -> list[bytes]:
        parts = inside.split(self._between)
        cut = list(takewhile(lambda part: b'"' not in part, parts))
        if len(cut) < len(parts):
            last, ended, _ = parts[len(cut)].partition(self._behind)
            cut += [last] if ended and b'"' not in last else []
        return cut


def _inside(event: Event) -> bytes | None:
    """The text as it stands in a JSON string, where that is the very same."""
    written = orjson.dumps(event.text)[1:-1] if isinstance(event, TextDelta) else b""
    return written if written and _BACKSLASH not in written else None


def _strings(inside: bytes, count: int) -> list[str] | None:
    """So many strings, with `","` between them. If that is found, and no other quotation mark, none of them holds one
    or ends in an escape: each is what stood between two marks."""
    try:
        strings: list[str] = orjson.loads(b'["' + inside + b'"]')
    except orjson.JSONDecodeError:
        return None
    return strings if len(strings) == count and inside.count(b'"') == 2 * (count - 1) else None
