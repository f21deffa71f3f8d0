"""Which source plainly holds what a sentence says. Handed a sentence and what the model was given of all sources; hands
on the one source that holds most of its words within three sentences, clearly more than any other, or none. Nor is a
sentence plainly held whose numbers, dates or quotations stand nowhere in the source.

This says where words come from. It does not say that they are true, or that the source supports them.
"""

from __future__ import annotations

from collections.abc import Sequence

from providers.text.relevance import rarity
from tools.ledger import Source

from .source_texts import SourceText, SourceTexts, WeightedWords, stems

# Chosen on one half of ExpertQA's answers; bench/grounding_citations.py measures both halves.
LEAST_SHARE = 0.45  # of the weight of a sentence's words
LEAST_LEAD = 0.15  # before the next source
LEAST_WORDS = 5  # that a sentence must have to say anything
LEAST_HELD = 3


def weights_of(sentence: str, texts: Sequence[SourceText]) -> dict[str, float]:
    """What each word of a sentence weighs: the fewer sources hold it, the more. One that none holds weighs as much as
    one that a single source holds."""
    weights = {}
    for stem in sorted(stems(sentence)):
        holding = max(sum(stem in text.holding for text in texts), 1)
        weights[stem] = rarity(holding, len(texts))
    return weights


def ranked(sentence: str, sources: SourceTexts, among: Sequence[Source]) -> list[tuple[float, int, Source]]:
    """Each source with the share of the sentence that it holds and the number of words in that, the best first."""
    texts = sources.of_all(among)
    words = WeightedWords(weights_of(sentence, texts))
    if not words.whole:
        return []
    held = [(text.most_held(words), text.source) for text in texts]
    shares = [(weight / words.whole, count, source) for (weight, count), source in held]
    return sorted(shares, key=lambda row: (-row[0], row[2].n))


def plain_source(sentence: str, sources: SourceTexts, among: Sequence[Source]) -> Source | None:
    if len(stems(sentence)) < LEAST_WORDS:
        return None
    found = ranked(sentence, sources, among)
    if not found:
        return None
    share, words, source = found[0]
    lead = share - (found[1][0] if len(found) > 1 else 0.0)
    if share < LEAST_SHARE or lead < LEAST_LEAD or words < LEAST_HELD:
        return None
    return None if sources.of(source).exact.missing(sentence) else source
