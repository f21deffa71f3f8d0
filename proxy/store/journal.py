"""The journal of one answer that is made in the background: its events as frames for the wire, numbered from 0. Handed
frames by whoever works on the answer; hands those after a number to whoever follows it, now or later.

It is bounded: when it is full only the last frames are taken, which hold the whole answer. The numbers go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from providers.records import dataclass

MOST_BYTES = 16 << 20  # of one journal
AT_ONCE = 256 << 10  # bytes that are handed on together, to whoever follows
PIECE_OVERHEAD = 150  # about what Python needs around one piece, bytes

_END = b"\n\n"  # of a frame, and inside of none

Halt = Literal["cancelled", "lost"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole frames that were written at once, and the number of the first of them."""

    first: int
    frames: bytes

    @property
    def next(self) -> int:
        """The number that follows."""
        return self.first + self.frames.count(_END)

    def after(self, number: int) -> bytes:
        """Those of the frames whose number is greater."""
        skipped = number + 1 - self.first
        if skipped <= 0:
            return self.frames
        if skipped >= self.next - self.first:
            return b""
        return self.frames.split(_END, skipped)[skipped]

    def written(self) -> bytes:
        return b"%d %b" % (self.first, self.frames)

    @classmethod
    def read(cls, data: bytes) -> Piece:
        first, _, frames = data.partition(b" ")
        return cls(int(first), frames)


class Journal:
    """`halted` says that the work should end: somebody cancelled it, or it was taken for dead."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self.pieces: list[Piece] = []
        self.next = 0  # the number of the next frame
        self.size = 0
        self.over = False
        self.settled = True  # False: others must not see the end yet, as what it made is not where they look for it
        self.held = True  # False: nobody finds it any more, and its bytes are nobody's
        self.halted: Halt | None = None
        self.halt_asked = asyncio.Event()
        self.news = asyncio.Event()  # another one after each time that it was set

    def write(self, frames: bytes, *, last: bool = False) -> int:
        """How much larger it is now, in bytes."""
        piece = Piece(self.next, frames)
        self.next = piece.next
        more = len(frames) + PIECE_OVERHEAD
        if self.size + more > self._most and not last:
            return 0  # the numbers go on without it
        self.pieces.append(piece)
        self.size += more
        self.notify()
        return more

    def skip(self, frames: bytes) -> None:
        """These are not kept, for want of room elsewhere."""
        self.next = Piece(self.next, frames).next

    def close(self) -> None:
        self.over = True
        self.notify()

    def halt(self, why: Halt) -> None:
        self.halted = self.halted or why
        self.halt_asked.set()

    def notify(self) -> None:
        """Wakes whoever waits for news."""
        waited_for, self.news = self.news, asyncio.Event()
        waited_for.set()


def next_pieces(pieces: Sequence[Piece], at: int) -> list[Piece]:
    """Those from this place on that are light together; a heavy one goes alone. Whoever takes them may take long, and
    until then what is joined for it is held for it alone."""
    size, end = 0, at
    while end < len(pieces) and (end == at or size + len(pieces[end].frames) <= AT_ONCE):
        size += len(pieces[end].frames)
        end += 1
    return list(pieces[at:end])


def frames_after(pieces: Sequence[Piece], number: int) -> bytes:
    """The frames with a greater number, each once, even where a piece was brought twice."""
    found: list[bytes] = []
    for piece in pieces:
        if frames := piece.after(number):
            found.append(frames)
            number = piece.next - 1
    return b"".join(found)
