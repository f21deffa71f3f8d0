"""The proof of a citation: the passage of a source that a sentence rests on, and what of the sentence is not there.
Handed a sentence and the source that it cites; hands on a `Proof`. A quote is always a piece of what the model was
given, word for word. Nothing here says that a sentence is right. Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping

from providers.text.cuts import cut_place
from providers.text.relevance import rarity
from tools.ledger import Source

from ..values.events import Proof
from .source_texts import WINDOW, SourceText, SourceTexts, WeightedWords, firsts, stems

_NEEDLESS = 0.1  # what a further sentence must add, as a share of what is wanted, to be quoted too
_MOST_TRIED = 4  # sentences that a quote is looked for around
_CLAUSE_ENDS = (", ", "; ", ": ", " – ", " — ", "，", "、", "；", " ")


def proof(sentence: str, source: Source, texts: SourceTexts) -> Proof:
    if not source.given:
        return Proof()
    text = texts.of(source)
    unmatched = text.exact.missing(sentence) if sentence and texts.is_whole(source) else ()
    words = _words(sentence, text)
    held = text.held(words)
    best = heapq.nlargest(_MOST_TRIED, held, key=lambda number: (words.weight(held[number]), -number))
    return Proof(_quoted(text, words, held, firsts(best), texts.longest_quote), source.basis, unmatched)


def _words(sentence: str, text: SourceText) -> WeightedWords:
    """The fewer sentences of the source hold a word, the more it weighs; those that none holds are left out."""
    count = len(text.sentences)
    holding = {stem: len(text.holding[stem]) for stem in sorted(stems(sentence)) if stem in text.holding}
    return WeightedWords({stem: rarity(held, count) for stem, held in holding.items()})


def _quoted(
    text: SourceText, words: WeightedWords, held: Mapping[int, int], tried: Collection[int], longest: int
) -> str:
    """The sentences in a row, up to three, that hold most; where one alone is too long, the best piece of it."""
    if not held:
        return ""
    rows = (row for first in tried if first >= 0 for row in _rows(text, words, held, first, longest))
    _, _, part, start, end = max(rows, key=lambda row: (*row[:2], -row[2], -row[3]))
    said = text.given[part][start:end]
    return said if len(said) <= longest else _best_piece(said, words, longest)


def _rows(
    text: SourceText, words: WeightedWords, held: Mapping[int, int], first: int, longest: int
) -> Iterator[tuple[float, int, int, int, int]]:
    """The rows of sentences that begin with this one: what each is worth, of equal ones the shorter more, its place."""
    part, (start, _) = text.sentences[first]
    together = 0
    for number, (of, (_, end)) in enumerate(text.sentences[first : first + WINDOW]):
        if of != part or (number and end - start > longest):
            return
        together |= held.get(first + number, 0)
        yield words.weight(together) - _NEEDLESS * words.whole * number, start - end, part, start, end


def _best_piece(sentence: str, words: WeightedWords, longest: int) -> str:
    """The piece of a long sentence that holds most, cut where a clause ends, else behind a word."""
    pieces = []
    start = 0
    while start < len(sentence):
        end = _clause_end(sentence, start, longest)
        pieces.append(sentence[start:end].strip())
        start = end
    return max(pieces, key=words.weight_in)


def _clause_end(sentence: str, start: int, longest: int) -> int:
    if len(sentence) - start <= longest:
        return len(sentence)
    for stop in _CLAUSE_ENDS:
        at = sentence.rfind(stop, start + longest // 2, start + longest)
        if at >= 0:
            return min(at + len(stop), start + longest)
    at = cut_place(sentence, start + longest)
    return at if at > start else start + longest  # of characters that all belong together
