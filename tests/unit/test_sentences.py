"""Where sentences end, and which one a marker speaks for."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.answering.claims import MOST_REMEMBERED, Claims
from proxy.answering.sentences import last_start, sentence_places

SENTENCES = {
    "two": ("Paris is big. Rome is old.", ["Paris is big.", "Rome is old."]),
    "short forms": ("Dr. Who met J. R. Smith, e.g. in the U.S. Navy. Then he left.", 2),
    "numbers": ("It is 3.5 m. high or so. Version 2.0 came.", 2),
    "quotation": ("“We go.” They went! Why? Because…", ["“We go.”", "They went!", "Why?", "Because…"]),
    "goes on": ("Yahoo! and others were there. End.", ["Yahoo! and others were there.", "End."]),
    "lines": ("# Head\n\n- one\n- two\n", ["Head", "one", "two"]),
    "Japanese": ("首都です。東京は大きい！はい", ["首都です。", "東京は大きい！", "はい"]),
    "Hindi": ("यह बड़ा है। वह छोटा है।", ["यह बड़ा है।", "वह छोटा है।"]),
    "emphasis": ("**Paris is big.** Rome is old.", ["Paris is big.**", "Rome is old."]),
    "nothing": (" \n\n* \n", []),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_sentences_of_a_text(name: str) -> None:
    text, wanted = SENTENCES[name]
    found = [text[start:end] for start, end in sentence_places(text)]
    assert (len(found) if isinstance(wanted, int) else found) == wanted


@given(st.text(alphabet='aB 1.!?。\n"*-e…', max_size=60))
def test_sentences_stand_in_their_order_and_hold_all_words(text: str) -> None:
    places = sentence_places(text)
    assert all(a.end <= b.start for a, b in pairwise(places))
    said = "".join(text[start:end] for start, end in places)
    assert [char for char in said if char.isalnum()] == [char for char in text if char.isalnum()]


@given(st.text(alphabet='aB 1.!?。"*', max_size=60))
def test_the_last_sentence_is_one_that_a_text_has(line: str) -> None:
    start = last_start(line)
    assert 0 <= start <= len(line)
    assert start == 0 or line[start - 1] not in "aB1 "


# In «» stands a marker; the claim is what stands in front of the end of the text.
CLAIMS = {
    "Paris is big": "Paris is big",
    "Paris is big. ": "Paris is big.",
    "Paris is big. Rome is old ": "Rome is old",
    "Paris is big. Rome is old.": "Rome is old.",
    "Paris is big. « »": "Paris is big.",
    "Paris is big. «» Rome is old": "Rome is old",
    "Paris has 2 million people « », Rome has 3 million": ", Rome has 3 million",
    "Paris is big «» and old": "Paris is big and old",
    "Paris is big «», «» ": "Paris is big",
    "Above.\n- Rome, the old one ": "- Rome, the old one",
    "首都です。東京は大きい": "東京は大きい",
    "": "",
    "«» ": "",
}


@pytest.mark.parametrize("text", CLAIMS)
def test_what_a_marker_speaks_for(text: str) -> None:
    claims = Claims()
    for char in text:
        if char == "«":
            claims.marked()
        elif char != "»":
            claims.read(char)
    assert claims.in_front() == CLAIMS[text]


def test_whose_marker_it_is() -> None:
    claims = Claims()
    claims.read("Paris is big ")
    assert not claims.is_marked()
    claims.marked()
    claims.read(".")
    assert claims.is_marked()
    claims.read(" Rome is old.")
    assert not claims.is_marked()
    claims.read(" ")
    claims.marked()
    assert claims.is_marked()


def test_no_more_is_remembered_than_needed() -> None:
    claims = Claims()
    claims.read("word " * 1000)
    assert len(claims.in_front()) <= MOST_REMEMBERED
    claims.read("one\x1ftwo")
    assert not claims.is_marked(), "what a model writes is no marker of ours"


def test_lines_of_dots_are_read_once() -> None:
    """Each of these took minutes when every dot was looked at from every other."""
    assert sentence_places("." * 100_000 + "x") == [(0, 100_001)]
    assert sentence_places("." * 50_000 + ")" * 50_000 + "x") == [(0, 100_001)]
    assert len(sentence_places(".)" * 50_000 + " One. Two.")) == 3
