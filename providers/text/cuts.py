"""Where a text may be cut. Handed a text and the most that may be kept of it; hands on a place in it. Pure."""

from __future__ import annotations

import re

_JOINER = "\u200d"
_LONGEST_EMOJI = 40  # characters
_BOUND = re.compile(f"[{_JOINER}\ufe0e\ufe0f\u20e3\U0001f3fb-\U0001f3ff]")  # to what stands left of it


def cut(text: str, start: int, max_length: int) -> int:
    """Where a part that begins at `start` ends: after a paragraph, else a sentence, else a word, else anywhere."""
    end = start + max_length
    if end >= len(text):
        return len(text)
    earliest = start + max_length // 2
    for stop in ("\n\n", "\n", ". ", "。", " "):
        at = text.rfind(stop, earliest, end)
        if at >= 0:
            return at + len(stop)
    return max(cut_place(text, end), start + 1)


def cut_place(text: str, at: int) -> int:
    """The last place not after `at` where a cut tears no emoji apart. What is longer than any emoji is none."""
    for place in range(at, max(at - _LONGEST_EMOJI, 0), -1):
        if place >= len(text) or not (text[place - 1] == _JOINER or _BOUND.match(text[place])):
            return place
    return max(at if at > _LONGEST_EMOJI else 0, 0)
