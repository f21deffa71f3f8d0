"""What can be compared exactly: numbers, dates and quotations. Handed the texts of a source, and a sentence that cites
it; hands on what of the sentence stands nowhere in them. In doubt it stands there: a number counts as found under any
reading of its commas, points and blanks, a date in any usual way of writing it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from providers.text.patterns import pattern

LARGEST_WORD = 12  # whole numbers up to here are written as words as often as not: nothing is said about them
MOST_LISTED = 8
_FEWEST_WORDS = 3  # of a quotation; fewer are a name, or words that somebody keeps at a distance
_FEWEST_UNSPACED = 8  # letters of one in a script without blanks

_GROUP = "[.,'’\u00a0\u202f\u2009 ]"
_NUMBER = pattern(rf"\d{{1,3}}(?:{_GROUP}\d{{3}})+(?:[.,]\d+)?(?!\d)|\d+(?:[.,]\d+)*")
_GROUPED_BY_TWO = pattern(r"\d{1,3}(?:,\d{2})*,\d{3}(?:\.\d+)?")  # 27,55,309 as India writes it
_GROUPED = pattern(rf"\d{{1,3}}(?:{_GROUP}\d{{3}})+")
_ANY_GROUP = pattern(_GROUP)
_ONE_NUMBER = pattern(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?:\.\d{3})*,\d+|\d{5,},\d+")
_LIST_SEPARATOR = pattern("[, \u00a0\u202f\u2009'’]")
_SEPARATOR = pattern("[ \u00a0\u202f\u2009'’]")
# A letter that a number sticks to makes it a name, but where no blanks are written.
_LETTER = "[^\\W\\d_\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]"
_IN_A_NAME = pattern(rf"{_LETTER}[-‑]?\Z|[\w#][_#/.]\Z|[#$_@/]\Z")
_MULTIPLES = {
    **dict.fromkeys(("thousand", "k", "tausend", "mille", "mil"), 3),
    **dict.fromkeys(("million", "millions", "mn", "m", "mio", "millionen", "millones", "milioni"), 6),
    **dict.fromkeys(("billion", "billions", "bn", "b", "milliarden", "mrd", "milliards", "miliardi"), 9),
    **dict.fromkeys(("trillion", "trillions", "tn", "billionen", "billones"), 12),
    **dict.fromkeys(("lakh", "lakhs"), 5),
    **dict.fromkeys(("crore", "crores"), 7),
}
_SIGNS = {
    **dict.fromkeys("千천", 3),
    **dict.fromkeys("万萬만", 4),
    **dict.fromkeys("億亿억", 8),
    **dict.fromkeys("兆조", 12),
}
_MULTIPLE_WORDS = "|".join(sorted(_MULTIPLES, key=len, reverse=True))
_MULTIPLE = pattern(rf"[ \u00a0\u202f-]?(?:({_MULTIPLE_WORDS})\b|([{''.join(_SIGNS)}]))")
_COUNTED = pattern(f"({_NUMBER.pattern})({_MULTIPLE.pattern})?")
# 3億2000万 is one number in two pieces: nothing is said about it.
_IN_PIECES = pattern(rf"[{''.join(_SIGNS)}]\d")
# As far as texts are compared, digits of all scripts are the same, and the Arabic signs between them ours. Words are
# looked for in lower case, not by patterns that ignore case: those also match letters that no `lower()` makes equal, so
# that a word which was found would not stand in its table.
_ZEROS = "٠۰०০੦૦௦౦೦൦๐໐༠၀០０"
_DIGITS = {ord(zero) + digit: str(digit) for zero in _ZEROS for digit in range(10)} | {0x066B: ".", 0x066C: ","}
_SMALL = _DIGITS | {ord("ı"): "i", ord("ſ"): "s"}

_MONTHS = (
    ("january", "jan", "januar", "janvier", "enero", "gennaio", "janeiro", "januari", "jänner"),
    ("february", "feb", "februar", "février", "febrero", "febbraio", "fevereiro", "februari"),
    ("march", "mar", "märz", "mars", "marzo", "março", "maart"),
    ("april", "apr", "avril", "abril", "aprile"),
    ("may", "mai", "mayo", "maggio", "maio", "mei"),
    ("june", "jun", "juni", "juin", "junio", "giugno", "junho"),
    ("july", "jul", "juli", "juillet", "julio", "luglio", "julho"),
    ("august", "aug", "août", "agosto", "augustus"),
    ("september", "sep", "sept", "septembre", "septiembre", "settembre", "setembro"),
    ("october", "oct", "oktober", "octobre", "octubre", "ottobre", "outubro"),
    ("november", "nov", "novembre", "noviembre", "novembro"),
    ("december", "dec", "dezember", "décembre", "diciembre", "dicembre", "dezembro"),
)
_MONTH_NUMBERS = {name: number for number, names in enumerate(_MONTHS, 1) for name in names}
_MONTH = f"({'|'.join(sorted(_MONTH_NUMBERS, key=len, reverse=True))})"
_DAY, _YEAR = r"(\d{1,2})(?:st|nd|rd|th|º|er|\.)?", r"(\d{4})"
_OF = r"\s++(?:(?:de|of)\s++)?"
_DAY_FIRST = pattern(rf"(?<!\d){_DAY}{_OF}{_MONTH}\b\.?(?:,?{_OF}{_YEAR}(?!\d))?")
_MONTH_FIRST = pattern(rf"\b{_MONTH}\.?\s++{_DAY}(?!\d)(?:,?\s++{_YEAR}(?!\d))?")
_ISO = pattern(r"(?<!\d)(\d{4})-(\d{1,2})-(\d{1,2})(?!\d)")
_CJK = pattern(r"(?<!\d)(?:(\d{4})\s?年\s?)?(\d{1,2})\s?月\s?(\d{1,2})\s?日")
_NUMERIC = pattern(r"(?<![\d./])(\d{1,2})([./])(\d{1,2})\2(\d{4})(?!\d)")

_QUOTED = pattern(
    r"“([^“”\n]+)”|„([^„“”\n]+)[“”]|«([^«»\n]+)»|「([^「」\n]+)」|『([^『』\n]+)』|(?<!\w)\"([^\"\n]+)\"(?!\w)"
)
_LEFT_OUT = pattern(r"\s*(?:\[…\]|\[\.\.\.\]|\(…\)|\(\.\.\.\)|…|\.\.\.)\s*|\[[^\]]*\]")
# The target of a link, with brackets in it as addresses have them; never one within another: each place is read once.
_MARKUP = pattern(r"[*_`\\]|\[|\]\((?:[^()\s]++|\([^()\s]*+\))*+\)|\]")
_AROUND = " .,;:!?…\"'"
_SAME = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "—": "-", "‑": "-", "\u00ad": ""})
_WORD = pattern(r"\w+")
_DIGIT = pattern(r"\d")
_UNSPACED = pattern("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")


class Date(NamedTuple):
    year: int | None
    month: int
    day: int


class _Found(NamedTuple):
    start: int
    end: int
    readings: frozenset[Date]


class ExactWords:
    """Of the texts of one source. Each kind is looked up when it is first asked for."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._text = _small("\n".join(texts))

    @cached_property
    def _numbers(self) -> frozenset[str]:
        numbers = {(found[1], found[2]) for found in _COUNTED.finditer(self._text)}  # most stand there many times
        pieces = (piece for written, _ in numbers for piece in _pieces(written))
        return frozenset(pieces).union(*(_readings(*number) for number in numbers))

    @cached_property
    def _dates(self) -> frozenset[Date]:
        return frozenset(reading for date in _dates_in(self._text) for reading in date.readings)

    @cached_property
    def _flat(self) -> str:
        return _flat(self._text)

    def read(self) -> None:
        """All that is else looked up when it is first asked for."""
        _ = self._numbers, self._dates, self._flat

    def missing(self, sentence: str) -> tuple[str, ...]:
        """What of a sentence stands nowhere here, as the sentence has it."""
        said, sentence = sentence, _small(sentence)  # of one length
        found: list[tuple[int, str]] = []
        quotations = list(_quotations(sentence))
        found += [(start, quoted) for start, quoted in quotations if not self._holds_words(quoted)]
        dates = list(_dates_in(sentence)) if _DIGIT.search(sentence) else []
        found += [(date.start, sentence[date.start : date.end]) for date in dates if not self._holds_date(date)]
        taken = [(date.start, date.end) for date in dates]
        taken += [(start, start + len(quoted)) for start, quoted in quotations]
        found += [row for row in self._missing_numbers(sentence) if not any(a <= row[0] < b for a, b in taken)]
        listed = (said[start : start + len(text)] for start, text in sorted(found))
        return tuple(dict.fromkeys(listed))[:MOST_LISTED]

    def _missing_numbers(self, sentence: str) -> Iterator[tuple[int, str]]:
        for number in _COUNTED.finditer(sentence):
            before, written = sentence[max(0, number.start() - 2) : number.start()], number[1]
            if _IN_A_NAME.search(before) or _is_few(written):
                continue
            if _IN_PIECES.search(sentence, max(0, number.start() - 1), number.end() + 1):
                continue
            if not self._holds_number(written, number[2]):
                yield number.start(), number[0]

    def _holds_number(self, written: str, multiple: str | None) -> bool:
        if not self._numbers.isdisjoint(_readings(written, multiple)):
            return True
        pieces = _pieces(written)
        return bool(pieces) and self._numbers.issuperset(pieces)

    def _holds_date(self, date: _Found) -> bool:
        if not self._dates.isdisjoint(date.readings):
            return True
        # Where one of the two names no year, the year may stand elsewhere.
        days = {(known.month, known.day) for known in self._dates if known.year is None}
        if any(reading.year is None for reading in date.readings):
            days |= {(known.month, known.day) for known in self._dates}
        return any(
            (reading.month, reading.day) in days and (reading.year is None or str(reading.year) in self._numbers)
            for reading in date.readings
        )

    def _holds_words(self, quoted: str) -> bool:
        pieces = [_flat(piece).strip(_AROUND) for piece in _LEFT_OUT.split(quoted)]
        return all(piece in self._flat for piece in pieces)


