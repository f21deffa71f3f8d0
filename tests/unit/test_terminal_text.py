"""Texts of others on a terminal: what is taken out, what stays, and the room that they take."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cli.terminal_text import cells, cut_to, harmless, harmless_json, linked, title, wrapped

OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@given(st.text(), st.text())
def test_harmless_text_may_come_in_pieces(one: str, other: str) -> None:
    assert harmless(one) + harmless(other) == harmless(one + other)
    assert not OBEYED.search(harmless(one))


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner, max_size=3)))
def test_json_says_the_same(value: object) -> None:
    shown = harmless_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(shown) == value
    assert not OBEYED.search(shown)


@pytest.mark.parametrize("text", ["中文 🎉 👩‍👩‍👧 naïve\tα\n", "عربي‌", "x\u200ay"])
def test_what_scripts_need_stays(text: str) -> None:
    assert harmless(text) == text


def test_links() -> None:
    assert linked("https://a.example/x") == "\x1b]8;;https://a.example/x\x1b\\https://a.example/x\x1b]8;;\x1b\\"
    for url in (
        "local:docs/x.md",
        "javascript:alert(1)",
        "https://a.example/\x1b\\x",
        "https://a.example/ä",
        "file:///x",
    ):
        assert "\x1b" not in linked(url)


def test_titles_are_one_line() -> None:
    assert title("a\nb\x1b[2Jc") == "a b[2Jc"


@given(st.text("ab 中🎉é\u0301", max_size=30), st.integers(0, 20))
def test_cut_texts_have_room(text: str, room: int) -> None:
    cut = cut_to(text, room)
    assert cells(cut) <= room
    assert cut == text or cut == "" or cut.endswith("…")


@given(st.text("abc 中🎉", max_size=80), st.integers(1, 40))
def test_wrapped_lines_hold_every_character_and_have_room(text: str, columns: int) -> None:
    lines = wrapped(text, columns, "  ")
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(line.startswith("  ") and cells(line) <= max(columns, 10) for line in lines)
