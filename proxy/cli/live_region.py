"""The last lines on a terminal, drawn again and again, below what was printed once and stays. Handed lines, already
harmless; writes each change in one go.

Nothing above the region is ever touched: it is never higher than the screen, and its lines never wrap. So neither what
is taller than the screen nor a character whose width the terminal sees otherwise can spoil what was printed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple, TextIO

_WRAP_OFF, _WRAP_ON = "\x1b[?7l", "\x1b[?7h"
_AT_ONCE, _SHOWN = "\x1b[?2026h", "\x1b[?2026l"  # no half-drawn picture, on terminals that know this
_CLEAR_BELOW = "\x1b[J"
_USUAL = (80, 24)


class Size(NamedTuple):
    columns: int
    lines: int


def size_of(stream: TextIO) -> Size:
    """As it is now; a terminal that does not know its size says 0."""
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return Size(*_USUAL)
    return Size(columns or _USUAL[0], lines or _USUAL[1])


class LiveRegion:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._drawn: list[str] = []

    @property
    def empty(self) -> bool:
        return not self._drawn

    def draw(self, live: Sequence[str], printed: Sequence[str] = ()) -> None:
        """`printed` stays above the region from now on; of `live` the last lines are shown that have room."""
        shown = list(live)[-max(1, size_of(self._stream).lines - 1) :]
        if not printed and shown == self._drawn:
            return
        out = [_AT_ONCE, self._to_top(), _CLEAR_BELOW]
        out += [f"{line}\n" for line in printed]
        if shown:
            out += [_WRAP_OFF, "\n".join(shown), _WRAP_ON]
        out.append(_SHOWN)
        self._drawn = shown
        self._write("".join(out))

    def leave(self) -> None:
        """What is drawn stays, and the cursor goes below it."""
        if self._drawn:
            self._drawn = []
            self._write("\n")

    def _to_top(self) -> str:
        up = len(self._drawn) - 1
        return (f"\x1b[{up}A" if up > 0 else "") + "\r"

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
