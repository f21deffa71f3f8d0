"""Takes out of web text what a reader cannot see and a model would obey. Handed any string a provider gave; hands on
NFC text without invisible, private or control characters, of bounded length. Idempotent, linear, never raises.
"""

from __future__ import annotations

import re
import unicodedata

import orjson

from providers.text.cuts import cut_place
from providers.text.patterns import pattern
from providers.text.stretches import STRETCH, first_in, substituted

LINE = 2000  # longer lines are broken at a blank: nobody reads them, and they hide text from people who look

_JOINER = "\u200d"
_EMOJI = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u231a-\u23ff\u24c2\u25a0-\u27bf\u2934\u2935\u2b00-\u2bff"
    "\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_INVISIBLE = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # C0 and C1 without tab and line ends
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen, joiners, fillers
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"  # zero width, bidi
    "\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # of hieroglyphs, shorthand and music
    "\ufe00-\ufe0f"  # variation selectors; those inside emoji are matched before
    "\ud800-\udfff\ue000-\uf8ff"  # lone surrogates, private use
    "\U000e0000-\U0010ffff"  # tags, more variation selectors, private use
)
_ONE_EMOJI = f"[{_EMOJI}][\ufe0e\ufe0f]?[\U0001f3fb-\U0001f3ff]?"
# A joined emoji has at most 8 parts, so that a place to cut is never far away.
_UNSEEN = pattern(f"({_ONE_EMOJI}(?:{_JOINER}{_ONE_EMOJI}){{0,7}}|[0-9#*]\ufe0f\u20e3)|[{_INVISIBLE}]+")
_SUSPECT = pattern(f"[{_INVISIBLE}]")
_LINE_END = pattern("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
_LONG_BLANK = pattern(r"(?<=\S)[^\S\n]{33,}|[^\S\n]{121,}")  # between words, and before the first: code is indented
_MOST_MARKS = 30  # on one letter, as Unicode's stream-safe text has them; more are only there to be drawn over others
_MANY_SIGNS = pattern(rf"[^\w\s\x00-\x7f]{{{_MOST_MARKS + 1},}}")  # marks are neither letters nor blanks
_MARKS_THAT_BEGIN_NOTHING = "\u0f73\u0f75\u0f81"  # which become two marks
_NEAR = 1000  # characters behind a stretch in which a place to cut is looked for
_EMPTY_LINES = pattern(r"\n{3,}")


def clean(text: str, max_length: int) -> str:
    """The visible text, at most `max_length` characters of it."""
    text = substituted(_LINE_END, "\n", text)
    if not text.isascii():
        text = _composed(text)
    if first_in(_SUSPECT, text):  # most pages hold none, and looking is cheaper than replacing
        text = substituted(_UNSEEN, lambda found: found[1] or "", text)
        text = _composed(text)  # what was held apart may compose now
    text = substituted(_LONG_BLANK, " ", text)
    text = "\n".join(_short_lines(text))
    text = substituted(_EMPTY_LINES, "\n\n", text).strip()
    return text if len(text) <= max_length else text[: cut_place(text, max_length)].rstrip()


def one_line(text: str, max_length: int) -> str:
    """The same for a title or a snippet: line ends become blanks, so that no line of it can pass for one of ours."""
    # A service may send megabytes where a sentence belongs: what is far beyond the limit is not even looked at.
    if len(text) > max_length * 8:
        text = text[: max_length * 8]
    if len(text) <= LINE and _is_plain(text):  # as most are: then nothing has to be taken out
        flat = " ".join(text.split()) if "  " in text else text.strip(" ")
    else:
        flat = " ".join(clean(text, max_length * 8).split())
    return flat if len(flat) <= max_length else flat[: cut_place(flat, max_length - 1)].rstrip() + "…"


def _is_plain(text: str) -> bool:
    """Is it printable ASCII alone? JSON writes control characters, quotation marks and backslashes longer than they
    are. A text that stays as long holds none of them, and to write it is eight times as fast as `isprintable`."""
    if not text.isascii() or "\x7f" in text:
        return False
    return len(orjson.dumps(text)) == len(text) + 2 or text.isprintable()


def _composed(text: str) -> str:
    """In NFC, stretch by stretch. Python sorts the marks on a letter in the square of their number: more than a letter
    can have are left out before."""
    text = substituted(_MANY_SIGNS, _with_few_marks, text)
    pieces, start = [], 0
    while start < len(text):
        stop = start + STRETCH
        while stop < min(len(text), start + STRETCH + _NEAR) and _may_compose(text[stop]):
            stop += 1
        pieces.append(unicodedata.normalize("NFC", text[start:stop]))
        start = stop
    return "".join(pieces)


def _may_compose(character: str) -> bool:
    """With what stands before it: a mark, or a letter of a Korean syllable that is not its first."""
    return unicodedata.category(character).startswith("M") or "\u1160" <= character <= "\u11ff"


def _with_few_marks(signs: re.Match[str]) -> str:
    kept, marks = [], 0
    for sign in signs[0]:
        marks = marks + 1 if unicodedata.combining(sign) or sign in _MARKS_THAT_BEGIN_NOTHING else 0
        if marks <= _MOST_MARKS:
            kept.append(sign)
    return "".join(kept)


def _short_lines(text: str) -> list[str]:
    lines = []
    for line in text.split("\n"):
        line = line.rstrip()
        if len(line) <= LINE:
            lines.append(line)
            continue
        start = 0
        while len(line) - start > LINE:
            end = line.rfind(" ", start + LINE // 2, start + LINE + 1)
            if end < 0:
                end = max(cut_place(line, start + LINE), start + 1)
            lines.append(line[start:end].rstrip())
            start = end
            while line[start].isspace():
                start += 1
        lines.append(line[start:])
    return lines
