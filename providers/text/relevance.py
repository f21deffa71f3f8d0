"""Which of several texts speak about a question: BM25, small and self-contained. Handed a question and texts, hands on
one score per text. Used to leave out hits and pages that do not speak of a query, and by the demo model to pick what it
quotes; passages of a long text are `passages.py`'s.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from .words import terms


def rarity(holding: int, count: int) -> float:
    """What a word weighs that so many of all texts hold: the fewer, the more (BM25's IDF)."""
    return math.log(1 + (count - holding + 0.5) / (holding + 0.5))


def speaks(question: str, text: str) -> bool:
    """Is there a word of the question in it?"""
    return bool(text) and relevance(question, [text])[0] > 0


def relevance(question: str, texts: Sequence[str]) -> list[float]:
    """One BM25 score per text; 0.0 where no word of the question occurs."""
    wanted = set(terms(question))
    counts = [Counter(terms(text)) for text in texts]
    lengths = [count.total() for count in counts]
    usual = sum(lengths) / len(lengths) if any(lengths) else 1.0
    weights = {}
    for term in sorted(wanted):  # sorted: floating sums must not depend on the order of a set
        holding = sum(term in count for count in counts)
        weights[term] = rarity(holding, len(texts))
    return [
        sum(
            weight * count[term] * 2.2 / (count[term] + 1.2 * (0.25 + 0.75 * length / usual))
            for term, weight in weights.items()
            if term in count
        )
        for count, length in zip(counts, lengths, strict=True)
    ]
