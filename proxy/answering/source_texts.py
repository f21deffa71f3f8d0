"""The texts that a model was given of its sources, as they are searched for what a sentence says. Handed a source;
hands on its sentences, which of them hold a word, and which three in a row hold most of a claim. Each source is read
once, when it is first asked for, and again only when the model has been given more of it. Pure.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property

from providers.text.words import terms
from tools.ledger import MOST_GIVEN, Source

from .exact_words import ExactWords
from .sentences import Span, sentence_places

WINDOW = 3  # sentences
_STEM = 6  # letters; endings differ from language to language, beginnings less


def stems(text: str) -> set[str]:
    """Its words by their beginnings, so that `vulnerable` speaks of `vulnerability`."""
    return {term[:_STEM] for term in terms(text)}


class SourceText:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.given = source.given
        self.sentences: list[tuple[int, Span]] = []  # with the number of the text that each stands in
        for part, text in enumerate(source.given):
            self.sentences += [(part, place) for place in sentence_places(text)]

    @cached_property
    def holding(self) -> Mapping[str, list[int]]:
        """Which sentences hold a word."""
        holding: dict[str, list[int]] = defaultdict(list)
        for number, (part, place) in enumerate(self.sentences):
            for stem in stems(self.given[part][place.start : place.end]):
                holding[stem].append(number)
        return holding

    @cached_property
    def exact(self) -> ExactWords:
        source = self.source
        return ExactWords((*self.given, source.title, source.snippet, source.date or ""))

    def weights_held(self, weights: Mapping[str, float]) -> dict[int, dict[str, float]]:
        """What each sentence holds of some words, where it holds any."""
        held: dict[int, dict[str, float]] = defaultdict(dict)
        for term, weight in weights.items():
            for number in self.holding.get(term, ()):
                held[number][term] = weight
        return held

    def most_held(self, weights: Mapping[str, float]) -> tuple[float, int]:
        """The most that sentences in a row hold of some words, by weight; and how many of the words."""
        held = self.weights_held(weights)
        best = (0.0, 0)
        for first in {number - back for number in held for back in range(WINDOW)}:
            together: dict[str, float] = {}
            for number in range(first, first + WINDOW):
                together.update(held.get(number, {}))
            best = max(best, (math.fsum(together.values()), len(together)))
        return best


class SourceTexts:
    """The sources of one answer. Of those that are `known_in_part` nobody can say that something stands nowhere in
    them."""

    def __init__(self, known_in_part: Collection[int] = ()) -> None:
        self._known_in_part = known_in_part
        self._texts: dict[int, SourceText] = {}

    def of(self, source: Source) -> SourceText:
        known = self._texts.get(source.n)
        if known is None or known.given is not source.given:
            known = self._texts[source.n] = SourceText(source)
        return known

    def is_whole(self, source: Source) -> bool:
        """Is all of it here that the model was given?"""
        return source.n not in self._known_in_part and sum(map(len, source.given)) < MOST_GIVEN

    def of_all(self, sources: Iterable[Source]) -> list[SourceText]:
        return [self.of(source) for source in sources if source.given]
