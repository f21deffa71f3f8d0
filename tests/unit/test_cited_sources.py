"""Numbers and titles as people see them in one answer."""

from __future__ import annotations

from proxy.answering.citations import Citer
from proxy.values.events import Citation, TextDelta
from tests.unit.test_citations import KNOWN
from tools.ledger import Ledger


def made_by(citer: Citer, text: str) -> str:
    return "".join(event.text for event in [*citer.feed(text), *citer.flush()] if isinstance(event, TextDelta))


def test_the_numbers_that_people_see_count_from_one() -> None:
    text = "a [12], b [3], c [12], d [4], e [1]."
    shown = "a [[1]](https://twelve.org/), b [[2]](http://three.org/), c [[1]](https://twelve.org/), d [3], e [[4]](https://www.one.org/a)."
    assert made_by(Citer(KNOWN.get), text) == shown
    assert made_by(Citer(KNOWN.get, "number"), text) == text


def test_they_go_on_from_what_was_shown_in_the_same_answer() -> None:
    shown = {"https://two.org/b?x=1": 1, "https://elsewhere.example/": 3}
    citer = Citer(KNOWN.get, footer=True, shown=shown)
    two, one = "(https://two.org/b?x=1)", "(https://www.one.org/a)"
    body = f"x [[4]]{one}, y [[1]]{two}\n\nSources:\n[1] [Two]{two}\n[4] [One]{one}"
    assert made_by(citer, "x [1], y [2]") == body


def test_no_two_sources_of_an_answer_have_one_title() -> None:
    sources = Ledger()
    for url in (
        "https://a.example/1",
        "https://b.example/1",
        "https://b.example/2",
        "https://b.example/3",
        "local:x/y",
    ):
        sources.add(url, "Home")
    sources.add("https://a.example/own", "Home (b.example)")
    citer = Citer(sources.get)
    events = citer.feed("a [1] [2] [3] [4] [5] [6], again [2] [1].")
    titles = [event.source.title for event in events if isinstance(event, Citation)]
    assert titles == [
        *("Home", "Home (b.example)", "Home (b.example, 2)", "Home (b.example, 3)", "Home (local:x/y)"),
        *("Home (b.example) (a.example)", "Home (b.example)", "Home"),
    ]
    assert [source.n for source in citer.cited] == [1, 2, 3, 4, 5, 6]
