"""The words of a text, for comparing it with a question. Handed any text; hands on its words in one form each, so that
two texts that speak of the same thing share them. Pure.

Scripts without blanks between words have none that could be seen: their runs of letters count as overlapping pieces.
"""

from __future__ import annotations

from .patterns import pattern

# What belongs to a word though Python's \w does not say so: accents that stand alone, vowel points, vowel signs.
_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0711\u0730-\u074a"
    "\u07a6-\u07b0\u08d3-\u08ff\u0900-\u0963\u0966-\u0df3\ua8e0-\ua8f1\u1dc0-\u1dff\u20d0-\u20f0\ufe20-\ufe2f"
)
_CHINESE_JAPANESE = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KOREAN = "\uac00-\ud7a3"
_THAI_TO_KHMER = (
    "\u0e00-\u0e3e\u0e40-\u0edf\u0f40-\u0fbc\u1000-\u1049\u1050-\u109f\u1780-\u17d3\u17e0-\u17e9\uaa60-\uaa7f"
)
_UNSPACED = _CHINESE_JAPANESE + _THAI_TO_KHMER
WORD = pattern(f"[{_CHINESE_JAPANESE}]+|[{_THAI_TO_KHMER}]+|(?:[^\\W_{_UNSPACED}]|[{_MARKS}])+")

_SYLLABLES = pattern(f"[{_CHINESE_JAPANESE}{_KOREAN}]")  # one says as much as two or three letters
_NO_BLANKS = pattern(f"[{_UNSPACED}]")

# English endings, so that "checked" speaks about "check"; what is left must still look like a word.
_ENDING = pattern(r"(?<=\w{3})(?:ations?|ings?|ed|es|(?<!s)s|e)$")
_COMMON_WORDS = (
    "a about an and any are as at be been but by can could did do does for from had has have how i if in into is it "
    "its me my no not of on or our so tell than that the their them then there these they this to us was we were what "
    "when where which who whom why will with would you your"
)
COMMON = frozenset(_COMMON_WORDS.split())


def words(text: str) -> list[str]:
    """All words in lower case as they follow each other; where no blanks part them, overlapping pieces."""
    return [
        piece for word in WORD.findall(text.casefold()) for piece in (pieces(word) if is_unspaced(word) else [word])
    ]


def terms(text: str) -> list[str]:
    """The words that carry meaning, endings cut; all words if every one is common."""
    said = words(text)
    telling = [word for word in said if word not in COMMON] or said
    return [_ENDING.sub("", word) for word in telling]


def is_unspaced(word: str) -> bool:
    """Is it of a script that writes no blanks between words?"""
    return _NO_BLANKS.match(word) is not None


def is_syllabic(word: str) -> bool:
    """Is each of its signs a syllable or a word?"""
    return _SYLLABLES.match(word) is not None


def pieces(word: str) -> list[str]:
    """What a word shares with its other forms, whatever stands before or behind: its overlapping pieces of four
    letters, or of two where a sign is a syllable."""
    length = 2 if is_syllabic(word) else 4
    return [word[at : at + length] for at in range(len(word) - length + 1)] or [word]
