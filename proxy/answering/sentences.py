"""Where sentences end. Handed a text, hands on the places of its sentences; handed what stands before and behind a full
stop, says whether a sentence ends there. The stream of an answer and the texts of sources are cut by the same rules.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from providers.text.patterns import pattern

UNSPACED_ENDS = "。！？｡"  # behind these no blank is needed
ENDS = f".!?…؟۔।॥။።{UNSPACED_ENDS}"
CLOSERS = "\"'”’»)*_）」』》"  # what may stand between the end and the blank behind it
BLANKS = " \t\u00a0\u202f\u3000"

# A run of stops is looked at once, from its first: pages have lines of thousands of dots.
_END = pattern(
    rf"(?<![{ENDS}])[{ENDS}]++[{re.escape(CLOSERS)}]*+(?=\s|\Z)|[{UNSPACED_ENDS}]+[{re.escape(CLOSERS)}]*|\n+"
)
_LAST_END = pattern(
    rf".*(?:(?<![{ENDS}])[{ENDS}]+[{re.escape(CLOSERS)}]*(?=\s)|[{UNSPACED_ENDS}][{re.escape(CLOSERS)}]*)"
)
_AROUND = " \t\r\n\u00a0\u202f\u3000#>|-*_"  # white space and Markdown that belong to no sentence
_SHORT = (
    "al approx art bspw bzw ca cap cf ch co corp dept dr ed eds e.g est exp fig figs ff gen gov hr i.e inc jr lt ltd "
    "max min mio mme mr mrs ms mt nr nos op pp para prof pt rev sec sen sog sr st u.a vgl viz vol vs z.b"
)
# The last word before a full stop: an initial, letters with stops between them, a known short form, or a number that
# begins a line.
_NO_END = pattern(
    rf"(?:(?:^|[^\w.])(?:[^\W\d_]|(?:[^\W\d_]\.)+[^\W\d_]|{'|'.join(map(re.escape, _SHORT.split()))})"
    r"|(?:^|\n)[ \t>]*\d{1,3})\.\Z",
    re.IGNORECASE,
)
_LONGEST_SHORT = 16
_MOST_STOPS = 6  # that are looked at within one sentence


class Span(NamedTuple):
    start: int
    end: int


def is_short_form(before: str) -> bool:
    """Does this end with the full stop of a word that is cut short, or of a number in front of a list item?"""
    if not before.endswith(".") or not before[-2:-1].isalnum():  # what could not be told by the pattern any faster
        return False
    return _NO_END.search(before[-_LONGEST_SHORT:]) is not None


def goes_on(follows: str) -> bool:
    """Is this the first character of what goes on with a sentence?"""
    return follows.islower() or follows in tuple(",;:")


def sentence_places(text: str) -> list[Span]:
    """All sentences of a text, line by line, without what surrounds them."""
    places: list[Span] = []
    start = 0
    for end in _END.finditer(text):
        if end[0][0] != "\n" and _is_within(text, end):
            continue
        _add(places, text, start, end.end())
        start = end.end()
    _add(places, text, start, len(text))
    return places


def last_start(line: str) -> int:
    """Where the last sentence of a line begins, that may not have ended yet."""
    end = len(line)
    for _ in range(_MOST_STOPS):
        found = _LAST_END.match(line, 0, end)
        if found is None:
            return 0
        end = len(line[: found.end()].rstrip(ENDS + CLOSERS))
        if not _is_stop_within(line, end, found.end()):
            return found.end()
    return end


def _is_within(text: str, end: re.Match[str]) -> bool:
    return _is_stop_within(text, end.start(), end.end())


def _is_stop_within(text: str, stop: int, behind: int) -> bool:
    """Does the stop at this place, with what closes behind it up to there, end no sentence?"""
    if text[stop : stop + 1] in tuple(UNSPACED_ENDS):
        return False
    while behind < len(text) and text[behind] in BLANKS:
        behind += 1
    stop += 1
    return goes_on(text[behind : behind + 1]) or is_short_form(text[max(0, stop - _LONGEST_SHORT) : stop])


def _add(places: list[Span], text: str, start: int, end: int) -> None:
    while start < end and text[start] in _AROUND:
        start += 1
    while end > start and text[end - 1] in " \t\r\n\u00a0\u202f\u3000":
        end -= 1
    if end > start:
        places.append(Span(start, end))
