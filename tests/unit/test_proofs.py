"""What a citation rests on: the quote, whether the page was read, and what is not there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.base import Basis
from proxy.answering.proofs import proof
from proxy.answering.source_texts import MOST_HOLDING, SourceTexts
from proxy.values.events import Proof
from proxy.values.request import LONGEST_QUOTE
from tools.ledger import MOST_GIVEN, Ledger, Source


def source(*texts: str, basis: Basis = "page") -> Source:
    ledger = Ledger()
    made = ledger.add("https://a.org/", "Title of 1871")
    for text in texts:
        made = ledger.give(made.n, text, basis)
    return made


PARIS = (
    "# Paris\n\nParis is the capital of France. It has 2,102,650 residents. The Louvre is its best known museum, and "
    "the most visited one in the world. Its river is the Seine.\n\n| year | residents |\n| 1999 | 2,125,246 |"
)


@pytest.mark.parametrize(
    ("sentence", "quote"),
    [
        ("France has Paris as its capital.", "Paris is the capital of France."),
        (
            "The capital, Paris, has 2.1 million residents",
            "Paris is the capital of France. It has 2,102,650 residents.",
        ),
        (
            "The Louvre museum is visited most",
            "The Louvre is its best known museum, and the most visited one in the world.",
        ),
        ("In 1999 it had more", "1999 | 2,125,246 |"),
        ("Nichts davon ist so.", ""),
        ("", ""),
    ],
)
def test_the_quote_is_what_matches_best(sentence: str, quote: str) -> None:
    assert proof(sentence, source(PARIS), SourceTexts()).quote == quote


def test_text_of_the_page_takes_the_place_of_what_an_engine_says() -> None:
    ledger = Ledger()
    n = ledger.add("https://a.org/", "A", "Paris, capital of France: all about it").n
    engine = ledger.give(n, "Paris, capital of France: all about it", "snippet")
    texts = SourceTexts()
    assert proof("Paris is the capital", engine, texts).quote == "Paris, capital of France: all about it"
    read = proof("Paris is the capital", ledger.give(n, PARIS, "page"), texts)
    assert (read.quote, read.basis) == ("Paris is the capital of France.", "page")


def test_a_source_that_nothing_was_given_of_proves_nothing() -> None:
    assert proof("Paris is old", source(), SourceTexts()) == Proof()


def test_what_is_not_there() -> None:
    assert proof("It had 2,102,650 residents in 1871", source(PARIS), SourceTexts()).unmatched == (), "titles count"
    assert proof("It had 9,102,650 residents", source(PARIS), SourceTexts()).unmatched == ("9,102,650",)


def test_nothing_is_said_of_texts_that_are_not_all_there() -> None:
    sentence, made = "It had 9,102,650 residents", source(PARIS)
    assert proof(sentence, made, SourceTexts(known_in_part={made.n})).unmatched == ()
    assert proof(sentence, source("word " * MOST_GIVEN), SourceTexts()).unmatched == ()


def test_long_sentences_are_cut_where_clauses_end() -> None:
    long = "Alpha beta gamma, " * 30 + "the needle of delta, " + "epsilon zeta eta, " * 30
    made = proof("needle delta", source(long), SourceTexts())
    assert "needle of delta" in made.quote
    assert made.quote.endswith(",")
    assert len(made.quote) <= LONGEST_QUOTE
    short = proof("needle delta", source(long), SourceTexts(longest_quote=150)).quote
    assert "needle of delta" in short
    assert len(short) <= 150


def test_scripts_without_blanks() -> None:
    made = proof(
        "東京は日本の首都である", source("大阪は商業の街です。東京は日本の首都です。京都は古い。"), SourceTexts()
    )
    assert made.quote == "東京は日本の首都です。"


WORDS = st.lists(
    st.sampled_from(["Paris", "river", "the", "2,102", "old", "museum", "e.g.", "大", "。", "\n", "…", '"'])
)
TEXT = WORDS.map(" ".join) | st.text(max_size=400) | WORDS.map(lambda words: "".join(words) * 40)


@given(st.lists(TEXT, max_size=3), TEXT)
def test_a_quote_is_always_a_piece_of_what_the_model_was_given(texts: list[str], sentence: str) -> None:
    made = source(*texts)
    for longest in (300, 150, 40):
        quote = proof(sentence, made, SourceTexts(longest_quote=longest)).quote
        assert len(quote) <= longest
        assert not quote or any(quote in text for text in made.given)


def test_what_never_ends_is_looked_at_in_pieces() -> None:
    """A page of one sentence, of one word, of characters that belong together: a quote costs what a sentence costs."""
    words = " ".join(f"w{number:05d}" for number in range(12_000))
    found = proof("w09001 and w09002 stand there", source(words), SourceTexts())
    assert "w09001 w09002" in found.quote
    assert found.quote in words
    for page in ("x" * 90_000, "\u200d" * 90_000, "a\u200d" * 40_000):
        assert proof(f"it says {page[:100]}", source(page), SourceTexts()).quote in page


def test_a_word_that_stands_everywhere_is_looked_up_in_few_places() -> None:
    text = SourceTexts().of(source("Ab cd. " * 10_000))
    assert {len(places) for places in text.holding.values()} == {MOST_HOLDING}
