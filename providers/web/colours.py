"""Colours as style sheets write them: handed two of them, says whether text in the one can be read on the other. Only
what is sure is told: a gradient, a picture or a variable is no colour here.
"""

from __future__ import annotations

import re
from colorsys import hls_to_rgb

Colour = tuple[int, int, int]

WHITE: Colour = (255, 255, 255)
_NAMES: dict[str, Colour] = {
    "white": WHITE, "black": (0, 0, 0), "snow": (255, 250, 250), "ivory": (255, 255, 240), "azure": (240, 255, 255),
    "whitesmoke": (245, 245, 245), "floralwhite": (255, 250, 240), "ghostwhite": (248, 248, 255),
}  # fmt: skip
_HEX = re.compile(r"#([0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})")
_NUMBERS = re.compile(r"(rgb|hsl)a?\(\s*([-+.\d]+)(%|deg)?[\s,]+([-+.\d]+)(%?)[\s,]+([-+.\d]+)(%?)")
_NEAR = 14  # of 255: closer than this nobody reads


def colour_of(value: str) -> Colour | None:
    """What a declaration's value says, if that is one colour."""
    value = value.strip().lower()
    if value in _NAMES:
        return _NAMES[value]
    if found := _HEX.fullmatch(value):
        digits = found[1]
        step = 1 if len(digits) < 6 else 2
        red, green, blue = (int(digits[at : at + step] * (3 - step), 16) for at in (0, step, 2 * step))
        return red, green, blue
    found = _NUMBERS.match(value)
    return _from_numbers(found) if found else None


def are_alike(one: Colour, other: Colour) -> bool:
    return all(abs(a - b) <= _NEAR for a, b in zip(one, other, strict=True))


def _from_numbers(found: re.Match[str]) -> Colour | None:
    try:
        first, second, third = (float(found[at]) for at in (2, 4, 6))
    except ValueError:  # dots and signs that make no number
        return None
    if found[1] == "hsl":
        shares = hls_to_rgb(first % 360 / 360, min(third, 100) / 100, min(second, 100) / 100)
        red, green, blue = (round(share * 255) for share in shares)
        return red, green, blue
    whole = 2.55 if found[3] == "%" else 1
    red, green, blue = (min(255, round(part * whole)) for part in (first, second, third))
    return red, green, blue
