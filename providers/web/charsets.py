"""Which character set a text is in that names none. Handed bytes that are no UTF-8; hands on the name of a codec.

Words of Latin letters hold few bytes beyond ASCII, words of other scripts hardly any within it: that tells them apart.
Between the charsets of other scripts `charset_normalizer` decides; between those of Latin letters it errs too often, so
there the letters decide that a language has of its own. What cannot be told is windows-1252, as browsers take it:
Vietnamese, a line or two of Romanian or Lithuanian; Greek in ISO 8859-7 loses a capital letter now and then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

USUAL = "cp1252"
SAMPLE = 20_000  # bytes: enough to tell, and some milliseconds of work
# A script that does not end goes on to the end, as it does to browsers; looking again from each one would take forever.
_TAGS = re.compile(rb"<(?:script|style)\b.*?(?:</(?:script|style)|\Z)|<[^<>]*>", re.IGNORECASE | re.DOTALL)
_WORD = re.compile(rb"[A-Za-z\x80-\xff]*[\x80-\xff][A-Za-z\x80-\xff]*")
_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")
_TEXT_BEYOND_ASCII = re.compile(rb"[^\r\n<>]*[\x80-\xff][^\r\n<>]*")
_LATIN_SHARE = 0.5  # of the bytes of a word: Vietnamese stays below it, Japanese in Shift-JIS above
_SHORT = 4  # bytes: an accented word of one letter, or one with an apostrophe, says nothing about its script
_PUNCTUATION = bytes(
    [*range(0x82, 0x88), 0x8B, *range(0x91, 0x98), 0x9B, 0xA0, 0xA7, 0xA9, 0xAB, 0xAE, 0xB0, 0xB7, 0xBB]
)

_OTHER_SCRIPTS = [
    "cp932", "euc_jp", "cp949", "gb18030", "big5hkscs",  # Japanese, Korean, Chinese
    "cp1251", "koi8_r", "koi8_u", "iso8859_5",  # Cyrillic
    "cp1253", "iso8859_7", "cp1255", "cp1256", "iso8859_6", "cp874",  # Greek, Hebrew, Arabic, Thai
]  # fmt: skip
# The letters beyond ASCII of each language, by the charsets that it is written in. The first of equals wins.
_LATIN: Mapping[str, tuple[str, ...]] = {
    "cp1252": (
        "äöüß", "àâæçéèêëîïôœùûüÿ", "áéíóúüñ", "áâãàçéêíóôõúü", "åäöé", "æøåéäö", "àèéìîòù", "éèëïóöü", "áðéíóúýþæö",
        "àçèéíïòóúü",
    ),
    "cp1250": ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "ăâîşţ", "čćđšž"),
    "iso8859_2": ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "ăâîşţ", "čćđšž"),
    "cp1254": ("çğıöşü",),
    "cp1257": ("ąčęėįšųūž", "āčēģīķļņšūž", "äöõüšž"),
}  # fmt: skip


def charset_of(body: bytes) -> str:
    sample = _sample(body)
    words = _WORD.findall(sample)
    telling = b"".join(word for word in words if len(word) >= _SHORT)
    if len(_BEYOND_ASCII.findall(telling)) > _LATIN_SHARE * len(telling):
        return _of_another_script(sample)
    return _of_latin_letters(b"".join(words).translate(None, _PUNCTUATION))


def _sample(body: bytes) -> bytes:
    """What a reader sees, as far as it is not all ASCII. No charset here has a `<` or `>` inside a character."""
    pieces: list[bytes] = []
    length = 0
    for piece in _pieces(body):
        pieces.append(piece)
        length += len(piece)
        if length > SAMPLE:
            break
    return b"\n".join(pieces)[:SAMPLE]  # which may cut a character: see `_of_another_script`


def _pieces(body: bytes) -> Iterator[bytes]:
    return (found[0] for found in _TEXT_BEYOND_ASCII.finditer(_TAGS.sub(b"\n", body)))


def _of_another_script(sample: bytes) -> str:
    from charset_normalizer import from_bytes

    for cut in range(4):  # bytes of a character that the sample's end tears apart
        best = from_bytes(sample[: len(sample) - cut], cp_isolation=_OTHER_SCRIPTS).best()
        if best is not None:
            return best.encoding
    return USUAL


def _of_latin_letters(words: bytes) -> str:
    best, most = USUAL, 0.0
    for charset, languages in _LATIN.items():
        letters = [letter for letter in words.decode(charset, "replace").lower() if not letter.isascii()]
        fits = max(sum(letter in language for letter in letters) for language in languages)
        if fits > most:
            best, most = charset, fits
    return best
