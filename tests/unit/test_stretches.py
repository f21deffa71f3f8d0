"""A long text is looked at stretch by stretch, and gives the same as if it was looked at whole."""

from __future__ import annotations

import re
import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.text import stretches
from providers.text.stretches import STRETCH, first_in, found_in, substituted
from tools import clean, provenance, render

PATTERNS = [
    clean._LINE_END,
    clean._UNSEEN,
    clean._LONG_BLANK,
    clean._EMPTY_LINES,
    provenance._URL,
    provenance._BARE,
    render._TEMPLATE,
    render._FENCE_ID,
]
BITS = [
    "word", " ", " " * 40, "\n", "\r\n", "\n\n\n\n", "\u200b", "\u200d", "👩", "👧", "\ufe0f", "e\u0301", "<",
    "<|im_start|>", "<system>", "[INST]", "[", "[1]", "web-0123456789abcdef", "https://e.org/a?b=c", "e.org", ".", "/",
    "日本",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.pattern[:20])
@given(st.lists(st.sampled_from(BITS), max_size=40).map("".join))
def test_the_same_is_found(pattern: re.Pattern[str], text: str) -> None:
    whole = [found.span() for found in pattern.finditer(text)]
    assert [found.span() for found in found_in(pattern, text, stretch=16)] == whole


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.pattern[:20])
@given(st.integers(-60, 10), st.lists(st.sampled_from(BITS), max_size=20).map("".join))
def test_the_same_is_put_in_its_place(pattern: re.Pattern[str], shift: int, text: str) -> None:
    long = "x" * (STRETCH + shift) + text
    assert substituted(pattern, "-", long) == pattern.sub("-", long)
    first, whole = first_in(pattern, long), pattern.search(long)
    assert (first and first.span()) == (whole and whole.span())


@pytest.mark.parametrize("text", ["word and more, ", "<", "[1](", " ", ".", "\u200b", "https://e.org/ "])
def test_a_long_page_is_cleaned_in_many_steps(text: str) -> None:
    """Between two calls of C others may go on; one call for all of a page would keep them waiting."""
    page = text * (1_000_000 // len(text))
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and frame.f_code.co_filename == stretches.__file__:
            calls[called.__name__] += 1

    sys.setprofile(count)
    try:
        render.escape(clean.clean(page, len(page)))
        provenance.urls_in(page)
    finally:
        sys.setprofile(None)
    assert calls["finditer"] >= 3 * len(page) // STRETCH
