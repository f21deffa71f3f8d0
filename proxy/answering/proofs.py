"""The proof of a citation: the passage of a source that a sentence rests on, and what of the sentence is not there.
Handed a sentence and the source that it cites; hands on a `Proof`. A quote is always a piece of what the model was
given, word for word. Nothing here says that a sentence is right. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from providers.text.cuts import cut_place
from tools.ledger import Source

from ..values.events import Proof
from .sentences import Span
from .source_texts import WINDOW, SourceText, SourceTexts, stems

LONGEST_QUOTE = 300
SHORT_QUOTE = 150
_NEEDLESS = 0.1  # what a further sentence must add, as a share of what is wanted, to be quoted too
_CLAUSE_ENDS = (", ", "; ", ": ", " – ", " — ", "，", "、", "；", " ")


def proof(sentence: str, source: Source, texts: SourceTexts) -> Proof:
    if not source.given:
        return Proof()
    text = texts.of(source)
    unmatched = text.exact.missing(sentence) if sentence and texts.is_whole(source) else ()
    weights = _weights(sentence, text)
    quote, short = (quoted(text, weights, longest) for longest in (LONGEST_QUOTE, SHORT_QUOTE))
    return Proof(quote, short, source.basis, unmatched)


def _weights(sentence: str, text: SourceText) -> dict[str, float]:
    """What each word of the sentence weighs: the fewer sentences of the source hold it, the more; one that none holds,
    nothing."""
    count = len(text.sentences)
    holding = {term: len(text.holding[term]) for term in sorted(stems(sentence)) if term in text.holding}
    return {term: math.log(1 + (count - held + 0.5) / (held + 0.5)) for term, held in holding.items()}


def quoted(text: SourceText, weights: Mapping[str, float], longest: int) -> str:
    """The sentences in a row, up to three, that hold most; where one alone is too long, the best piece of it."""
    held = text.weights_held(weights)
    if not held:
        return ""
    needless = _NEEDLESS * math.fsum(weights.values())
    best, place = (-math.inf, 0), (0, Span(0, 0))
    for first in sorted({number - back for number in held for back in range(WINDOW) if number >= back}):
        part, start = text.sentences[first][0], text.sentences[first][1].start
        together: dict[str, float] = {}
        for number in range(first, min(first + WINDOW, len(text.sentences))):
            of, (_, end) = text.sentences[number]
            if of != part or (number > first and end - start > longest):
                break
            together.update(held.get(number, {}))
            value = math.fsum(together.values()) - needless * (number - first), start - end  # of equal ones the shorter
            if value > best:
                best, place = value, (part, Span(start, end))
    said, span = text.given[place[0]], place[1]
    if span.end - span.start <= longest:
        return said[span.start : span.end]
    return _best_piece(said[span.start : span.end], weights, longest)


def _best_piece(sentence: str, weights: Mapping[str, float], longest: int) -> str:
    """The piece of a long sentence that holds most, cut where a clause ends, else behind a word."""
    pieces = []
    start = 0
    while start < len(sentence):
        end = _clause_end(sentence, start, longest)
        pieces.append(sentence[start:end].strip())
        start = end
    return max(pieces, key=lambda piece: math.fsum(weights.get(term, 0.0) for term in sorted(stems(piece))))


def _clause_end(sentence: str, start: int, longest: int) -> int:
    if len(sentence) - start <= longest:
        return len(sentence)
    for stop in _CLAUSE_ENDS:
        at = sentence.rfind(stop, start + longest // 2, start + longest)
        if at >= 0:
            return min(at + len(stop), start + longest)
    return max(cut_place(sentence, start + longest), start + 1)
