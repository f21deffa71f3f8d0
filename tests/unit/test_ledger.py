"""The ledger: one number per page, counted on from what the conversation already uses."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.base import Basis
from providers.urls import canonical, encode_url
from tools.ledger import MOST_GIVEN, MOST_KEPT, KnownSource, Ledger, Source, joined


def test_numbers_count_on_from_the_highest_taken() -> None:
    ledger = Ledger(highest=7)
    assert [ledger.add(f"https://e.org/{page}").n for page in "abc"] == [8, 9, 10]


@pytest.mark.parametrize(
    "other",
    [
        "https://www.Example.org/a/",
        "http://example.org/a",
        "https://example.org:443/a#part",
        " https://example.org/a ",
    ],
)
def test_the_same_page_keeps_its_number(other: str) -> None:
    ledger = Ledger()
    first = ledger.add("https://example.org/a", "Title")
    assert ledger.add(other).n == first.n
    assert len(ledger) == 1


def test_another_query_is_another_page() -> None:
    ledger = Ledger()
    assert ledger.add("https://e.org/a?x=1").n != ledger.add("https://e.org/a?x=2").n


def test_gaps_are_filled_and_nothing_is_overwritten() -> None:
    ledger = Ledger()
    assert ledger.add("https://www.example.org/a").title == "example.org"
    assert ledger.add("https://example.org/a", "  A \n title ", "snippet", "2026-01-01").title == "A title"
    last = ledger.add("https://example.org/a", "Other", "other", "2025-01-01")
    assert (last.title, last.snippet, last.date) == ("A title", "snippet", "2026-01-01")
    assert ledger.get(1) == last


def test_a_redirect_keeps_the_number_of_the_url_that_was_asked_for() -> None:
    ledger = Ledger()
    asked, other = ledger.add("https://short.org/x"), ledger.add("https://long.org/page")
    assert ledger.add("https://short.org/x", final_url="https://long.org/page").n == asked.n
    assert ledger.add("https://long.org/page").n == other.n


def test_a_redirect_to_a_known_page_takes_its_number() -> None:
    ledger = Ledger()
    known = ledger.add("https://long.org/page")
    assert ledger.add("https://short.org/x", final_url="https://long.org/page").n == known.n
    assert ledger.add("https://short.org/x").n == known.n


def test_a_new_page_is_known_under_both_urls() -> None:
    ledger = Ledger()
    source = ledger.add("https://short.org/x", "T", final_url="https://long.org/page")
    assert source.url == "https://short.org/x"
    assert ledger.add("https://long.org/page").n == source.n


def test_restored_numbers_are_kept_and_new_ones_come_after() -> None:
    ledger = Ledger()
    ledger.restore(4, "https://e.org/old", "Old")
    ledger.restore(4, "https://e.org/thief")
    ledger.restore(5, "https://e.org/old")
    assert ledger.get(4) is not None
    assert [source.url for source in ledger] == ["https://e.org/old"]
    assert ledger.add("https://e.org/old").n == 4
    assert ledger.add("https://e.org/new").n == 5


@pytest.mark.parametrize(
    "url", ["http://[bad", "http://[::1/x", "javascript:alert(1)", "http://a\ud800b/", "local:a b"]
)
def test_no_url_breaks_it(url: str) -> None:
    ledger = Ledger()
    source = ledger.add(url)
    assert ledger.add(url).n == source.n == 1
    source.url.encode()
    assert isinstance(source.host, str)


def test_urls_are_safe_in_a_markdown_link_and_encoded_once() -> None:
    url = "https://e.org/a b_(c)?q=<x>&r=%20"
    encoded = encode_url(url)
    assert encoded == "https://e.org/a%20b_%28c%29?q=%3Cx%3E&r=%20"
    assert encode_url(encoded) == encoded
    assert canonical(url) == canonical(encoded)


def test_local_documents_are_cited_without_a_link() -> None:
    source = Ledger().add("local:docs/guide.md", "Guide")
    assert not source.linkable
    assert Ledger().add("https://e.org").linkable


# What the model was given of a source


def test_what_the_page_says_takes_the_place_of_what_an_engine_says() -> None:
    ledger = Ledger()
    n = ledger.add("https://e.org/a", "A", "an engine's line").n
    assert ledger.give(n, "an engine's line", "snippet").given == ("an engine's line",)
    read = ledger.give(n, "The page itself.", "page")
    assert (read.given, read.basis) == (("The page itself.",), "page")
    assert ledger.give(n, "another engine's line", "snippet") == ledger.get(n) == read
    again = ledger.give(n, "More of the page.", "page")
    assert again.given == ("The page itself.", "More of the page.")
    assert ledger.give(n, "More of the page.", "page").given == again.given
    assert ledger.get(n) is not None


def test_texts_are_no_part_of_what_a_source_is() -> None:
    ledger = Ledger()
    before = ledger.add("https://e.org/a", "A")
    assert ledger.give(before.n, "text", "page") == before
    assert hash(ledger.give(before.n, "more", "page")) == hash(before)


def test_what_was_taken_back_cannot_be_cited_until_it_is_given_again() -> None:
    ledger = Ledger()
    n = ledger.add("https://e.org/a").n
    ledger.give(n, "text", "page")
    ledger.withdraw(n)
    assert ledger.get(n) is None
    assert [(source.given, source.basis) for source in ledger] == [((), "snippet")]
    assert ledger.give(n, "again", "snippet") == ledger.get(n)
    assert ledger.add("https://e.org/a").n == n


def test_an_empty_text_gives_nothing() -> None:
    ledger = Ledger()
    source = ledger.give(ledger.add("https://e.org/a").n, "", "page")
    assert (source.given, source.basis) == ((), "snippet")


@given(st.lists(st.tuples(st.text(max_size=30), st.sampled_from(["page", "snippet"])), max_size=30))
def test_what_is_remembered_was_given_and_has_an_end(texts: list[tuple[str, Basis]]) -> None:
    ledger = Ledger()
    n = ledger.add("https://e.org/a").n
    for text, basis in texts:
        ledger.give(n, text * 1000, basis)
    source = ledger.get(n)
    assert source is not None
    assert sum(map(len, source.given)) <= MOST_GIVEN
    assert all(any(part in text * 1000 for text, basis in texts if basis == source.basis) for part in source.given)
    assert source.basis == ("page" if any(text and basis == "page" for text, basis in texts) else "snippet")


def test_what_an_earlier_request_gave_is_kept_there_alone() -> None:
    """Else each turn of a conversation would hold the texts of all before it."""
    ledger = Ledger()
    ledger.restore(1, "https://a.org/", "A", ("All about A.",), "page")
    ledger.give(ledger.add("https://b.org/", "B").n, "All about B.", "snippet")
    assert [source.n for source in ledger.given()] == [2]
    kept = ledger.to_keep()
    assert kept == {
        1: KnownSource("https://a.org/", "A", (), "page"),
        2: KnownSource("https://b.org/", "B", ("All about B.",), "snippet"),
    }
    first = {1: KnownSource("https://a.org/", "A", ("All about A.",), "page")}
    assert joined([first, kept])[1] == first[1]
    assert joined([first, {1: KnownSource("https://c.org/", "C")}])[1] == KnownSource("https://c.org/", "C")
    ledger.withdraw(2)
    assert ledger.given() == []


def test_a_conversation_that_grows_keeps_each_text_once() -> None:
    known: dict[int, KnownSource] = {}
    sizes = []
    for turn in range(50):
        ledger = Ledger()
        for n, source in known.items():
            ledger.restore(n, *source)
        ledger.give(ledger.add(f"https://a.org/{turn}", "A").n, "x" * 10_000, "page")
        kept = ledger.to_keep()
        sizes.append(sum(len(text) for source in kept.values() for text in source.given))
        known = joined([known, kept])
    assert set(sizes) == {MOST_KEPT}
    assert all(source.given and source.basis == "page" for source in known.values())


def test_a_source_of_which_other_texts_were_given_is_the_same_in_all_else() -> None:
    names = [field.name for field in fields(Source)]
    source = Source(*names)  # type: ignore[arg-type]  # each field holds its name, so that none can be mistaken
    other = source.with_texts(("text",), "page")
    assert {name for name in names if getattr(other, name) != name} == {"given", "basis"}


HITS = st.tuples(
    st.sampled_from(["https://a.example/", "https://www.a.example", "https://b.example/x", "local:notes/y", ""]),
    st.sampled_from(["", "A title", " A  title ", "https"]),
    st.sampled_from(["", "What it says.", "More of it.", "x" * 60_000]),
    st.sampled_from([None, "2026-01-02"]),
    st.sampled_from(["snippet", "page"]),
)


@given(st.lists(HITS, max_size=6))
def test_a_hit_is_added_and_given_at_once(hits: list[tuple[str, str, str, str | None, Basis]]) -> None:
    at_once, in_two_steps = Ledger(3), Ledger(3)
    for url, title, snippet, date, basis in hits:
        hit = at_once.add_hit(url, title, snippet, date, "Ada", 0.5, basis)
        known = in_two_steps.add(url, title, snippet, date)
        kept = in_two_steps.give(known.n, snippet or known.snippet, basis if snippet else "snippet")
        assert (hit.n, hit.url, hit.title, hit.snippet) == (kept.n, kept.url, kept.title, snippet or kept.snippet)
        assert (hit.date, hit.given, hit.basis) == (kept.date, kept.given, kept.basis)
        assert (hit.author, hit.score) == ("Ada", 0.5)
    assert at_once.to_keep() == in_two_steps.to_keep()
    assert [source.n for source in at_once.given()] == [source.n for source in in_two_steps.given()]