def _small(text: str) -> str:
    """In lower case and with our digits, letter for letter: a place in the one is the same place in the other."""
    return text.replace("İ", "i").lower().translate(_SMALL)  # lower() would make two of that one letter


def _is_few(written: str) -> bool:
    return written.isdecimal() and len(written) < 10 and int(written) <= LARGEST_WORD


def _readings(written: str, multiple: str | None) -> frozenset[str]:
    """All that a written number may mean: 1.234 is a thousand to some and little more than one to others."""
    readings = {_plain(written)}
    if whole := _GROUPED.match(written):
        readings.add(_plain(_ANY_GROUP.sub("", whole[0]) + written[whole.end() :]))
    if _GROUPED_BY_TWO.fullmatch(written):
        readings.add(_plain(written.replace(",", "")))
    if multiple:
        word = multiple.lstrip(" \u00a0\u202f-")
        zeros = _SIGNS.get(word) or _MULTIPLES[word]
        readings |= {_multiplied(reading, zeros) for reading in readings}
    return frozenset(readings)


def _pieces(written: str) -> list[str]:
    """The numbers of a list that looks like one number: `100 200`, `2019,2020`. None, where it is plainly one."""
    if not _SEPARATOR.search(written) and ("," not in written or _ONE_NUMBER.fullmatch(written)):
        return []
    return [_plain(piece) for piece in _LIST_SEPARATOR.split(written) if piece]


