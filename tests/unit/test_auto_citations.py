"""Markers for sentences that have none: fed whole, character by character and cut at every place, the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.answering.citations import Citer
from proxy.answering.decoration import strip_decoration
from proxy.answering.grounds import Grounds
from proxy.answering.marker_forms import AUTO_LEAD, SURE_LEAD
from proxy.answering.stripped import NamedHosts, StrippedCiter
from proxy.values.events import Citation, TextDelta
from proxy.values.request import CitationStyle
from tools.ledger import KnownSource, Ledger, Source

STYLES: tuple[CitationStyle, ...] = get_args(CitationStyle)
PARIS = "Paris is the capital of France. It has 2,102,650 residents within the city limits. The Louvre is a museum."
ROME = "Rome is the capital of Italy, with 2.8 million residents. The Colosseum was built in the year 80 by Titus."


def ledger() -> Ledger:
    made = Ledger()
    made.give(made.add("https://paris.org/", "Paris").n, PARIS, "page")
    made.give(made.add("https://rome.org/", "Rome").n, ROME, "snippet")
    made.give(
        made.add("local:docs/tea.md", "Tea (green)").n,
        "Green tea is brewed with water of 80 degrees for two minutes.",
        "page",
    )
    return made


LEDGER = ledger()
Made = tuple[str, list[tuple[int, int, int, bool]]]


def run(pieces: Sequence[str], style: CitationStyle = "link", *, auto: bool = True, read_alone: bool = False) -> Made:
    grounds = Grounds(LEDGER, read_alone=lambda: read_alone)
    citer = Citer(grounds.citable, style, texts=grounds.texts)
    if auto:
        citer.mark_sentences(grounds.plain_source)
    events = [event for made in [*map(citer.feed, pieces), citer.flush()] for event in made]
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    citations = [event for event in events if isinstance(event, Citation)]
    return text, [(c.start, c.end, c.source.n, c.auto) for c in citations]


def every_way(text: str, style: CitationStyle = "link") -> Made:
    whole = run([text], style)
    assert run(list(text), style) == whole
    for cut in range(len(text) + 1):
        assert run([text[:cut], text[cut:]], style) == whole, f"cut at {cut}"
    return whole


P, R = "[[1]](https://paris.org/)", "[[1]](https://rome.org/)"
CAPITAL = "Paris, the capital of France, has 2,102,650 residents"
# In an answer ‹n› stands where a marker is put in.
MARKED = {
    "a sentence": f"{CAPITAL}.‹1›",
    "in the middle": f"Well. {CAPITAL}.‹1› And so on.",
    "exclamation": f"{CAPITAL}!‹1› Really?",
    "behind what closes": f"**{CAPITAL}.**‹1› (So it is.)",
    "before a line feed": f"{CAPITAL}.‹1›\n\nNext.",
    "before carriage return": f"{CAPITAL}.‹1›\r\nNext.",
    "an item without a stop": f"- {CAPITAL}‹1›\n- Other\n",
    "an item with a blank behind it": f"- {CAPITAL} ‹1›\n- Other\n",
    "a numbered item": f"1. {CAPITAL}.‹1›\n2. No.",
    "two sources": f"{CAPITAL}.‹1› The Colosseum was built in the year 80 by Titus.‹2›",
    "short forms": f"{CAPITAL}, e.g. people.‹1› Dr. No.",
    "a local document": "Green tea is brewed with water of 80 degrees.‹3› Yes.",
    "another sentence is marked": f"Rome is old [2]. {CAPITAL}.‹1› Rome is old [2].",
    "behind code": f"`x`\n\n```\n{CAPITAL}.\n```\n\n{CAPITAL}.‹1›",
}
UNMARKED = {
    "the model's own": f"{CAPITAL} [1].",
    "the model's own, behind": f"{CAPITAL}. [1] Yes.",
    "the model's own, behind two blanks": f"{CAPITAL}.  [1][2] Yes.",
    "a bracket follows": f"{CAPITAL}. [sic] Yes.",
    "code": f"```\n{CAPITAL}.\n```\n",
    "code without a fence": f"    x = 1\n    # {CAPITAL}.\n    return x\n",
    "a heading": f"## {CAPITAL}.\nText.",
    "a bold heading": f"1. **{CAPITAL}**\n",
    "a row of a table": f"| {CAPITAL}. | 1 |\n",
    "a line without a stop": f"{CAPITAL}\n\nNext.",
    "JSON": f'{{"text": "{CAPITAL}. "}}',
    "a source list": f"Sources:\n[1] Paris: {CAPITAL}.\n",
    "a wrong number": "Paris, the capital of France, has 9,102,650 residents within limits.",
    "few words": "Paris is in France.",
    "nobody says so": "Bananas grow on tall plants in warm and wet countries all over the world.",
    "it goes on": f"{CAPITAL}. and so on",
    "a list of values": "a,b,c,d\n1,2,3,4.\n",
    "a tag": f"<content>\n{CAPITAL}. Yes.\n</content>",
    "no end": CAPITAL,
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", MARKED)
def test_plainly_held_sentences_get_a_marker(name: str, style: CitationStyle) -> None:
    template = MARKED[name]
    said = _without_places(template)
    text, citations = every_way(said, style)
    assert [n for _, _, n, auto in citations if auto] == [int(part[0]) for part in template.split("‹")[1:]]
    assert _without_markers(text, citations) == run([said], style, auto=False)[0]
    for start, _, _, auto in citations:
        if auto and style != "none":
            assert text[start - 1] == AUTO_LEAD


def _without_places(template: str) -> str:
    first, *rest = template.split("‹")
    return first + "".join(part.partition("›")[2] for part in rest)


def _without_markers(text: str, citations: list[tuple[int, int, int, bool]]) -> str:
    """Less those that were put in; numbers in links may differ by them, so that all links lose theirs."""
    for start, end, _, auto in reversed(citations):
        if auto:
            text = text[:start].removesuffix(AUTO_LEAD).removesuffix(AUTO_LEAD) + text[end:]
    return text.replace("[[2]](https://rome", "[[1]](https://rome")


@pytest.mark.parametrize("name", UNMARKED)
def test_all_others_get_none(name: str) -> None:
    text, citations = every_way(UNMARKED[name])
    assert not [citation for citation in citations if citation[3]]
    assert AUTO_LEAD not in text


def test_where_it_stands_and_what_it_looks_like() -> None:
    assert run([f"{CAPITAL}. Yes."])[0] == f"{CAPITAL}.{AUTO_LEAD}{P} Yes."
    assert run([f"{CAPITAL}. Yes."], "number")[0] == f"{CAPITAL}.{SURE_LEAD}[1] Yes."
    assert run([f"{CAPITAL}. Yes."], "openai")[0] == f"{CAPITAL}.{SURE_LEAD}([paris.org](https://paris.org/)) Yes."
    text, [(start, end, n, auto)] = run([f"{CAPITAL}. Yes."], "none")
    assert (text, start, end, n, auto) == (f"{CAPITAL}. Yes.", len(CAPITAL) + 1, len(CAPITAL) + 1, 1, True)


def test_only_what_was_read_where_that_is_wanted() -> None:
    rome = "Rome, the capital of Italy, has 2.8 million residents."
    assert [n for *_, n, _ in run([rome])[1]] == [2]
    assert run([rome], read_alone=True) == (rome, [])
    assert run([f"{rome[:-1]} [2]. Paris [1]."], read_alone=True)[0] == f"{rome[:-1]} [2]. Paris {P}."


def test_nothing_waits_for_it_but_blanks() -> None:
    grounds = Grounds(LEDGER)
    citer = Citer(grounds.citable, texts=grounds.texts)
    citer.mark_sentences(grounds.plain_source)
    made = 0
    text = f"{CAPITAL}.  {CAPITAL}! Well, e.g. this. "
    for read, char in enumerate(text, 1):
        before = made
        made += sum(isinstance(event, TextDelta) for event in citer.feed(char))
        assert made > before or char == " ", f"held at {read}"


def test_a_stretch_that_breaks_off_ends_a_sentence() -> None:
    grounds = Grounds(LEDGER)
    citer = Citer(grounds.citable, texts=grounds.texts)
    citer.mark_sentences(grounds.plain_source)
    events = [*citer.feed(f"{CAPITAL}."), *citer.release(), *citer.feed("\n\nMore."), *citer.flush()]
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert text == f"{CAPITAL}.{AUTO_LEAD}{P}\n\nMore."


def test_sentences_before_the_search_get_none() -> None:
    grounds = Grounds(LEDGER)
    citer = Citer(grounds.citable, texts=grounds.texts)
    citer.feed(f"{CAPITAL}. ")
    citer.mark_sentences(grounds.plain_source)
    assert [event.start for event in citer.feed(f"{CAPITAL}. And") if isinstance(event, Citation)]
    off = Citer(grounds.citable, enabled=False)
    off.mark_sentences(grounds.plain_source)
    assert off.feed(f"{CAPITAL}. And") == [TextDelta(f"{CAPITAL}. And")]


def test_what_was_said_before_a_search_does_not_rest_on_it() -> None:
    grounds = Grounds(LEDGER)
    citer = Citer(grounds.citable, texts=grounds.texts)
    events = [*citer.feed(f"{CAPITAL}."), *citer.release()]
    citer.mark_sentences(grounds.plain_source)
    events += [*citer.feed("\n\nSo it is."), *citer.flush()]
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == f"{CAPITAL}.\n\nSo it is."
    assert not [event for event in events if isinstance(event, Citation)]


# The answer comes back


@pytest.mark.parametrize("style", ["link", "number", "openai"])
@pytest.mark.parametrize("name", MARKED)
def test_the_model_reads_what_it_wrote(name: str, style: CitationStyle) -> None:
    said = _without_places(MARKED[name])
    shown, _ = run([said], style)
    cleaned = strip_decoration([{"role": "assistant", "content": shown}])
    plain = run([said], style, auto=False)[0]
    assert cleaned.messages == strip_decoration([{"role": "assistant", "content": plain}]).messages
    if "[" not in said:
        assert cleaned.messages[0]["content"] == said
        assert cleaned.known_sources == {}
        assert cleaned.highest_number == 0


@pytest.mark.parametrize("said", [f"{CAPITAL}. Yes.", "Green tea is brewed with water of 80 degrees. Yes."])
@pytest.mark.parametrize("style", STYLES)
def test_annotations_of_such_markers_teach_nothing(style: CitationStyle, said: str) -> None:
    text, [(start, end, n, _)] = run([said], style)
    source = LEDGER.get(n)
    assert source is not None
    mark = {"start_index": start, "end_index": end, "url": source.url, "title": source.title, "auto": True}
    echo = {"role": "assistant", "content": text, "annotations": [{"type": "url_citation", "url_citation": mark}]}
    cleaned = strip_decoration([echo])
    assert cleaned.messages == [{"role": "assistant", "content": said}]
    assert cleaned.known_sources == {}


def test_the_beginning_of_a_conversation_stays_the_same() -> None:
    first = {"role": "assistant", "content": run([f"Rome is old [2]. {CAPITAL}. Rome is old [2]."])[0]}
    later = {"role": "assistant", "content": run([f"{CAPITAL}. Paris is big [1]."])[0]}
    alone, both = strip_decoration([first]).messages, strip_decoration([first, later]).messages
    assert both[:1] == alone
    assert [message["content"] for message in both] == [
        f"Rome is old [1]. {CAPITAL}. Rome is old [1].",
        f"{CAPITAL}. Paris is big [2].",
    ]


SENTENCE = st.sampled_from(
    [
        CAPITAL,
        "Rome, the capital of Italy, has 2.8 million residents",
        "The Louvre",
        "x = [1]",
        "Dr",
        "- It",
        "`a b`",
        "[1]",
    ]
)
PIECES = st.lists(
    SENTENCE | st.sampled_from([". ", ".", "\n", " [1]", " [2].", "! ", "。", "  ", "“", "”", "```\n", "# ", "|"])
)


@given(PIECES, st.sampled_from(STYLES), st.randoms(use_true_random=False))
def test_whatever_the_pieces(parts: list[str], style: CitationStyle, random: object) -> None:
    text = "".join(parts)
    whole = run([text], style)
    assert run(parts, style) == whole
    assert run(list(text), style) == whole
    if style == "link":
        plain = run([text], style, auto=False)[0]
        told = [
            strip_decoration([{"role": "assistant", "content": made}]).messages[0]["content"]
            for made in (whole[0], plain)
        ]
        assert told[0] == told[1], "an echo tells the model what it wrote"


@pytest.mark.parametrize("style", STYLES)
def test_a_marker_behind_a_hair_space_of_the_models_own_is_its_own(style: CitationStyle) -> None:
    text, citations = run(["It is 5 m\u200a[1]."], style)
    assert [(n, auto) for _, _, n, auto in citations] == [(1, False)]
    if style in ("link", "number"):
        told = strip_decoration([{"role": "assistant", "content": text}]).messages[0]["content"]
        assert told == "It is 5 m\u200a [1]."


@given(PIECES)
def test_where_foreign_links_are_taken_out(parts: list[str]) -> None:
    def stripped(pieces: Sequence[str]) -> Made:
        grounds = Grounds(LEDGER)
        citer = Citer(grounds.citable, texts=grounds.texts)
        citer.mark_sentences(grounds.plain_source)
        whole = StrippedCiter(citer, NamedHosts(LEDGER, list))
        events = [event for made in [*map(whole.feed, pieces), whole.flush()] for event in made]
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        citations = [event for event in events if isinstance(event, Citation)]
        assert all(
            text[c.start : c.end].endswith(f"]]({c.source.url})") for c in citations if c.auto and c.source.linkable
        )
        return text, [(c.start, c.end, c.source.n, c.auto) for c in citations]

    assert stripped(parts) == stripped(["".join(parts)]) == stripped(list("".join(parts)))


def test_each_sentence_is_looked_at_once() -> None:
    asked: list[str] = []

    def source_of(sentence: str) -> Source | None:
        asked.append(sentence)
        return None

    for pieces in (
        [f"{CAPITAL}. One 3.5 two. Three!\n- four or so\n"],
        list(f"{CAPITAL}. One 3.5 two. Three!\n- four or so\n"),
    ):
        asked.clear()
        citer = Citer(LEDGER.get)
        citer.mark_sentences(source_of)
        for piece in pieces:
            citer.feed(piece)
        citer.flush()
        assert asked == [f"{CAPITAL}.", "One 3.5 two.", "Three!", "- four or so"]


def test_a_restored_source_counts_as_it_was_given() -> None:
    """A hit that an earlier request showed was not read by being shown; of one in a plain history nobody knows."""
    made = Ledger()
    rows = {
        1: KnownSource("https://a.org/", "A", ("All about A.",), "snippet"),
        2: KnownSource("https://b.org/", "B", ("All about B.",), "page"),
        3: KnownSource("https://c.org/", "C"),
    }
    for n, row in rows.items():
        made.restore(n, *row)
    grounds = Grounds(made, restored=rows, read_alone=lambda: True)
    assert [n for n in rows if grounds.citable(n)] == [2, 3]
    assert [n for n in rows if Grounds(made, restored=rows).citable(n)] == [1, 2, 3]


def test_only_what_this_request_gave_is_marked() -> None:
    made = Ledger()
    made.restore(1, "https://paris.org/", "Paris", (PARIS,), "page")
    grounds = Grounds(made, restored={1: KnownSource("https://paris.org/", "Paris", (PARIS,), "page")})
    assert grounds.plain_source(CAPITAL) is None
    made.give(1, PARIS, "page")
    assert grounds.plain_source(CAPITAL) == made.get(1)


ANSWERS = st.tuples(PIECES.map("".join), st.sampled_from(STYLES), st.booleans())
# What a user types or pastes may look like a marker of ours: it is theirs, and stays.
USERS = st.sampled_from(
    ["Why?", f"{CAPITAL}.{AUTO_LEAD}{P}", f"So.{AUTO_LEAD}[2]", "[3] is mine", f"{AUTO_LEAD}([a](https://a.org/))"]
)


@given(st.lists(st.tuples(USERS, ANSWERS), max_size=4))
def test_a_conversation_reads_the_same_from_turn_to_turn(
    turns: list[tuple[str, tuple[str, CitationStyle, bool]]],
) -> None:
    talk: list[dict[str, object]] = []
    for asked, (said, style, auto) in turns:
        talk += [{"role": "user", "content": asked}, {"role": "assistant", "content": run([said], style, auto=auto)[0]}]
    told = strip_decoration(talk).messages
    assert [message["content"] for message in told[::2]] == [asked for asked, _ in turns]
    for turn in range(0, len(talk), 2):
        assert strip_decoration(talk[:turn]).messages == told[:turn]
