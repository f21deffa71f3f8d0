"""Thinking inside the text: told apart whatever the pieces, and only where it begins the answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.upstreams.thinking import ThoughtReader, without_thinking

CASES = [
    ("<think>hm [1]</think>\n\nBlue [1].", "hm [1]", "Blue [1]."),
    ("\n<think>\nhm\n</think>Blue.", "\nhm\n", "Blue."),
    ("<thinking>a < b </thin </thinking> c", "a < b </thin ", "c"),
    ("[THINK]x[/THINK]y", "x", "y"),
    ("<think></think>y", "", "y"),
    ("<think>never closed", "never closed", ""),
    ("Write <think> in HTML </think>.", "", "Write <think> in HTML </think>."),
    ("`<think>`", "", "`<think>`"),
    ("<thin", "", "<thin"),
    ("<thinker>x", "", "<thinker>x"),
    ("  two blanks", "", "  two blanks"),
    (" " * 1000 + "<think>x</think>y", "x", "y"),
    (" " * 1001 + "<think>x</think>y", "", " " * 1001 + "<think>x</think>y"),
    ("", "", ""),
]


def read(pieces: list[str]) -> tuple[str, str]:
    reader = ThoughtReader()
    found = [piece for text in pieces for piece in reader.feed(text)] + reader.flush()
    assert all(text for _, text in found)
    return tuple("".join(text for kind, text in found if kind == wanted) for wanted in ("thought", "answer"))  # type: ignore[return-value]


@pytest.mark.parametrize(("text", "thought", "answer"), CASES)
def test_whole_by_character_and_cut_at_every_place(text: str, thought: str, answer: str) -> None:
    assert read([text]) == read(list(text)) == (thought, answer)
    for at in range(len(text)):
        assert read([text[:at], text[at:]]) == (thought, answer)


@given(st.lists(st.sampled_from(["<think>", "</think>", "<", "th", "ink>", "x", " ", "\n", "[THINK]"]), max_size=12))
def test_pieces_do_not_matter(pieces: list[str]) -> None:
    assert read(pieces) == read(["".join(pieces)]) == read(list("".join(pieces)))


def test_thought_goes_on_at_once() -> None:
    reader = ThoughtReader()
    assert reader.feed("<think>one two") == [("thought", "one two")]
    assert reader.feed(" three<") == [("thought", " three")], "only what could be the tag waits"
    assert reader.feed("/think>four") == [("answer", "four")]
    assert reader.done


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("<think>a</think>\n\nb", "b"),
        ("a, as the template opened it\n</think>\n\nb", "b"),
        ("no thought", "no thought"),
        ("[THINK]a[/THINK]b", "b"),
    ],
)
def test_thinking_is_no_history(text: str, kept: str) -> None:
    assert without_thinking(text) == kept
