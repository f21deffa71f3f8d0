"""A regular expression on a long text, stretch by stretch: it lets nobody else go on while it is at work, so it is
never given a megabyte at once. Handed a pattern and a text; hands on what `finditer`, `search` and `sub` would.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

STRETCH = 32 * 1024  # characters: about a millisecond
REACH = 512  # characters behind the end of a stretch that most patterns need not see beyond


def found_in(
    pattern: re.Pattern[str], text: str, start: int = 0, *, reach: int = REACH, stretch: int = STRETCH
) -> Iterator[re.Match[str]]:
    """As `finditer`, for patterns that match something. A match may be as long as it likes, if `reach` characters tell
    that it is one."""
    length = len(text)
    while start < length:
        stop = min(start + stretch, length)
        behind = start
        for found in pattern.finditer(text, start, min(stop + reach, length)):
            if found.start() >= stop:
                break
            whole = pattern.match(text, found.start()) if found.end() > stop else found  # it may go on
            yield whole or found
            behind = (whole or found).end()
            if behind > stop:
                break
        start = max(stop, behind)


def first_in(pattern: re.Pattern[str], text: str, start: int = 0) -> re.Match[str] | None:
    if len(text) - start <= STRETCH:
        return pattern.search(text, start)
    return next(found_in(pattern, text, start), None)


def substituted(
    pattern: re.Pattern[str], by: str | Callable[[re.Match[str]], str], text: str, *, reach: int = REACH
) -> str:
    """As `sub`; a string in `by` is put there as it is."""
    if len(text) <= STRETCH:
        return pattern.sub(by, text)
    pieces: list[str] = []
    at = 0
    for found in found_in(pattern, text, reach=reach):
        pieces += text[at : found.start()], by if isinstance(by, str) else by(found)
        at = found.end()
    return "".join([*pieces, text[at:]])
