"""What a marker in an answer speaks for: the sentence in front of it. Handed the answer in pieces, and told where
markers stand; hands on the words that a marker at the present place belongs to. Pure.
"""

from __future__ import annotations

import re

from .sentences import BLANKS, CLOSERS, ENDS, last_start

MOST_REMEMBERED = 800  # characters in front of a place
_MARKER = "\x1f"  # stands in for one
_BETWEEN = BLANKS + ",;&" + _MARKER
_FEW_WORDS = 3  # fewer do not say what a marker is for
_WORD = re.compile(r"\w+")
_LEAST_LETTERS = 5  # that say something; `. . . .` is no row of sentences
_SOMETHING = re.compile(rf"(?:\W*+\w){{{_LEAST_LETTERS}}}")
_MOST_MARKERS = 20  # in a sentence; with more it is a list, and each is for what stands right before it


class Claims:
    def __init__(self) -> None:
        self._text = ""
        self._looked_at = 0  # how far, by who asks at the ends of sentences

    def read(self, text: str) -> None:
        if _MARKER in text:
            text = text.replace(_MARKER, " ")
        self._add(text)

    def marked(self) -> None:
        self._add(_MARKER)

    def _add(self, text: str) -> None:
        text = self._text + text
        self._looked_at = max(0, self._looked_at - max(0, len(text) - MOST_REMEMBERED))
        self._text = text[-MOST_REMEMBERED:]

    def part(self) -> None:
        """What comes next is said later, after a search it may be: no marker there is for what was said before."""
        self._text = ""
        self._looked_at = 0

    def says_something(self) -> bool:
        """Has enough been said since the last sentence that was looked at, to be one?"""
        return _SOMETHING.match(self._text, self._looked_at) is not None

    def looked_at(self) -> None:
        """The sentence in front of this place has ended, and what was to be said of it is said."""
        self._looked_at = len(self._text)

    def in_front(self) -> str:
        """The sentence in front of this place; behind another marker in the same sentence what has been said since."""
        sentence = self.sentence()
        said, _, since = sentence.rpartition(_MARKER)
        if said and (sentence.count(_MARKER) > _MOST_MARKERS or len(_WORD.findall(since)) >= _FEW_WORDS):
            return since.strip()
        return " ".join(sentence.replace(_MARKER, " ").split())

    def is_marked(self) -> bool:
        """Has the sentence in front of this place a marker, inside or behind it?"""
        text = self._text.rstrip(BLANKS)
        return text.endswith(_MARKER) or _MARKER in self.sentence()

    def sentence(self) -> str:
        """With stand-ins for the markers in it, those behind it left out."""
        text = self._text.rstrip(_BETWEEN)
        line = text[text.rfind("\n") + 1 :]
        # Markers behind the end of a sentence belong to it, and the next begins behind them.
        inner = line.rstrip(ENDS + CLOSERS)
        return line[last_start(inner) :].lstrip(_BETWEEN) if inner else ""
