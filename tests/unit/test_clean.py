"""The cleaner: nothing invisible survives, what people see does, twice is the same as once."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.clean import LINE, clean, one_line

FORBIDDEN = (
    set(range(0xE0000, 0xE0080))
    | set(range(0x09))
    | set(range(0x0B, 0x20))
    | set(range(0x7F, 0xA0))
    | set(range(0xD800, 0xF900))
    | {0x00AD, 0x061C, 0x180E, 0x2028, 0x2029, 0xFEFF}
    | set(range(0x200B, 0x200D))
    | {0x200E, 0x200F}
    | set(range(0x202A, 0x202F))
    | set(range(0x2060, 0x2070))
    | set(range(0xFE00, 0xFE0E))
    | set(range(0xE0100, 0xE01F0))
    | set(range(0xF0000, 0x110000))
)

JOINERS = "\u200d\ufe0f\ufe0e👩🏽❤←\u0338\u2329e\u0301\u034f\u200b1\u20e3\U000e0041\u202e가\u115f"
SPICE = st.sampled_from([*JOINERS, " ", "\n", "\r", "\t", "\u00a0", "\ud83d", "x" * 300, " " * 40, "\n" * 5])
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=200),
    st.lists(SPICE, max_size=60).map("".join),
)


@given(TEXTS, st.integers(0, 3000))
@settings(max_examples=200)
def test_idempotent_bounded_and_without_forbidden_characters(text: str, max_length: int) -> None:
    once = clean(text, max_length)
    assert clean(once, max_length) == once
    assert len(once) <= max_length
    assert not FORBIDDEN & {ord(c) for c in once}
    assert unicodedata.is_normalized("NFC", once)
    assert all(len(line) <= LINE for line in once.split("\n"))
    once.encode()


@given(TEXTS, st.integers(1, 300))
@settings(max_examples=100)
def test_one_line_is_one_line(text: str, max_length: int) -> None:
    line = one_line(text, max_length)
    assert len(line) <= max_length
    assert "\n" not in line
    assert not FORBIDDEN & {ord(c) for c in line}


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)).map(lambda text: text * 3), st.integers(1, 60))
def test_a_plain_line_needs_no_cleaning(text: str, max_length: int) -> None:
    """The short way gives what the long one does."""
    long_way = " ".join(clean(text[: max_length * 8], max_length * 8).split())
    shown = one_line(text, max_length)
    assert shown == long_way if len(long_way) <= max_length else shown.endswith("…")


@pytest.mark.parametrize(
    ("dirty", "seen"),
    [
        ("plain text", "plain text"),
        ("ig\u200bno\u200dre", "ignore"),
        ("a\u202eb\u2066c\u2069", "abc"),
        ("hidden" + "".join(chr(0xE0000 + ord(c)) for c in "obey me"), "hidden"),
        ("soft\u00adhyphen", "softhyphen"),
        ("bell\x07 and nul\x00", "bell and nul"),
        ("one\r\ntwo\rthree\u2028four\x0cfive", "one\ntwo\nthree\nfour\nfive"),
        ("e\u0301", "é"),
        ("e\u200b\u0301", "é"),
        ("lone \ud800 surrogate", "lone  surrogate"),
        ("private \ue000\U000f0001 use", "private  use"),
        ("a\ufe0f selector", "a selector"),
        (
            "👩\u200d👩\u200d👧\u200d👦 ❤\ufe0f 👍🏽 1\ufe0f\u20e3",
            "👩\u200d👩\u200d👧\u200d👦 ❤\ufe0f 👍🏽 1\ufe0f\u20e3",
        ),
        ("👩\u200d x", "👩 x"),
        ("日本語。مرحبا ñ", "日本語。مرحبا ñ"),
        ("a\n\n\n\n\nb", "a\n\nb"),
        ("a" + " " * 500 + "b", "a b"),
        ("f(a,\n" + " " * 60 + "b)", "f(a,\n" + " " * 60 + "b)"),
        ("a\n" + " " * 500 + "b", "a\n b"),
        ("    code stays indented\n\tand tabbed", "code stays indented\n\tand tabbed"),
        ("x  \ny", "x\ny"),
    ],
)
def test_what_people_see_stays(dirty: str, seen: str) -> None:
    assert clean(dirty, 1000) == seen


def test_cut_does_not_tear_an_emoji() -> None:
    assert clean("ab👩\u200d👧", 4) == "ab"
    assert clean("ab❤\ufe0f", 3) == "ab"


def test_long_lines_break_at_a_blank() -> None:
    lines = clean("word " * 2000, 20_000).split("\n")
    assert len(lines) > 4
    assert all(set(line.split(" ")) == {"word"} for line in lines)


@pytest.mark.parametrize("unit", ["a", " ", "\n", "\u200b", "👩\u200d", "e\u0301", "a \n", "\t", "中", "1\ufe0f"])
def test_linear(unit: str) -> None:
    text = unit * (400_000 // len(unit))
    started = time.perf_counter()
    clean(text, 1_000_000)
    assert time.perf_counter() - started < 5  # a quadratic pass would take minutes
