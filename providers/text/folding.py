"""Text in the form in which it is searched: lower case, and letters made equal that are the same to whoever asks.
Handed a text and the query; hands on the text folded, letter for letter, so that a place in the one is the same place
in the other. Pure.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from .patterns import pattern

_ACCENTED_LATIN = pattern("[\u00e0-\u00f6\u00f8-\u017f\u01a1\u01b0\u0219\u021b\u1e00-\u1eff]")
_ACCENTED_GREEK = pattern("[άέήίόύώϊΐϋΰ\u1f00-\u1fff]")
_GREEK = pattern("[\u0370-\u03ff\u1f00-\u1fff]")
_ARABIC = pattern("[\u0600-\u06ff]")
_ARABIC_LETTERS = (
    ("\u0623", "\u0627"),  # alef with hamza above, below, with madda, with wasla
    ("\u0625", "\u0627"),
    ("\u0622", "\u0627"),
    ("\u0671", "\u0627"),
    ("\u0649", "\u064a"),  # alef maksura, and the Persian forms of yeh and kaf
    ("\u06cc", "\u064a"),
    ("\u06a9", "\u0643"),
)
_STROKED = {"đ": "d", "ø": "o", "ł": "l"}  # which Unicode takes for letters of their own


def folded(text: str, query: str) -> str:
    """The text as it is searched for this query. One that is written without accents finds words with them; where it
    has some, they count."""
    text = text.replace("İ", "i").lower()  # the one letter that lower() would make two
    if text.isascii():
        return text
    text = text.replace("ı", "i")
    if query.isascii():
        text = _ACCENTED_LATIN.sub(_plain, text)
    if _GREEK.search(query):  # the accent moves when a word is inflected
        text = _ACCENTED_GREEK.sub(_plain, text).replace("ς", "σ")
    if _ARABIC.search(query):
        for letter, same in _ARABIC_LETTERS:
            text = text.replace(letter, same)
    return text.replace("ё", "е")


def _plain(found: re.Match[str]) -> str:
    return _base(found[0])


@cache
def _base(letter: str) -> str:
    return _STROKED.get(letter) or unicodedata.normalize("NFD", letter)[0]
