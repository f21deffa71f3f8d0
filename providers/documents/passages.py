"""A document in passages, each short enough to be shown as a search result and long enough to be understood.

Handed Markdown or plain text; hands on pairs of the nearest heading above and the passage, in their order. Every word
of the text is in one of them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..text.cuts import cut
from ..text.headings import heading_in

ENOUGH = 400  # characters from which on a passage takes no further paragraph
MOST = 700
SLACK = 100  # characters by which a cut may be moved to the end of a sentence
LEAST = 150  # characters from which on another passage may begin; a title alone is none
_ANNOUNCING = (":", "：")  # what comes next belongs to it
_PARAGRAPH = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")


def split_passages(text: str) -> Iterator[tuple[str, str]]:
    heading, under, held = "", "", ""
    for paragraph in _PARAGRAPH.split(text):
        title = _heading(paragraph)
        if held and _is_full(held, paragraph, begins=bool(title)):
            yield from ((under, piece) for piece in _pieces(held))
            held = ""
        heading = title or heading
        under = under if held else heading
        held = f"{held}\n\n{paragraph}" if held else paragraph
        if len(held) >= ENOUGH and not held.rstrip().endswith(_ANNOUNCING):
            yield from ((under, piece) for piece in _pieces(held))
            held = ""
    if held.strip():
        yield from ((under, piece) for piece in _pieces(held))


def _is_full(held: str, paragraph: str, *, begins: bool) -> bool:
    if len(held) < LEAST or held.rstrip().endswith(_ANNOUNCING):
        return False
    return begins or len(held) + len(paragraph) > MOST


def _heading(paragraph: str) -> str:
    """The heading that a paragraph begins with."""
    first, _, rest = paragraph.lstrip("\n").partition("\n")
    return heading_in(first, rest.partition("\n")[0])


def _pieces(text: str) -> Iterator[str]:
    """About equal ones: a short rest would be found too easily, and say too little."""
    size = min(MOST, len(text) // (len(text) // MOST + 1) + SLACK)
    start = 0
    while start < len(text):
        end = cut(text, start, size) if len(text) - start > MOST else len(text)
        yield text[start:end]
        start = end
