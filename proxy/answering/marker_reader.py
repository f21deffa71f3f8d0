"""Reads an answer for markers: where the citer lets text pass until something in it may matter, here every character
is read. Handed text in pieces, and what passed in between; hands on text in the configured style and a `Citation` per
marker, with its proof. A decision waits (over at most 64 held characters) until no further text could change it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from tools.ledger import Source

from ..values.events import Citation, Proof, TextDelta
from ..values.markdown import LOOK_BACK, Code
from .cited_text import BLANKS as _BLANKS
from .cited_text import MOST_BLANKS as _MOST_BLANKS
from .cited_text import CitedText
from .citing_places import MOST_AHEAD, MOST_ROW, CitingPlaces, may_begin_marker
from .claims import Claims
from .marker_shapes import (
    ADDRESS,
    ADDRESS_STOP,
    BRACKET,
    BRACKET_BEGUN,
    JSON,
    JSON_BEGUN,
    LENTICULAR,
    LENTICULAR_BEGUN,
    TARGET_STOP,
    TARGETS,
    may_become_target,
)
from .proofs import proof
from .sentences import BLANKS, CLOSERS, ENDS, UNSPACED_ENDS
from .source_texts import SourceTexts

_HOLD = -1
# Held at most: the blanks before a marker (8), and `【…】` (56) or `[…]` (46) with the start of a link target (9).
_MOST_LENTICULAR = 56
_MOST_BRACKET = 46

_MARKS = r"\[\]【`~/"
_STOPS = f"{ENDS}\n"


class Special(NamedTuple):
    """What prose must be looked at for: what may begin or follow a marker, blanks at the end where these are held back,
    and, where sentences are marked, what may end one."""

    find: Callable[[str, int], re.Match[str] | None]
    stands_in: Callable[[str], object]  # a text that holds none of it goes on as it is


def _mark_in(text: str) -> bool:
    """One look for each character: a tenth of the time that a pattern of them takes."""
    return "[" in text or "]" in text or "`" in text or "~" in text or "/" in text or "【" in text


def _mark_or_blank_in(text: str) -> bool:
    return text[-1] in _BLANKS or _mark_in(text)


def _sentence_ends(behind: str = "") -> Special:
    find = re.compile(rf"[{_MARKS}{_STOPS}]{behind}").search
    return Special(find, find)


_BLANK_AT_END = rf"|[{_BLANKS}]\Z"
_SPECIALS = {
    (False, False): Special(re.compile(rf"[{_MARKS}]").search, _mark_in),
    (True, False): Special(re.compile(rf"[{_MARKS}]{_BLANK_AT_END}").search, _mark_or_blank_in),
    (False, True): _sentence_ends(),
    (True, True): _sentence_ends(_BLANK_AT_END),
}
_NOTHING = Special(re.compile(r"(?!)").search, lambda text: False)
_NOT_SPACE = re.compile(r"\S")

_STOPS_BEHIND = re.compile(rf"[{ENDS}{re.escape(CLOSERS)}]+")
_BLANKS_BEHIND = re.compile(rf"[{BLANKS}\r]{{0,{_MOST_BLANKS}}}")


def special_in(keeps_blanks: bool, *, stops: bool = False) -> Special:
    return _SPECIALS[keeps_blanks, stops]


class MarkerReader:
    """`lookup` is asked when a marker is complete. `texts` are what proofs are taken from; `written` is the text that
    people see, which this writes."""

    def __init__(self, lookup: Callable[[int], Source | None], texts: SourceTexts, written: CitedText) -> None:
        self._lookup = lookup
        self._texts = texts
        self._written = written
        self._source_of: Callable[[str], Source | None] | None = None  # where sentences are marked that have no marker
        self.special = special_in(written.keeps_blanks)  # what prose is looked at for
        self._step: Callable[[MarkerReader, str, int], int] = MarkerReader._beginning
        self.passes_all = False  # an answer that is data, all the rest of it
        self.is_plain = False  # in prose and nothing is held: text without a special character just passes
        self._ending = False
        self._code = Code()
        self._ended_before_line_feed = False  # has the sentence in front of the next line feed been looked at?
        self._needs_blank = True  # behind the stop that was read last, for a sentence to end there
        self._depth = 0  # open brackets in a link target or bare address
        self._swallowing = False
        self._tail = "\n"  # what was read last; empty after a marker, as nothing before one matters any more
        self._floor = 0  # where the memory of the text being read begins
        self._places = CitingPlaces(in_sentences=written.shows_markers)
        self._claims = Claims()
        self._proven = ""  # the sentence that was cited for last
        self._proofs: dict[int, tuple[Source, Proof]] = {}  # of it, by the number of the source
        self._told = 0  # how far the places know the text being read
        self._held = ""

    def mark_sentences(self, source_of: Callable[[str], Source | None]) -> None:
        """From here on a sentence without a marker gets that of the source which `source_of` names for it, if any."""
        self._source_of = source_of
        self.special = special_in(self._written.keeps_blanks, stops=True)

    def pass_on(self, text: str) -> None:
        """Prose without a special character, which has gone on as it is while nothing was held."""
        self._step = MarkerReader._prose
        self._places.read(text)
        self._claims.read(text)
        self._tail = (self._tail + text)[-LOOK_BACK:]
        self._written.pass_on(text)

    def read(self, text: str) -> list[TextDelta | Citation]:
        self._read(text)
        return self._written.take()

    def release(self) -> list[TextDelta | Citation]:
        """What is held back, at the end of a stretch of text. A whole answer ends with `flush`."""
        self._settle()
        self._claims.part()
        return self._written.take()

    def flush(self) -> list[TextDelta | Citation]:
        self._settle()
        self._written.put_footer()
        return self._written.take()

    def _settle(self) -> None:
        """Decides what waited for more text: there is none."""
        self._ending = True
        self._read("")
        if self._step is MarkerReader._behind_stop:
            self._step = MarkerReader._prose
            self._end_sentence("")
        self._ending = False

    def _read(self, text: str) -> None:
        i = self._told = len(self._tail)
        text = self._tail + self._held + text
        self._floor = 0
        while i < len(text) and (stop := self._step(self, text, i)) != _HOLD:
            i = stop
        self._tell(text, i)
        self._held = text[i:]
        self._tail = text[max(self._floor, i - LOOK_BACK) : i]
        if self._ending or self._step not in (MarkerReader._prose, MarkerReader._beginning):
            self._written.release_blanks()
        self.is_plain = self._step is MarkerReader._prose and not self._held and not self._written.holds_blanks

    def _tell(self, text: str, stop: int, code: bool = False) -> None:
        """The places are told what was read up to here."""
        if stop > self._told:
            self._places.read(text[self._told : stop], code)
            self._claims.read(text[self._told : stop])
            self._told = stop

    # The steps. Each is handed the text and a place in it, and says how far it read, or _HOLD: more must come first.

    def _beginning(self, text: str, i: int) -> int:
        """Only white space so far. An answer that begins like a JSON object or list is not rewritten."""
        found = _NOT_SPACE.search(text, i)
        stop = found.start() if found else len(text)
        if stop > i:
            self._written.put(text[i:stop])
            return stop
        if JSON.match(text, i, i + _MOST_BRACKET):
            self._pass_everything()
        elif not self._ending and len(text) - i < _MOST_BRACKET and JSON_BEGUN.fullmatch(text, i):
            return _HOLD
        self._step = MarkerReader._prose
        return i

    def _pass_everything(self) -> None:
        self._step = MarkerReader._prose
        self.special = _NOTHING
        self._source_of = None
        self.passes_all = True
        self._written.keeps_blanks = False

    def _prose(self, text: str, i: int) -> int:
        found = self.special.find(text, i)
        stop = found.start() if found else len(text)
        if stop > i:
            self._written.put(text[i:stop])
            return stop
        char = text[i]
        if char == "[":
            return self._bracket(text, i)
        if char == "【":
            return self._lenticular(text, i)
        if char in "`~":
            self._step = MarkerReader._in_code
            return i
        if self._source_of and char in _STOPS:
            return self._stop(text, i)
        if char == "]":
            self._step = MarkerReader._closed
        elif char == "/" and ADDRESS.search(self._before(text, i)):
            self._step, self._depth = MarkerReader._address, 0
        self._written.put(char)
        return i + 1

    def _stop(self, text: str, i: int) -> int:
        """A sentence may end behind this character, or with this line."""
        if text[i] == "\n":
            self._tell(text, i)
            if not self._ended_before_line_feed:
                self._end_sentence("\n")
            self._ended_before_line_feed = False
        else:
            self._step = MarkerReader._behind_stop
            self._needs_blank = text[i] not in UNSPACED_ENDS
        self._written.put(text[i])
        return i + 1

    def _behind_stop(self, text: str, i: int) -> int:
        """What follows decides: the first character that is not blank, on the same line."""
        if more := _STOPS_BEHIND.match(text, i):
            self._written.put(more.group())
            return more.end()
        blanks = _BLANKS_BEHIND.match(text, i)
        assert blanks is not None
        behind, count = blanks.end(), blanks.end() - i
        if behind == len(text) and count < _MOST_BLANKS and not self._ending:
            return _HOLD
        after = text[i : behind + MOST_AHEAD]
        if count < _MOST_BLANKS and (count or not self._needs_blank or after.startswith("\n")):
            self._tell(text, i)
            if self._end_sentence(after) is None:
                return _HOLD
            self._ended_before_line_feed = text.startswith("\n", behind)
        self._step = MarkerReader._prose
        return i

    def _end_sentence(self, after: str) -> bool | None:
        """Puts a marker behind the sentence that ended here, where it has none and one source plainly holds it. None:
        what stands behind it is too little to tell whether prose cites here."""
        if not self._claims.says_something():
            return False
        follows = after.lstrip(BLANKS + "\r")[:1]
        if not self._places.may_end_sentence(follows):
            return False
        ended = self._ending or len(after) >= MOST_AHEAD
        cites = not self._claims.is_marked() and self._places.cites("1", after, ended)
        if cites is None:
            return None
        source = self._source_of(self._claims.in_front()) if cites and self._source_of else None
        if source:
            self._mark(source, auto=True)
            self._claims.marked()
        self._claims.looked_at()
        return cites

    def _in_code(self, text: str, i: int) -> int:
        self._tell(text, i)
        stop = self._code.scan(text, i)
        self._tell(text, stop, code=True)
        self._written.put(text[i:stop])
        if not self._code.open:
            self._step = MarkerReader._prose
        return stop

    def _closed(self, text: str, i: int) -> int:
        """After a `]` that closed no marker: a `(` now begins the target of a link that is not ours."""
        self._step = MarkerReader._target if text[i] == "(" else MarkerReader._prose
        self._depth, self._swallowing = 0, False
        return i

    def _target(self, text: str, i: int) -> int:
        """From the `(` of a link to the `)` that closes it, at most to the end of the line."""
        found = TARGET_STOP.search(text, i)
        stop = found.end() if found else len(text)
        if found:
            self._depth += {"(": 1, ")": -1}.get(found.group(), -self._depth)
            stop = found.start() if found.group() in "\r\n" else stop
            if not self._depth:
                self._step = MarkerReader._prose
        if self._swallowing:
            self._floor = stop
        else:
            self._written.put(text[i:stop])
        return stop

    def _address(self, text: str, i: int) -> int:
        """A bare URL, up to white space, quotes, non-ASCII, or a closing bracket that it did not open."""
        found = ADDRESS_STOP.search(text, i)
        stop = found.start() if found else len(text)
        if found and found.group() in "([":
            self._depth += 1
            stop += 1
        elif found and found.group() in ")]" and self._depth:
            self._depth -= 1
            stop += 1
        elif found:
            self._step = MarkerReader._prose
        self._written.put(text[i:stop])
        return stop

    def _bracket(self, text: str, i: int) -> int:
        before = self._before(text, i)
        self._tell(text, i)
        if not may_begin_marker(before) or not self._places.may_hold_marker():
            return self._no_marker(text, i)
        marker = BRACKET.match(text, i, i + _MOST_BRACKET)
        if marker is None:
            return self._unfinished(text, i, BRACKET_BEGUN, _MOST_BRACKET)
        end = marker.end()
        opens = text.startswith("(", end)
        target = text[end + 1 : end + 9].lower() if opens else ""
        if not self._ending and (end == len(text) or (opens and may_become_target(target))):
            return _HOLD
        image = opens and before.endswith("!")
        linked = target.startswith(TARGETS)  # only prose has links: such a marker counts anywhere in it
        cites = image or linked or self._cites(marker.group(2), text, i, end)
        if not cites:
            return _HOLD if cites is None else self._no_marker(text, i)
        if image:
            self._written.put(marker.group())
        cited = not image and self._cite(marker.group(2), marker.group())
        if opens and not cited:
            self._step = MarkerReader._closed
        elif linked:
            self._step, self._depth, self._swallowing = MarkerReader._target, 0, True
        return self._marked(marker)

    def _lenticular(self, text: str, i: int) -> int:
        self._tell(text, i)
        if not self._places.may_hold_marker():
            return self._no_marker(text, i)
        marker = LENTICULAR.match(text, i, i + _MOST_LENTICULAR)
        if marker is None:
            return self._unfinished(text, i, LENTICULAR_BEGUN, _MOST_LENTICULAR)
        cites = self._cites(marker.group(1), text, i, marker.end())
        if not cites:
            return _HOLD if cites is None else self._no_marker(text, i)
        self._cite(marker.group(1), marker.group())
        return self._marked(marker)

    def _cites(self, numbers: str, text: str, i: int, end: int) -> bool | None:
        most = max(end + MOST_AHEAD, i + MOST_ROW)
        ended = self._ending or len(text) >= most
        cites = self._places.cites(numbers, text[end:most], ended)
        if cites is False and "," not in numbers and (source := self._lookup(int(numbers))):
            return self._places.lists(source, text[end:most], ended)
        return cites

    def _marked(self, marker: re.Match[str]) -> int:
        self._places.marked(marker.group())
        self._claims.marked()
        self._floor = self._told = marker.end()
        return marker.end()

    def _no_marker(self, text: str, i: int) -> int:
        self._written.put(text[i])
        return i + 1

    def _unfinished(self, text: str, i: int, begun: re.Pattern[str], most: int) -> int:
        if not self._ending and len(text) - i < most and begun.fullmatch(text, i):
            return _HOLD
        return self._no_marker(text, i)

    def _before(self, text: str, i: int) -> str:
        return text[max(self._floor, i - LOOK_BACK) : i]

    def _cite(self, numbers: str, written: str) -> bool:
        """Puts a marker for each known number. With none known the text stays as it was written."""
        sources = [(number, self._lookup(int(number))) for number in numbers.replace(" ", "").split(",")]
        if not any(source for _, source in sources):
            self._written.put(written)
            return False
        for number, source in sources:
            if source is None:
                self._written.put(f"[{number}]")
            else:
                self._mark(source)
        return True

    def _mark(self, source: Source, *, auto: bool = False) -> None:
        self._written.cite(source, self._proof(self._claims.in_front(), source), auto=auto)

    def _proof(self, sentence: str, source: Source) -> Proof:
        """Looked for once, however often a sentence cites a source: `[1][1][1]`."""
        if sentence != self._proven:
            self._proven, self._proofs = sentence, {}
        known = self._proofs.get(source.n)
        if known is None or known[0] is not source:
            known = self._proofs[source.n] = source, proof(sentence, source, self._texts)
        return known[1]
