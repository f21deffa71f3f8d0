"""The texts that a model was given of its sources, as they are searched for what a sentence says. Handed a source;
hands on its sentences, which of them hold a word, and which three in a row hold most of a claim. Each source is read
once, when it is first asked for, and again only when the model has been given more of it. Pure.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property

from providers.text.cuts import cut_place
from providers.text.words import terms
from tools.ledger import MOST_GIVEN, Source

from ..values.request import LONGEST_QUOTE
from .exact_words import ExactWords
from .sentences import Span, sentence_places

WINDOW = 3  # sentences
MOST_HOLDING = 200  # sentences of a source that are looked at for one word: what all of it says tells nothing apart
LONGEST_SENTENCE = 1200  # what goes on longer is no sentence, and is looked at in pieces
_STEM = 6  # letters; endings differ from language to language, beginnings less


def stems(text: str) -> set[str]:
    """Its words by their beginnings, so that `vulnerable` speaks of `vulnerability`."""
    return {term[:_STEM] for term in terms(text)}


class WeightedWords:
    """The words of a sentence, each with its weight and with a bit that stands for it."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.bits = [(1 << at, stem) for at, stem in enumerate(weights)]
        self._weights = list(weights.values())
        self.whole = math.fsum(self._weights)
        self._known: dict[int, float] = {}

    def weight(self, bits: int) -> float:
        """Of some of them together. Sentences of a source repeat each other: most sums are made once."""
        known = self._known.get(bits)
        if known is None:
            known = self._known[bits] = math.fsum(self._weights[at] for at in _places_of(bits))
        return known

    def weight_in(self, text: str) -> float:
        held = stems(text)
        return self.weight(sum(bit for bit, stem in self.bits if stem in held))


def _places_of(bits: int) -> Iterator[int]:
    """Where bits are set: of many words a sentence of a source mostly holds few."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


class SourceText:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.given = source.given
        self.sentences: list[tuple[int, Span]] = []  # with the number of the text that each stands in
        for part, text in enumerate(source.given):
            self.sentences += [(part, piece) for place in sentence_places(text) for piece in _pieces(text, place)]

    @cached_property
    def holding(self) -> Mapping[str, list[int]]:
        """Which sentences hold a word."""
        holding: dict[str, list[int]] = defaultdict(list)
        for number, (part, place) in enumerate(self.sentences):
            for stem in stems(self.given[part][place.start : place.end]):
                if len(holding[stem]) < MOST_HOLDING:
                    holding[stem].append(number)
        return holding

    @cached_property
    def exact(self) -> ExactWords:
        source = self.source
        return ExactWords((*self.given, source.title, source.snippet, source.date or ""))

    def read(self) -> None:
        """All that is else read when it is first asked for."""
        _ = self.holding
        self.exact.read()

    def held(self, words: WeightedWords) -> dict[int, int]:
        """Which of some words each sentence holds, as bits, where it holds any."""
        held: dict[int, int] = {}
        for bit, stem in words.bits:
            for number in self.holding.get(stem, ()):
                held[number] = held.get(number, 0) | bit
        return held

    def most_held(self, words: WeightedWords) -> tuple[float, int]:
        """The most that sentences in a row hold of some words, by weight; and how many of the words."""
        held = self.held(words)
        rows = {held.get(at, 0) | held.get(at + 1, 0) | held.get(at + 2, 0) for at in firsts(held)}
        best = max(rows, key=words.weight, default=0)
        return words.weight(best), best.bit_count()


def _pieces(text: str, place: Span) -> Iterator[Span]:
    start, end = place
    while end - start > LONGEST_SENTENCE:
        behind = start + LONGEST_SENTENCE
        blank = text.rfind(" ", start + LONGEST_SENTENCE // 2, behind)
        cut = blank + 1 if blank >= 0 else cut_place(text, behind)
        cut = cut if cut > start else behind  # of characters that all belong together
        yield Span(start, cut)
        start = cut
    yield Span(start, end)


def firsts(held: Iterable[int]) -> set[int]:
    """Where rows of three may begin that reach one of these sentences."""
    return {number - back for number in held for back in range(WINDOW)}


class SourceTexts:
    """The sources of one answer. Of those that are `known_in_part` nobody can say that something stands nowhere in
    them."""

    def __init__(self, known_in_part: Collection[int] = (), longest_quote: int = LONGEST_QUOTE) -> None:
        self.longest_quote = longest_quote
        self._known_in_part = known_in_part
        self._texts: dict[int, SourceText] = {}

    def of(self, source: Source) -> SourceText:
        known = self._texts.get(source.n)
        if known is None or known.given is not source.given:
            known = self._texts[source.n] = SourceText(source)
        return known

    def read(self, sources: Iterable[Source]) -> None:
        for source in sources:
            self.of(source).read()

    def is_whole(self, source: Source) -> bool:
        """Is all of it here that the model was given?"""
        return source.n not in self._known_in_part and sum(map(len, source.given)) < MOST_GIVEN

    def of_all(self, sources: Iterable[Source]) -> list[SourceText]:
        return [self.of(source) for source in sources if source.given]
