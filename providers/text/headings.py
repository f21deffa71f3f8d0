"""Headings in lines of Markdown or reStructuredText. Handed a line and the one below it; hands on the heading that the
line is, or nothing. Who hands lines knows whether they stand in code. Pure.
"""

from __future__ import annotations

import re

_MARKED = re.compile(r" {0,3}#{1,6}[ \t]+(\S.*)")
_UNDERLINE = re.compile(r"([=\-~^#*+])\1{2,}")


def heading_in(line: str, below: str) -> str:
    """`# So`, or underlined."""
    if found := _MARKED.fullmatch(line):
        return found[1].rstrip(" \t#")
    said = line.strip()
    is_underlined = _UNDERLINE.fullmatch(below.strip()) and not _UNDERLINE.fullmatch(said)
    return said if is_underlined else ""
