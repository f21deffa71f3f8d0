"""How a Markdown text is laid out. Handed a text; hands on the pieces it may be cut into (a sentence, a list item, a
few lines of code), which of them belong together, and its headings. One pass, linear, never raises.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import field
from typing import NamedTuple

from ..records import dataclass
from .cuts import cut_place
from .patterns import pattern

LONGEST_PIECE = 300
SHORTEST_PIECE = 40  # what is shorter stands with what follows it in the same block
WHOLE_CODE = 500  # a block of code up to this length is one piece
LONGEST_HEADING = 200

_BLOCK = pattern(
    r"^ {0,3}(?P<fence>`{3,}|~{3,})[^\n]*(?:\n(?! {0,3}(?P=fence))[^\n]*)*(?:\n[^\n]*)?"
    r"|^ {0,3}(?P<heading>#{1,6}[ \t][^\n]*)"
    r"|^[^\S\n]*\S[^\n]*(?:\n(?! {0,3}(?:`{3,}|~{3,}|#{1,6}[ \t]))[^\S\n]*\S[^\n]*)*",
    re.MULTILINE,
)
_UNDERLINED = pattern(r"[^\n]+\n {0,3}(?:=+|--+)")
# What may end a sentence. One character class in front keeps the search fast; `_ends_sentence` says whether it does.
_STOP = pattern(r"[.!?\n؟।॥။។。！？][\"'”’»)\]」』）]*\s*")
_SHORTENED = pattern(r"(?:^|[^\w])[A-Z][a-z]?$")  # "J." and "Dr." end none
_ITEM = pattern(r"[^\S\n]*(?:[-*+•]|\d{1,3}[.)])[^\S\n]")
_ITEM_BELOW = pattern(rf"\n\s*?\n{_ITEM.pattern}")
_PAUSE = pattern(r"[,;:，、；：]\s*|\s+")


class Span(NamedTuple):
    start: int
    end: int


@dataclass(slots=True)
class Layout:
    """The pieces in their order. Those with the same number in `groups` belong together: a paragraph, a heading and
    what it heads, a sentence that ends in a colon and what it announces."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    sections: list[int] = field(default_factory=list)  # from one heading, or several in a row, to the next
    headings: list[Span] = field(default_factory=list)

    def heading_of(self, place: int) -> Span | None:
        """The nearest heading before a place, or the one that begins there."""
        number = bisect_right(self.headings, place, key=lambda heading: heading.start) - 1
        return self.headings[number] if number >= 0 else None


def lay_out(text: str, longest: int) -> Layout:
    """`longest`: no piece is longer than this."""
    layout = Layout()
    group = section = 0
    goes_on = headed = False
    for block in _BLOCK.finditer(text):
        start, end = block.start(), _stripped_end(text, *block.span())
        group += not goes_on
        heads = block["heading"] is not None or _is_underlined(text, start, end)
        if heads and end - start <= LONGEST_HEADING:
            layout.headings.append(Span(start, end))
        section += heads and not headed
        for piece in _pieces(text, Span(start, end), longest, is_code=block["fence"] is not None):
            layout.starts.append(piece.start)
            layout.ends.append(piece.end)
            layout.groups.append(group)
            layout.sections.append(section)
        headed = heads
        goes_on = heads or text[end - 1] in ":：" or _goes_on_below(text, end)
    return layout


def _goes_on_below(text: str, end: int) -> bool:
    """Does what ends here go on below an empty line, as a list whose items stand apart?"""
    return _ITEM_BELOW.match(text, end) is not None and _ITEM.match(text, text.rfind("\n", 0, end) + 1) is not None


def _pieces(text: str, block: Span, longest: int, *, is_code: bool) -> Iterator[Span]:
    if is_code and block.end - block.start <= min(WHOLE_CODE, longest):
        yield block
        return
    longest = min(LONGEST_PIECE, longest)
    start = block.start
    for found in _STOP.finditer(text, *block):
        if found.end() - start >= SHORTEST_PIECE and _ends_sentence(text, found):
            yield from _short(text, Span(start, found.end()), longest)
            start = found.end()
    if start < block.end:
        yield from _short(text, Span(start, block.end), longest)


def _ends_sentence(text: str, stop: re.Match[str]) -> bool:
    if stop[0][0] in "\n。！？":
        return True
    return stop[0][-1].isspace() and not _SHORTENED.search(text, max(stop.start() - 3, 0), stop.start())


def _is_underlined(text: str, start: int, end: int) -> bool:
    return text[end - 1] in "=-" and _UNDERLINED.fullmatch(text, start, end) is not None


def _short(text: str, piece: Span, longest: int) -> Iterator[Span]:
    """A piece that is too long, in parts: at a pause if there is one, else between two letters."""
    start, end = piece
    while end - start > longest:
        pauses = list(_PAUSE.finditer(text, start + longest // 2, start + longest))
        place = pauses[-1].end() if pauses else _between_letters(text, start + longest)
        place = max(place, start + 1)
        yield Span(start, place)
        start = place
    if start < end:
        yield Span(start, end)


def _between_letters(text: str, at: int) -> int:
    """Not in front of an accent or a vowel sign, which belong to the letter before."""
    for place in range(at, max(at - 8, 0), -1):
        if not unicodedata.category(text[place]).startswith("M"):
            return cut_place(text, place)
    return at


def _stripped_end(text: str, start: int, end: int) -> int:
    return start + len(text[start:end].rstrip())
