"""Declarations of a style that keep text from being seen. Handed the text of a `style` attribute or of a rule; hands on
the properties by which it hides what it is for.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .colours import are_alike, colour_of

_NOTHING = r"(?:0+\.?0*|\.0+)"
_FAINT = r"(?:0*\.0\d*|0+\.?|\d(?:\.\d*)?%)"  # below a tenth
_FAR = r"-(?:\d{3,}|\d{2,}(?:\.\d+)?(?:r?em|ch|v[wh]))"
# One declaration by which text is not to be seen.
_HIDING = re.compile(
    rf"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|opacity\s*:\s*{_FAINT}\s*(?:!|$)"
    rf"|filter\s*:[^;]*opacity\(\s*{_FAINT}%?\s*\)|(?<![-\w])zoom\s*:\s*{_NOTHING}%?\s*(?:!|$)"
    rf"|font-size\s*:\s*(?:{_NOTHING}|0?\.\d+(?=p)|1(?=p)|0*\.[01]\d*(?=r?em)|\d(?:\.\d*)?(?=%))(?:px|pt|em|rem|%|vw)?\s*(?:!|$)"
    rf"|font\s*:[^;]{{0,60}}?(?<![\w./#-])(?:{_NOTHING}(?:px|pt|em|rem|%)?|(?:1|0?\.\d+)p[xt])(?:\s*/|\s+[a-z'\"])"
    rf"|(?:(?<![-\w])|text-fill-)color\s*:\s*(?:transparent|#[0-9a-f]{{3}}0\b|#[0-9a-f]{{6}}00\b"
    rf"|(?:rgb|hsl)a?\((?:(?:[^),/]{{0,20}},){{3}}|[^)/]{{0,60}}/)\s*{_FAINT}\s*\))"
    rf"|(?<![-\w])(?:left|right|top|bottom|text-indent)\s*:\s*{_FAR}|(?<![-\w])inset\s*:[^;]{{0,40}}{_FAR}"
    r"|margin-(?:left|top)\s*:\s*-(?:\d{4,}|[5-9]\d\d)(?![\d%])"
    r"|translate(?:[xy]|3d)?\s*\(\s*-(?:\d{4,}|\d{3,}v[wh]|\d{2,}r?em)|rotate[xy]\s*\(\s*-?(?:90|270)deg"
    r"|matrix\s*\(\s*0\s*,\s*0\s*,\s*0\s*,\s*0|clip\s*:\s*rect\(\s*[01](?:px)?[\s,]+[01](?:px)?[\s,]+[01](?:px)?[\s,]+[01]"
    rf"|clip-path\s*:\s*(?:inset\(\s*(?:50|100)%|(?:circle|ellipse)\(\s*{_NOTHING}(?:px|%|em)?[\s)]"
    r"|polygon\((?:\s*0(?:px|%)?\s*,?)+\))"
    rf"|scale(?:[xy]|3d)?\s*\(\s*{_NOTHING}\s*[,)]|(?<![-\w])scale\s*:\s*{_NOTHING}\s*(?:!|$)",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_ESCAPED = re.compile(r"\\([0-9a-f]{1,6})[ \t\r\n\f]?", re.IGNORECASE)
_PAINTED = re.compile(r"background-clip\s*:\s*text", re.IGNORECASE)
_INKS = {"color", "-webkit-text-fill-color"}
_NO_ROOM = re.compile(r"(?:^|[;\s])(?:max-)?(?:width|height)\s*:\s*[01](?:px)?\s*(?:[;!]|$)", re.IGNORECASE)
_CLIPPED = re.compile(r"overflow(?:-[xy])?\s*:\s*(?:hidden|clip)", re.IGNORECASE)
_INK = re.compile(r"(?:^|[;\s])color\s*:\s*([^;!]+)", re.IGNORECASE)
_PAPER = re.compile(r"background(?:-color)?\s*:\s*([^;!]+)", re.IGNORECASE)


def plain_style(text: str) -> str:
    """A style without comments, and with letters where it writes them as escapes."""
    text = _COMMENT.sub("", text)
    return _ESCAPED.sub(_letter, text) if "\\" in text else text


def _letter(escaped: re.Match[str]) -> str:
    code = int(escaped[1], 16)
    return chr(code) if code < 128 and (chr(code).isalnum() or chr(code) == "-") else escaped[0]


@lru_cache(1000)  # rules of a sheet are looked at twice, and elements of a page are alike
def ways_to_hide(style: str) -> frozenset[str]:
    """The properties by which these declarations, in plain style, hide what they are for."""
    ways = {property_of(part) for part in style.split(";") if _HIDING.search(part)}
    if "gradient(" in style and _PAINTED.search(style):  # the letters are holes through which it shows
        ways -= _INKS
    if (room := _NO_ROOM.search(style)) and _CLIPPED.search(style):
        ways.add(property_of(room[0].lstrip(";")))
    if "background" in style and _is_one_colour(style):
        ways.add("color")
    return frozenset(ways)


def ink_of(style: str) -> str:
    found = _INK.search(style)
    return found[1].strip() if found else ""


def paper_of(style: str) -> str:
    found = _PAPER.search(style)
    return found[1].strip() if found else ""


def property_of(declaration: str) -> str:
    return declaration.partition(":")[0].strip().lower()


def _is_one_colour(style: str) -> bool:
    ink, paper = ink_of(style), paper_of(style)
    if not ink or not paper:
        return False
    one, other = colour_of(ink), colour_of(paper)
    return are_alike(one, other) if one and other else ink.lower() == paper.lower()
