"""The language that a client wants to search in, as ISO 639-1 has it. Handed an `Accept-Language` header, or a tag such
as `de-CH`; hands on two letters, or nothing where none is named.
"""

from __future__ import annotations

import re
from functools import lru_cache

ANY = "*"
_USUAL = 200  # characters of a header: longer ones are read anew each time
# Some search engines refuse what is no language, so two letters alone are not enough.
_CODES = (  # noqa: SIM905 - two hundred quoted strings read worse
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en "
    "eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv "
    "ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne "
    "ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st "
    "su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
).split()
_TAG = re.compile(r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*", re.A)
_RANGE = re.compile(
    rf"(?P<tag>\*|{_TAG.pattern})\s*(?:;\s*[qQ]=(?P<quality>0(?:\.\d{{0,3}})?|1(?:\.0{{0,3}})?))?", re.A
)


def accepted_language(header: str) -> str:
    """The language that is the most welcome of those that we know; the first of equals."""
    return _most_welcome(header) if len(header) <= _USUAL else _most_welcome.__wrapped__(header)


@lru_cache(maxsize=256)  # a client says the same every time
def _most_welcome(header: str) -> str:
    ranges = [match for part in header.split(",") if (match := _RANGE.fullmatch(part.strip()))]
    for match in sorted(ranges, key=_quality, reverse=True):
        if match["tag"] == ANY or not _quality(match):
            break  # whatever comes now is no more welcome than any other, or not at all
        if language := primary_language(match["tag"]):
            return language
    return ""


def primary_language(tag: str) -> str:
    """`de` of `de-CH`."""
    tag = tag.strip()
    primary = tag.partition("-")[0].lower()
    return primary if primary in _CODES and _TAG.fullmatch(tag) else ""


def _quality(match: re.Match[str]) -> float:
    return float(match["quality"] or 1)
