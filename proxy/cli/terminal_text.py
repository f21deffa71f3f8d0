"""Texts that others wrote, made harmless for a terminal, and how much room they take on it. Handed what models, pages
and servers wrote; hands on text without anything that a terminal would obey instead of showing it.
"""

from __future__ import annotations

import io
import re
import unicodedata
from typing import TextIO

from tools.clean import one_line

LONGEST_TITLE = 300
LONGEST_ADDRESS = 2000

# Control characters but line feed and tab; line ends of other kinds; what turns the order of writing; lone surrogates.
# Joiners and variation selectors stay: emoji and whole scripts are written with them.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_PLAIN_ADDRESS = re.compile(r"https?://[!-~]+")


def accept_any_character(stream: TextIO) -> None:
    """A terminal that knows few characters shows another in place of those that it does not know."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")


def harmless(text: str) -> str:
    """Character by character, so that a text may come in pieces."""
    return _OBEYED.sub("", text)


def harmless_json(text: str) -> str:
    """JSON that says the same, with escapes for what a terminal would obey: such things stand inside strings alone."""
    return _OBEYED.sub(lambda found: found[0] if found[0] < " " else f"\\u{ord(found[0]):04x}", text)


def title(text: str) -> str:
    return harmless(one_line(text, LONGEST_TITLE))


def address(url: str) -> str:
    return harmless(one_line(url, LONGEST_ADDRESS))


def linked(url: str) -> str:
    """The address as a link that a terminal opens; as it is, where that cannot be told safely."""
    shown = address(url)
    return f"\x1b]8;;{url}\x1b\\{shown}\x1b]8;;\x1b\\" if _PLAIN_ADDRESS.fullmatch(url) else shown


def cells(text: str) -> int:
    """The columns that a text takes."""
    return sum(map(_cells_of, text))


def cut_to(text: str, room: int) -> str:
    """As much of it as has room, with a mark where something is missing."""
    if cells(text) <= room:
        return text
    kept, left = [], room - 1
    for character in text:
        left -= _cells_of(character)
        if left < 0:
            break
        kept.append(character)
    return "".join(kept).rstrip() + "…" if room > 0 else ""


def wrapped(text: str, columns: int, indent: str = "") -> list[str]:
    """Lines of so many columns at most, broken between words where that is possible."""
    room = max(columns - len(indent), 8)
    lines, line, left = [], "", room
    for word in text.split():
        if line and cells(word) >= left:
            lines.append(line)
            line, left = "", room
        for piece in _pieces(word, room):
            if line and piece is not word:
                lines.append(line)
                line, left = "", room
            line = f"{line} {piece}" if line else piece
            left = room - cells(line)
    return [indent + line for line in [*lines, line] if line]


def _pieces(word: str, room: int) -> list[str]:
    """A word that is longer than a line, in pieces that are not."""
    if cells(word) <= room:
        return [word]
    pieces, taken = [""], 0
    for character in word:
        taken += _cells_of(character)
        if taken > room:
            pieces.append("")
            taken = _cells_of(character)
        pieces[-1] += character
    return pieces


def _cells_of(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
