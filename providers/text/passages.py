"""The passages of a long text that speak of a query. Handed the text, the query and a number of characters; hands on
places in the text in its own order, or what stands there, never longer than asked for. Pure, the same every time.

Passages are windows over the pieces of the text (`layout.py`): each piece begins one, which goes on until it is long
enough or its group ends. They are weighed like documents by BM25 (`seeking.py` says what counts), and the best are
taken until the room is used up. The time this takes grows as the text does, and not faster.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from .layout import Span, lay_out
from .relevance import rarity
from .seeking import Query

GAP = "[…]"  # stands where something of the text was left out
LONGEST_PASSAGE = 700  # as much as a paragraph or two
WHOLE_ENOUGH = 150  # a passage of this length does not go on into the next paragraph
SHORTEST_PASSAGE = 60
WORTHLESS = 0.2  # a passage that speaks less of the query than this part of what the best one does is left out
MOST_MISSES = 50  # windows that gave nothing more before it is enough
LENGTH_COUNTS = 0.3  # BM25's b: how much a long window must say to be as good as a short one
BESIDE = 0.8  # what stands beside a passage that was taken counts this part of what its window did
_MARK = len(GAP) + 2 * len("\n\n")  # what a passage costs besides itself
_SATURATION = 1.2  # BM25's k1: how soon a word that is said again tells nothing new
_TOLD = [count * (_SATURATION + 1) / (count + _SATURATION) for count in range(32)]


class Window(NamedTuple):
    """Pieces from `first` to before `last`. The less they speak of the query the greater `lack`, which is below zero.
    The best window is the smallest; of equal ones that which comes to the point at once, then the first in the text."""

    lack: float
    delay: int  # minus the number of things that were found in its first piece
    first: int
    last: int
    beside: bool = False  # something of it was taken, and this is what is left


def best_passages(text: str, query: str, most: int) -> str:
    """What speaks of the query, in the order of the text, gaps marked; empty if nothing does."""
    return joined(text, passage_spans(text, query, most))


def passage_spans(text: str, query: str, most: int) -> list[Span]:
    """Where the passages stand, and their headings, that fit into so many characters with the gaps marked."""
    longest = min(most - 2 * _MARK, LONGEST_PASSAGE)
    if longest < 1:
        return []
    searched = _Searched(text, Query(query), longest)
    choice = _Choice(searched, most)
    windows = list(searched.windows())
    heapify(windows)
    enough = windows[0].lack * WORTHLESS if windows else 0.0
    while windows and windows[0].lack <= enough and not choice.is_full:
        window = heappop(windows)
        free = choice.free(window.first, window.last)
        if free == (window.first, window.last):
            choice.take(window)
        elif free[0] < free[1]:
            heappush(windows, searched.rest(window, *free))
    return choice.spans()


def joined(text: str, spans: Sequence[Span]) -> str:
    """The places as one text to read, with a mark wherever something is left out."""
    shown: list[str] = []
    last = 0
    for start, end in spans:
        shown += [GAP, text[start:end]] if text[last:start].strip() else [text[start:end]]
        last = end
    if spans and text[last:].strip():
        shown.append(GAP)
    return "\n\n".join(shown)


class _Searched:
    """A text in which the query was looked for."""

    def __init__(self, text: str, query: Query, longest: int) -> None:
        self.text = text
        self.query = query
        self.longest = longest
        self.folded = query.fold(text)
        self.layout = lay_out(text, longest)
        self._held, self._worth = self._look()

    def shown(self, first: int, last: int) -> str:
        return self.text[self.layout.starts[first] : self.layout.ends[last - 1]]

    def speaks(self, window: Window) -> bool:
        """Does it really speak of the query, or stand beside what does?"""
        start, end = self.layout.starts[window.first], self.layout.ends[window.last - 1]
        return window.beside or self.query.is_met(self.folded[start:end])

    def worth(self, piece: int) -> float:
        """How much a piece speaks of the query, by itself."""
        return sum(self._worth[term] for term in set(self._held[piece]))

    def _look(self) -> tuple[list[list[int]], list[float]]:
        """For each piece the numbers of the terms in it, and what each term is worth."""
        starts = self.layout.starts
        common = max(len(starts) // 2, 3)
        found = list(self.query.places(self.folded, common)) or list(self.query.places(self.folded, len(self.text)))
        held: list[list[int]] = [[] for _ in starts]
        worth: list[float] = []
        for number, (weight, places) in enumerate(found):
            at = [bisect_right(starts, place) - 1 for place in places]
            for piece in at:
                held[piece].append(number)
            holding = len(set(at))
            worth.append(weight * rarity(holding, len(starts)))
        return held, worth

    def windows(self) -> Iterator[Window]:
        """Those that begin with a piece in which something was found. Counts go in at one end and out at the other, so
        that each is touched twice and no more."""
        counts = [0] * len(self._worth)
        score, last = 0.0, 0
        for first, begins_with in enumerate(self._held):
            while self._goes_on(first, last):
                for term in self._held[last]:
                    counts[term] += 1
                    score += self._worth[term] * _news(counts[term])
                last += 1
            if begins_with:
                yield self._weighed(score, first, last)
            for term in begins_with:
                score -= self._worth[term] * _news(counts[term])
                counts[term] -= 1

    def rest(self, window: Window, first: int, last: int) -> Window:
        """What is left of a window of which something was taken. It may say little itself, but it stands beside what
        says much."""
        counts = Counter(term for piece in range(first, last) for term in self._held[piece])
        left = self._weighed(sum(self._worth[term] * _told(count) for term, count in counts.items()), first, last)
        return left._replace(lack=min(left.lack, window.lack * BESIDE), beside=True)

    def _weighed(self, score: float, first: int, last: int) -> Window:
        return Window(-round(score / self._norm(first, last), 6), -len(self._held[first]), first, last)

    def _norm(self, first: int, last: int) -> float:
        """BM25's measure of length, milder: no window is much longer than another."""
        length = self.layout.ends[last - 1] - self.layout.starts[first]
        return 1 - LENGTH_COUNTS + LENGTH_COUNTS * length / self.longest

    def _goes_on(self, first: int, last: int) -> bool:
        """Does the window that begins with `first` hold the piece `last` too?"""
        layout = self.layout
        if last <= first or last == len(layout.starts):
            return last < len(layout.starts)
        too_long = layout.ends[last] - layout.starts[first] > self.longest
        if too_long or layout.sections[last] != layout.sections[first]:
            return False
        so_far = layout.ends[last - 1] - layout.starts[first]
        return layout.groups[last] == layout.groups[first] or so_far < WHOLE_ENOUGH


