"""The words that documents are found by: handed a text, hands on its words as one string for the index, apart by
blanks. A question is put in the same words. Letters count without their accents, so that `cafe` finds `café`. Pure.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

from ..text.words import terms

_ACCENT = re.compile("[\u0300-\u036f]+")
# In every script that is treated in a way of its own: when one of these comes out differently, an index is out of date.
_SAMPLE = (
    "Die Größe der Straßen, cafés and connected proxies 2026; Москва и люди, Ελλάδα, مدينة القاهرة, नई दिल्ली की सड़कें, "
    "東京タワーは電波塔です, 机器学习是什么, 서울타워는 남산에, กรุงเทพมหานครเป็นเมืองหลวง, ভাষা, தமிழ், İstanbul'da, Hà Nội"
)


def index_words(text: str) -> str:
    return " ".join(terms(_without_accents(text)))


def question_words(text: str, most: int) -> list[str]:
    """The words worth looking for, each once."""
    return list(dict.fromkeys(terms(_without_accents(text))))[:most]


def fingerprint() -> str:
    """Of the way in which words are told and compared."""
    return hashlib.sha256(index_words(_SAMPLE).encode()).hexdigest()[:16]


def _without_accents(text: str) -> str:
    if text.isascii():
        return text
    apart = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", _ACCENT.sub("", apart))
