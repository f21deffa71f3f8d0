"""The words of a text, for comparing it with a question. Handed any text; hands on its words in one form each, so that
two texts that speak of the same thing share them. Pure.
"""

from __future__ import annotations

import re

# Scripts written without blanks count character by character.
_UNSPACED = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORD = re.compile(f"[{_UNSPACED}]|[^\\W_{_UNSPACED}]+")
# English endings, so that "checked" speaks about "check"; what is left must still look like a word.
_ENDING = re.compile(r"(?<=\w{3})(?:ations?|ings?|ed|es|(?<!s)s|e)$")
_COMMON_WORDS = (
    "a about an and any are as at be been but by can could did do does for from had has have how i if in into is it "
    "its me my no not of on or our so tell than that the their them then there these they this to us was we were what "
    "when where which who whom why will with would you your"
)
COMMON = frozenset(_COMMON_WORDS.split())


def words(text: str) -> list[str]:
    """All words, in lower case, as they follow each other."""
    return [word.casefold() for word in _WORD.findall(text)]


def terms(text: str) -> list[str]:
    """The words that carry meaning, endings cut; all words if every one is common."""
    said = words(text)
    telling = [word for word in said if word not in COMMON] or said
    return [_ENDING.sub("", word) for word in telling]
