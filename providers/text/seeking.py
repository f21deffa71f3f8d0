"""What a query looks for in a text, whatever its language. Handed a query; hands on where in a text its words stand,
their pieces too, so that inflected forms count, and pairs of words that follow each other. Pure.

The text is searched for what the query holds, and not taken apart: that is fast, and needs no word breaking.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from .folding import folded
from .words import COMMON, WORD, is_syllabic, is_unspaced, pieces

LONGEST_QUERY = 600  # characters; of a longer one only the beginning is looked for
_WHOLE_WORD = 0.5  # the weight of a word as it is written, beside its pieces, which weigh 1 or less each
_PAIR = 0.5
_SHARED = 0.3  # how much less the pieces of a long word weigh: with 1 all words were equal, with 0 long ones outweigh


class Query:
    def __init__(self, text: str) -> None:
        self._text = text[:LONGEST_QUERY]
        self._parts: dict[str, float] = {}  # what may stand anywhere → its weight
        self._whole: dict[str, float] = {}  # what must not go on into another word
        query = self.fold(self._text)
        found = list(WORD.finditer(query))
        words = list(dict.fromkeys(word[0] for word in found))
        self._telling = [word for word in words if _tells(word)] or words
        for word in words:
            self._seek(word)
        for one, other in pairwise(found):
            if query[one.end() : other.start()] == " ":
                self._whole.setdefault(f"{one[0]} {other[0]}", _PAIR)

    def fold(self, text: str) -> str:
        """A text in the form in which `places` looks through it."""
        return folded(text, self._text)

    def places(self, text: str, most: int) -> Iterator[tuple[float, list[int]]]:
        """For all that is found in a folded text, and not more than `most` times: its weight, and where it begins. What
        stands everywhere tells nothing."""
        for part, weight in self._parts.items():
            if found := _places(text, part, most):
                yield weight, found
        for word, weight in self._whole.items():
            if found := _places_alone(text, word, most):
                yield weight, found

    def is_met(self, text: str) -> bool:
        """Does a folded text hold one of the words that tell something, by its beginning or by half of its pieces? A
        single piece may be chance."""
        return any(_holds(text, word) for word in self._telling)

    def _seek(self, word: str) -> None:
        parts = pieces(word)
        if _stands_anywhere(word):
            self._parts.update((part, 1.0) for part in parts)
        elif len(parts) == 1:
            self._whole[word] = 1 + _WHOLE_WORD
        else:
            self._whole[word] = _WHOLE_WORD
            for part in parts:
                self._parts[part] = max(self._parts.get(part, 0.0), len(parts) ** -_SHARED)


def _stands_anywhere(word: str) -> bool:
    """Has it no end that could be seen: no blanks part it from the next, or particles hang on it, as in Korean?"""
    return is_unspaced(word) or is_syllabic(word)


def _tells(word: str) -> bool:
    """Words of one or two letters mostly hold a sentence together, whatever the language."""
    if _stands_anywhere(word) or word.isdigit():
        return True
    return word not in COMMON and len(word) > 2


def _holds(text: str, word: str) -> bool:
    parts = pieces(word)
    if _stands_anywhere(word):
        return any(part in text for part in parts)
    if len(parts) == 1:
        return bool(_places_alone(text, word, len(text)))
    stem = word[: max(5, len(word) * 3 // 5)]
    return stem in text or 2 * sum(part in text for part in parts) >= len(parts)


def _places(text: str, part: str, most: int) -> list[int]:
    found: list[int] = []
    at = text.find(part)
    while at >= 0:
        if len(found) == most:
            return []
        found.append(at)
        at = text.find(part, at + 1)
    return found


def _places_alone(text: str, word: str, most: int) -> list[int]:
    found: list[int] = []
    at, length = text.find(word), len(word)
    while at >= 0:
        if not (text[at - 1 : at].isalnum() or text[at + length : at + length + 1].isalnum()):
            if len(found) == most:
                return []
            found.append(at)
        at = text.find(word, at + length)
    return found