def _plain(written: str) -> str:
    """With a point for the decimals, without zeros that say nothing."""
    whole, _, decimals = written.replace(",", ".").partition(".")
    decimals = decimals.rstrip("0") if "." not in decimals else decimals
    return f"{whole.lstrip('0') or '0'}.{decimals}" if decimals else whole.lstrip("0") or "0"


def _multiplied(reading: str, zeros: int) -> str:
    whole, _, decimals = reading.partition(".")
    if len(decimals) > zeros or "." in decimals:
        return reading
    return (whole + decimals.ljust(zeros, "0")).lstrip("0") or "0"


def _dates_in(text: str) -> Iterator[_Found]:
    for found in _DAY_FIRST.finditer(text):
        yield from _dated(found, [(found[3], _MONTH_NUMBERS[found[2]], found[1])])
    for found in _MONTH_FIRST.finditer(text):
        yield from _dated(found, [(found[3], _MONTH_NUMBERS[found[1]], found[2])])
    for found in (*_ISO.finditer(text), *_CJK.finditer(text)):
        yield from _dated(found, [(found[1], found[2], found[3])])
    for found in _NUMERIC.finditer(text):
        yield from _dated(found, [(found[4], found[1], found[3]), (found[4], found[3], found[1])])


def _dated(found: re.Match[str], readings: list[tuple[str | None, str | int, str]]) -> Iterator[_Found]:
    dates = [Date(int(year) if year else None, int(month), int(day)) for year, month, day in readings]
    possible = frozenset(date for date in dates if 1 <= date.month <= 12 and 1 <= date.day <= 31)
    if possible:
        yield _Found(found.start(), found.end(), possible)


def _quotations(sentence: str) -> Iterator[tuple[int, str]]:
    for found in _QUOTED.finditer(sentence):
        quoted = next(group for group in found.groups() if group is not None)
        long = len(_UNSPACED.findall(quoted)) >= _FEWEST_UNSPACED or len(_WORD.findall(quoted)) >= _FEWEST_WORDS
        if long:
            yield found.start() + 1, quoted


def _flat(text: str) -> str:
    """For comparing words: one case, one kind of blank and of quotation mark, no Markdown."""
    return " ".join(_MARKUP.sub("", text).translate(_SAME).casefold().split())
