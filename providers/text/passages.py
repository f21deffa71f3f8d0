"""The passages of a long text that speak of a query. Handed the text, the query and a number of characters; hands on
places in the text in its own order, or what stands there, never longer than asked for. Pure, the same every time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from .cuts import cut
from .relevance import relevance

GAP = "[…]"  # stands where something of the text was left out
_EMPTY_LINES = re.compile(r"\n{2,}")


class Span(NamedTuple):
    start: int
    end: int


def best_passages(text: str, query: str, most: int) -> str:
    """What speaks of the query, in the order of the text, gaps marked; empty if nothing does."""
    return joined(text, passage_spans(text, query, most))


def best_passage(text: str, query: str, most: int) -> str:
    """One piece of the text, word for word: what speaks most of the query; empty if nothing does."""
    paragraphs = _paragraphs(text)
    scores = relevance(query, [text[place.start : place.end] for place in paragraphs])
    best = max(range(len(paragraphs)), key=lambda at: scores[at], default=None)
    if best is None or scores[best] <= 0:
        return ""
    start, end = paragraphs[best]
    return text[start : min(cut(text, start, most), end)].strip()


def passage_spans(text: str, query: str, most: int) -> list[Span]:
    """The places of the paragraphs that speak of the query, best first until the length is used up, in their order."""
    paragraphs = _paragraphs(text)
    scores = relevance(query, [text[place.start : place.end] for place in paragraphs])
    room = most
    chosen: list[Span] = []
    for number in sorted(range(len(paragraphs)), key=lambda number: -scores[number]):
        start, end = paragraphs[number]
        if scores[number] <= 0:
            break
        if not chosen:
            end = min(cut(text, start, room), end)
        cost = end - start + len(GAP) + 4
        if cost <= room or not chosen:
            chosen.append(Span(start, end))
            room -= cost
    return sorted(chosen)


def joined(text: str, spans: Sequence[Span]) -> str:
    """The places as one text to read, with a mark wherever something is left out."""
    pieces: list[str] = []
    last = 0
    for start, end in spans:
        pieces += [GAP, text[start:end].rstrip()] if text[last:start].strip() else [text[start:end].rstrip()]
        last = end
    if spans and text[last:].strip():
        pieces.append(GAP)
    return "\n\n".join(pieces)


def _paragraphs(text: str) -> list[Span]:
    empty = [(0, 0), *(found.span() for found in _EMPTY_LINES.finditer(text)), (len(text), len(text))]
    between = (Span(before[1], after[0]) for before, after in pairwise(empty))
    return [place for place in between if text[place.start : place.end].strip()]