def _told(count: int) -> float:
    return _TOLD[min(count, len(_TOLD) - 1)]


def _news(count: int) -> float:
    """What the count-th time adds that something is said."""
    return _told(count) - _told(count - 1)


class _Choice:
    """The pieces that were taken, and the room that is left."""

    def __init__(self, searched: _Searched, most: int) -> None:
        self._searched = searched
        self._layout = searched.layout
        self._room = most - len(GAP) - len("\n\n")
        self._taken: list[tuple[int, int]] = []  # from which piece to before which, in their order
        self._misses = 0

    @property
    def is_full(self) -> bool:
        return self._room < SHORTEST_PASSAGE + _MARK or self._misses == MOST_MISSES

    def free(self, first: int, last: int) -> tuple[int, int]:
        """What of these pieces is not taken yet: of what lies in one piece, up to the next that is."""
        at = bisect_right(self._taken, (first, last))
        if at:
            first = max(first, self._taken[at - 1][1])
        if at < len(self._taken):
            last = min(last, self._taken[at][0])
        return min(first, last), last

    def take(self, window: Window) -> None:
        if not self._searched.speaks(window):
            self._misses += 1
            return
        first, last = self._announced(*self._fitting(window.first, window.last))
        if first == last or (self._taken and self._length(first, last) < SHORTEST_PASSAGE):
            self._misses += 1
            return
        self._keep(first, last)
        self._head(self._layout.starts[first])

    def spans(self) -> list[Span]:
        """What was taken, as places in the text; what stands together is one."""
        spans: list[Span] = []
        for first, last in self._taken:
            start, end = self._layout.starts[first], self._layout.ends[last - 1]
            if spans and start - spans[-1].end <= _MARK and self._follows(spans[-1].end, start):
                start = spans.pop().start
            spans.append(Span(start, start + len(self._searched.text[start:end].rstrip())))
        return spans

    def _follows(self, end: int, start: int) -> bool:
        return not self._searched.text[end:start].strip()

    def _fitting(self, first: int, last: int) -> tuple[int, int]:
        """As much of it as there is room for: at either end the piece goes that says less."""
        while first < last and self._length(first, last) + _MARK > self._room:
            if self._searched.worth(first) < self._searched.worth(last - 1):
                first += 1
            else:
                last -= 1
        return first, last

    def _announced(self, first: int, last: int) -> tuple[int, int]:
        """With all that a sentence which ends in a colon announces, as far as there is room for it."""
        colon = next((piece for piece in range(last - 1, first - 1, -1) if self._ends_in_colon(piece)), None)
        if colon is None or not self._belongs(last - 1, colon):
            return first, last
        most = min(self._room - _MARK, self._length(first, last) + self._searched.longest)
        while self._belongs(last, colon) and self._is_free(last) and self._length(first, last + 1) <= most:
            last += 1
        return first, last

    def _ends_in_colon(self, piece: int) -> bool:
        return self._searched.shown(piece, piece + 1).rstrip().endswith((":", "："))

    def _belongs(self, piece: int, to: int) -> bool:
        return piece < len(self._layout.starts) and self._layout.groups[piece] == self._layout.groups[to]

    def _is_free(self, piece: int) -> bool:
        return self.free(piece, piece + 1) == (piece, piece + 1)

    def _head(self, place: int) -> None:
        """Takes the heading under which a passage stands too, if there is room for it."""
        heading = self._layout.heading_of(place)
        if heading is None:
            return
        piece = bisect_left(self._layout.starts, heading.start)
        fits = self._length(piece, piece + 1) + _MARK <= self._room
        if fits and self._is_free(piece) and self._layout.ends[piece] == heading.end:
            self._keep(piece, piece + 1)

    def _keep(self, first: int, last: int) -> None:
        insort(self._taken, (first, last))
        self._room -= self._length(first, last) + _MARK

    def _length(self, first: int, last: int) -> int:
        return self._layout.ends[last - 1] - self._layout.starts[first]
