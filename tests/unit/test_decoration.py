"""Echoed answers lose our decoration, and what their numbers meant is kept."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.answering import decoration
from proxy.answering.citations import Citer
from proxy.answering.decoration import links_in, prose, strip_decoration
from proxy.values.events import Citation, TextDelta
from proxy.values.request import CitationStyle
from tools.ledger import KnownSource, Ledger

A, B = "https://a.org/x?y=~z", "https://b.org/"


def assistant(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def annotation(url: str, title: Any, start: int = 0, end: int = 0) -> dict[str, Any]:
    citation = {"url": url, "title": title, "start_index": start, "end_index": end}
    return {"type": "url_citation", "url_citation": citation}


def answer(text: str, style: CitationStyle = "link", footer: bool = False) -> tuple[str, list[Citation]]:
    sources = Ledger()
    sources.add(A, "A page")
    sources.add(B, "B [page]")
    sources.add("local:docs/c.md", "C")
    citer = Citer(sources.get, style, footer)
    events = [*citer.feed(text), *citer.flush()]
    made = "".join(event.text for event in events if isinstance(event, TextDelta))
    return made, [event for event in events if isinstance(event, Citation)]


@pytest.mark.parametrize(
    ("content", "clean", "known"),
    [
        (f"So [[1]]({A}).", "So [1].", {1: KnownSource(A, "")}),
        (f"So [[1]]({A})[[12]]({B}).", "So [1][2].", {1: KnownSource(A, ""), 2: KnownSource(B, "")}),
        (f"So [[2]]({A})[[1]]({B})[[2]]({A}).", "So [1][2][1].", {1: KnownSource(A, ""), 2: KnownSource(B, "")}),
        (f"So [[1]]({A}), `[[2]]({B})`", f"So [1], `[[2]]({B})`", {1: KnownSource(A, "")}),
        (f"```\n[[2]]({B})\n```\n[[1]]({A})", f"```\n[[2]]({B})\n```\n[1]", {1: KnownSource(A, "")}),
        (f"[[1]]({A}) ~~x~~ [[2]]({B})", "[1] ~~x~~ [2]", {1: KnownSource(A, ""), 2: KnownSource(B, "")}),
        ([{"type": "text", "text": f"a [[1]]({A})"}], [{"type": "text", "text": "a [1]"}], {1: KnownSource(A, "")}),
    ],
)
def test_link_form_reads_as_number_again(content: Any, clean: Any, known: dict[int, Any]) -> None:
    message = assistant(content)
    before = copy.deepcopy(message)
    cleaned = strip_decoration([message])
    assert message == before
    assert cleaned.changed
    assert cleaned.messages == [assistant(clean)]
    assert cleaned.known_sources == known
    assert cleaned.highest_number == len(known)


@pytest.mark.parametrize(
    "message",
    [
        user(f"I saw [[1]]({A})"),
        {"role": "system", "content": f"[[1]]({A})\n\nSources:\n[1] [A]({A})"},
        {"role": "tool", "tool_call_id": "x", "content": f"[[1]]({A})", "annotations": []},
        assistant(
            None, tool_calls=[{"id": "1", "type": "function", "function": {"name": "f", "arguments": "[[1]](u)"}}]
        ),
        assistant("plain"),
        assistant(""),
        assistant("[1] and [Title](https://a.org) and [[x]](https://a.org) and [[1]](see below)"),
        assistant([{"type": "refusal", "refusal": f"[[1]]({A})"}, {"type": "text", "text": "no"}, {"type": "text"}, 7]),
        {"role": "assistant"},
    ],
)
def test_everything_else_is_the_same_object(message: dict[str, Any]) -> None:
    before = copy.deepcopy(message)
    cleaned = strip_decoration([message])
    assert not cleaned.changed
    assert cleaned.messages[0] is message
    assert message == before
    assert cleaned.known_sources == {}


def test_only_changed_messages_are_copies() -> None:
    messages = [user("q"), assistant("a"), user("q [2]"), assistant(f"b [[1]]({A})", name="x"), user("q")]
    cleaned = strip_decoration(messages)
    assert [new is old for new, old in zip(cleaned.messages, messages, strict=True)] == [True, True, True, False, True]
    assert cleaned.messages[3] == assistant("b [3]", name="x")
    assert (cleaned.changed, cleaned.highest_number) == (True, 3)


def test_fields_of_ours_go_and_teach_titles() -> None:
    message = assistant(f"a [[1]]({A}) b [[2]]({B})", annotations=[annotation(A, "A page")], search_results=[{}], x=1)
    cleaned = strip_decoration([message])
    assert cleaned.messages == [assistant("a [1] b [2]", x=1)]
    assert cleaned.known_sources == {1: KnownSource(A, "A page"), 2: KnownSource(B, "")}
    assert "annotations" in message


def test_empty_fields_go_too() -> None:
    cleaned = strip_decoration([assistant("a", annotations=[])])
    assert cleaned.changed
    assert cleaned.messages == [assistant("a")]


def test_annotations_teach_numbers() -> None:
    text, citations = answer("🎉 a [1], c [3], `[2]`.", "number")
    notes = [annotation(c.source.url, c.source.title, c.start, c.end) for c in citations]
    known = {
        1: KnownSource(A, "A page")
    }  # what cannot be linked to is text: in other styles its number is not the model's
    assert strip_decoration([assistant(text, annotations=notes)]).known_sources == known
    flat = [{"type": "url_citation", **note["url_citation"]} for note in notes]
    assert strip_decoration([assistant(text, annotations=flat)]).known_sources == known


@pytest.mark.parametrize(
    "annotations",
    [
        None, {}, "x", [None], [7], [{"url_citation": 3}], [annotation(A, None, 0, 0)], [annotation(A, 3, 1, 4)],
        [{"url_citation": {"url": 3, "start_index": 0, "end_index": 3}}], [annotation(A, "", -3, 3)],
        [{"url_citation": {"url": A, "start_index": "0", "end_index": None}}], [annotation(A, "A", 100, 103)],
    ],
)  # fmt: skip
def test_strange_annotations_teach_nothing(annotations: Any) -> None:
    cleaned = strip_decoration([assistant("[1] a", annotations=annotations)])
    assert cleaned.messages == [assistant("[1] a")]
    assert cleaned.known_sources == {}


def numbered(text: str, **urls: str) -> dict[str, Any]:
    """An answer in style `number`, sent back with its annotations."""
    places = [(text.index(f"[{n[1:]}]"), len(n) + 1, url) for n, url in urls.items()]
    return assistant(text, annotations=[annotation(url, "", start, start + size) for start, size, url in places])


def test_a_number_that_meant_two_pages_means_neither() -> None:
    messages = [numbered("a [1] b [2]", n1=A, n2=B), numbered("a [1]", n1=B)]
    cleaned = strip_decoration(messages)
    assert cleaned.messages == [assistant("a [1] b [2]"), assistant("a [1]")]
    assert cleaned.known_sources == {2: KnownSource(B, "")}


C, D = "https://c.org/", "https://d.org/"
CONVERSATION = [
    user("My own [3]."),
    assistant(f"One [[1]]({A}), two [[2]]({B}), mine [5]."),
    user("And [12]?"),
    assistant(f"Three [[1]]({C}), one [[2]]({A})."),
    user("More"),
    assistant(f"[2] is a document; four [[1]]({D}), two [[3]]({B})."),
    user("Last"),
]
TOLD = ["One [6], two [7], mine [5].", "Three [13], one [6].", "[2] is a document; four [14], two [7]."]


def test_the_url_decides_and_not_the_number_in_the_link() -> None:
    cleaned = strip_decoration(CONVERSATION)
    assert [message["content"] for message in cleaned.messages[1::2]] == TOLD
    assert cleaned.known_sources == {
        6: KnownSource(A, ""),
        7: KnownSource(B, ""),
        13: KnownSource(C, ""),
        14: KnownSource(D, ""),
    }
    assert cleaned.highest_number == 14


def test_nothing_later_changes_what_a_message_reads() -> None:
    whole = strip_decoration(CONVERSATION).messages
    for length in range(len(CONVERSATION)):
        assert strip_decoration(CONVERSATION[:length]).messages == whole[:length]
    more = [*CONVERSATION, assistant("[40]"), user(f"[80] {C}"), assistant(f"[[1]]({B})")]
    assert strip_decoration(more).messages[: len(whole)] == whole


def test_a_number_that_a_turn_put_back_gave_counts_first_and_is_given_to_no_other_page() -> None:
    messages = [assistant(f"a [[1]]({A}) b [[2]]({B}) c [[3]]({C})")]
    cleaned = strip_decoration(messages, sources={1: KnownSource(D), 9: KnownSource(B, "B"), 3: KnownSource("local:x")})
    assert cleaned.messages == [assistant("a [2] b [9] c [10]")]
    assert cleaned.known_sources == {2: KnownSource(A, ""), 9: KnownSource(B, ""), 10: KnownSource(C, "")}


def test_links_in() -> None:
    assert links_in([f"a [[1]]({A}) [[2]]({B})", f"[[1]]({A}) [3](x)"]) == {A: 1, B: 2}


@pytest.mark.parametrize("style", ["link", "number", "openai", "none"])
def test_our_footer_goes(style: CitationStyle) -> None:
    question = "a [1], b [2], c [3]."
    plain, _ = answer(question, style)
    decorated, _ = answer(question, style, footer=True)
    assert decorated.startswith(plain)
    assert decorated != plain
    assert strip_decoration([assistant(decorated)]).messages == strip_decoration([assistant(plain)]).messages
    assert FOOTED in strip_decoration([assistant(decorated)], footer=False).messages[0]["content"]


FOOTED = "\n\nSources:\n[1] [A page]"


@pytest.mark.parametrize(
    "text",
    [
        f"a\n\nSources:\n[1] [A]({A})\n\nMore.",
        f"a\n\nSources:\n[1] [A]({A})\n",
        f"a\nSources:\n[1] [A]({A})",
        f"a\n\nSources:\n- [1] [A]({A})",
        "a\n\nSources:\n[2] B\n[1] A",
        "a\n\nSources:\n",
        "a\n\nSources:\nnone",
    ],
)
def test_other_lists_of_sources_stay(text: str) -> None:
    assert strip_decoration([assistant(text)]).messages == [assistant(text)]


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("", 0),
        ("no numbers", 0),
        ("[1]", 1),
        ("see [3] and [2]", 3),
        ("[2, 7] [4,5]", 7),
        ("【8†source】 【3】", 8),
        ("[99] [100] [2024] [0]", 99),
        ("[5, 120]", 5),
        ("`[9]` [2]", 2),
        ("```\n[9]\n```\n[2]\n~~~\n[8]", 2),
        ("[x] [1a] [ 1]", 0),
    ],
)
def test_numbers_taken(text: str, taken: int) -> None:
    for role in ("user", "system", "developer", "tool", "assistant"):
        assert strip_decoration([{"role": role, "content": text}]).highest_number == taken
        parts = [{"type": "image_url", "image_url": {"url": "[50]"}}, {"type": "text", "text": text}]
        assert strip_decoration([{"role": role, "content": parts}, user("[1]")]).highest_number == max(taken, 1)


SAID = st.text(st.sampled_from("[]【】†()`~1203,: ab\n\u200a"), max_size=60)
TALK = st.lists(
    st.builds(
        lambda role, text, parts, more: {
            "role": role,
            "content": [{"type": "text", "text": text}] if parts else text,
            **more,
        },
        st.sampled_from(["system", "user", "assistant", "tool"]),
        SAID.map(lambda text: text.replace("a", f"[[1]]({A})").replace("b", f"[[2]]({B})")),
        st.booleans(),
        st.sampled_from([{}, {}, {}, {"annotations": []}, {"search_results": []}]),
    ),
    max_size=5,
)


@given(TALK)
def test_what_is_passed_over_holds_nothing(messages: list[dict[str, Any]]) -> None:
    found = strip_decoration(messages)
    reader = decoration._Reader(True, {})  # of every message
    assert found.messages == [reader.read(message) for message in messages]
    assert (found.highest_number, found.known_sources, found.claimed) == (reader.highest, reader.known, reader.claimed)
    assert found.changed == (found.messages != messages)


def test_no_messages() -> None:
    cleaned = strip_decoration([])
    assert (cleaned.messages, cleaned.changed, cleaned.highest_number, cleaned.known_sources) == ([], False, 0, {})


@pytest.mark.parametrize(
    ("text", "stretches"),
    [
        ("", []),
        ("plain", ["plain"]),
        ("a `b` c", ["a ", " c"]),
        ("```\nb\n```\nc", ["\nc"]),
        ("~~~\nb\n~~~", []),
        ("a ~ b ~~ c", ["a ~ b ~~ c"]),
        ("a `b\n\nc", ["a ", "c"]),
    ],
)
def test_prose(text: str, stretches: list[str]) -> None:
    assert [text[start:end] for start, end in prose(text)] == stretches


PIECES = ["[1]", "[2]", " ", "a", "`", "```", "\n", "~~~", "[x](y)", "首都", "🎉", "! ", ". ", "> ", "- ", "[3]", "[9]"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join), st.booleans())
def test_round_trip(text: str, footer: bool) -> None:
    decorated, citations = answer(text, footer=footer)
    cleaned = strip_decoration([assistant(decorated)])
    pages = {n: source.url for n, source in cleaned.known_sources.items()}
    told = [pages[int(n)] for n in re.findall(r"\[(\d+)\]", cleaned.messages[0]["content"]) if int(n) in pages]
    cited = [c.source.url for c in citations if c.source.linkable]
    assert [url for url in told if url in cited] == told
    assert set(pages.values()) == set(cited)
    assert not re.search(r"\]\(http|Sources:", cleaned.messages[0]["content"])
    # Numbers apart, the text is the model's; only a link right after `!` got a space.
    bare = [re.sub(r"\d+", "", said).replace("! ", "!") for said in (cleaned.messages[0]["content"], text)]
    assert bare[0] == bare[1]


def test_openai_markers_are_given_numbers_when_annotations_say_what_they_are() -> None:
    a, b = "([a.org](https://a.org/x))", "([b.org](https://b.org/y))"
    text = f"One {a}, two {b}, one again {a}. Mine: ([a.org](https://a.org/x))"

    def place(marker: str, after: int = 0) -> dict[str, object]:
        start = text.index(marker, after)
        url = marker[marker.index("](") + 2 : -2]
        spot = {"start_index": start, "end_index": start + len(marker), "url": url, "title": url[8:13]}
        return {"type": "url_citation", "url_citation": spot}

    annotations = [place(a), place(b), place(a, text.index(b))]
    messages = [
        {"role": "user", "content": "My own [3]."},
        {"role": "assistant", "content": text, "annotations": annotations},
    ]
    cleaned = strip_decoration(messages)
    numbers = {url: n for n, (url, *_) in cleaned.known_sources.items()}
    one, two = numbers["https://a.org/x"], numbers["https://b.org/y"]
    assert {one, two} == {4, 5}
    assert cleaned.messages[1] == {
        "role": "assistant",
        "content": f"One [{one}], two [{two}], one again [{one}]. Mine: ([a.org](https://a.org/x))",
    }
    assert cleaned.known_sources[one] == KnownSource("https://a.org/x", "a.org")
    assert cleaned.highest_number == 5


def test_a_page_that_is_known_keeps_its_number_where_the_marker_carries_none() -> None:
    text = "Yes ([a.example](https://a.example/))."
    place = {"url": "https://a.example/", "title": "A", "start_index": 4, "end_index": len(text) - 1}
    message = {
        "role": "assistant",
        "content": text,
        "annotations": [{"type": "url_citation", "url_citation": place}],
    }
    (clean,) = strip_decoration([message], sources={7: KnownSource("https://a.example/", "A")}).messages
    assert clean == {"role": "assistant", "content": "Yes [7]."}


PIECES = ["[", "]", "【", "】", "†", "1", "9", "12", "99", "100", ", ", ",", "`", "```", "\n", "a", "[1]", "[7, 12]"]


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join), st.integers(0, 99))
@settings(max_examples=500)
def test_the_highest_number_is_that_of_all_markers_in_prose(text: str, above: int) -> None:
    marker = re.compile(r"[\[【]([1-9][0-9]{0,2}(?:, ?[1-9][0-9]{0,2})*)[\]】†]")
    found = [
        int(number)
        for start, end in prose(text)
        for match in marker.finditer(text, start, end)
        for number in match[1].split(",")
    ]
    before = user(f"see [{above}]" if above else "see")
    expected = max([above, *(n for n in found if n < 100)])
    assert strip_decoration([before, user(text)]).highest_number == expected


def test_code_is_told_from_prose_only_so_far() -> None:
    """To read code costs time for each of its marks, and other clients wait meanwhile."""
    marks, number = "`a` " * 25_000, "`[9]`"
    assert strip_decoration([user(number), user(marks)]).highest_number == 0
    assert strip_decoration([user(marks + "[1]"), user(number)]).highest_number == 9


def test_what_nobody_can_cite_is_not_read() -> None:
    """Each would cost time while nobody else is served."""
    text = "a " * 1000 + "[1]"
    wide = [annotation(A, "A", 1, 9_999_999)] * 3000
    assert strip_decoration([assistant(text, annotations=wide)]).known_sources == {}
    links = "".join(f"[[1]](https://x.example/{n}) " for n in range(12_000))
    cleaned = strip_decoration([assistant(links)])
    assert len(cleaned.known_sources) == 999
    assert cleaned.messages[0]["content"].count("[[1]](") == 2000


def test_lists_of_others_claim_their_numbers() -> None:
    messages = [user("[1] a\n- [2] b\n> [3]: c\nsee [4] and\n[5]"), {"role": "tool", "content": "[6] ours"}]
    assert strip_decoration(messages).claimed == {1, 2, 3}
