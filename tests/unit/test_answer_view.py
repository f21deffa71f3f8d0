"""What a person sees of an answer, on a terminal that is really drawn (pyte): whole, in pieces, narrow, resized, with
hostile text in it, and whether what was printed stays as it was.
"""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cli.activity import Activity
from proxy.cli.answer_view import JsonView, LiveView, PlainView, view_for
from proxy.cli.live_region import LiveRegion
from proxy.values.events import (
    Begun,
    Citation,
    Event,
    Failed,
    Finished,
    Proof,
    TextDelta,
    ToolFinished,
    ToolStarted,
    UsageSeen,
)
from tests.fakes.terminal import DrawnOn
from tools.ledger import Source

SKY = Source(1, "https://a.example/sky", "Why the sky is blue")
SEA = Source(2, "https://b.example/sea", "Why the sea is salty")
ANSWER = """\
# The sky

Air scatters **blue** light [1].

- one
- two
  with `code`

| a | b |
|---|---|
| 1 | 2 |

```python
print("x")
```

The end."""
SEEN = """\
The sky

Air scatters blue light [1].

 • one
 • two with code

  a   b
 ────
  1   2

 print("x")

The end."""


@pytest.fixture(autouse=True)
def _a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def activity() -> Activity:
    return Activity("m", time.monotonic(), ["ddg", "brave"], ["reader"])


def pieces(text: str, size: int) -> list[Event]:
    return [TextDelta(text[at : at + size]) for at in range(0, len(text), size)]


def live(tty: DrawnOn, events: Sequence[Event], *, verbose: bool = False, draws: bool = True) -> None:
    view = LiveView(tty, tty, activity(), verbose=verbose)
    for event in events:
        view.take([event])
        if draws:
            view.draw()
    view.end()
    view.stop()


def tidy(text: str) -> list[str]:
    """Lines without the blanks that only lay out."""
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("lines", [3, 8, 40])
def test_an_answer_as_it_is_drawn(size: int, lines: int) -> None:
    """However it was cut and however low the screen, in the end each block stands there once."""
    tty = DrawnOn(60, lines)
    live(tty, pieces(ANSWER, size))
    assert tidy(tty.seen.text) == tidy(SEEN)
    assert tty.seen.cursor[0] == 0


WORDS = st.sampled_from(
    ["word", "**bold**", "`code`", "中文字", "🎉", "\n", "\n\n", "- item\n", "# head\n", "```\n", "| a |\n"]
)


@given(st.lists(WORDS, max_size=40), st.integers(20, 90), st.integers(2, 30))
def test_drawing_as_it_streams_ends_as_drawing_it_at_once(words: list[str], columns: int, lines: int) -> None:
    events = [TextDelta(f"{word} ") for word in words]
    streamed, whole = DrawnOn(columns, lines), DrawnOn(columns, lines)
    live(streamed, events)
    live(whole, events, draws=False)
    assert streamed.seen.lines == whole.seen.lines


DRAWS = st.tuples(
    st.lists(st.text("ab 中", max_size=50), max_size=9), st.lists(st.text("xyz", max_size=50), max_size=4)
)


@given(st.lists(DRAWS, max_size=12), st.integers(5, 40), st.integers(2, 9))
def test_the_region_never_touches_what_was_printed(
    draws: list[tuple[list[str], list[str]]], columns: int, lines: int
) -> None:
    tty = DrawnOn(columns, lines)
    region = LiveRegion(tty)
    printed: list[str] = []
    for shown, more in draws:
        region.draw(shown, more)
        printed += more
    region.draw([])
    wrapped = [line[at : at + columns] for line in printed for at in range(0, max(len(line), 1), columns)]
    while wrapped and not wrapped[-1]:
        wrapped.pop()
    assert tty.seen.lines == wrapped


@pytest.mark.parametrize("columns", [1, 5, 12, 20, 200])
def test_no_word_is_lost_however_wide(columns: int) -> None:
    tty = DrawnOn(columns, 10)
    live(tty, pieces(ANSWER, 5))
    seen = re.sub(r"\s", "", tty.seen.text)
    for word in ("sky", "scatters", "light[1]", "one", "code", "The", "end"):
        assert word in seen


def test_wide_characters() -> None:
    text = "天空为什么是蓝色的？" * 6 + " 🎉👩‍👩‍👧‍👦 " + "はい" * 10
    tty = DrawnOn(20, 8)
    live(tty, pieces(text, 1))
    seen = re.sub(r"\s", "", tty.seen.text)
    assert seen.count("天空为什么是蓝色的？") == 6
    assert seen.count("はい") == 10


def test_a_block_higher_than_the_screen() -> None:
    text = "```\n" + "".join(f"line {n}\n" for n in range(100)) + "```\n\nbehind"
    tty = DrawnOn(40, 10)
    live(tty, pieces(text, 11))
    assert [line.strip() for line in tty.seen.lines if line.strip()] == [f"line {n}" for n in range(100)] + ["behind"]


@pytest.mark.parametrize(("columns", "lines"), [(30, 10), (100, 10), (60, 5), (60, 20)])
def test_a_resize_in_the_middle(columns: int, lines: int) -> None:
    """What was printed stays, and what is printed afterwards has the new width."""
    tty = DrawnOn(60, 10)
    view = LiveView(tty, tty, activity())
    view.take([TextDelta("first block here\n\n" + "open block " * 8)])
    view.draw()
    tty.resize(columns, lines)
    view.take([TextDelta("goes on " * 8 + "\n\nlast")])
    view.draw()
    view.end()
    seen = " ".join(tty.seen.text.split())
    assert seen == " ".join(("first block here " + "open block " * 8 + "goes on " * 8 + "last").split())


# What goes on


def searching(tty: DrawnOn) -> LiveView:
    view = LiveView(tty, tty, activity())
    view.take([Begun("m"), ToolStarted("1", "web_search", {"query": "why is the sky blue"})])
    view.draw()
    return view


def test_the_line_while_searching_is_gone_before_text_is_printed() -> None:
    tty = DrawnOn(60, 10)
    view = LiveView(tty, tty, activity())
    view.draw()
    assert tty.seen.lines == ["Waiting for m · 0 s"]
    view.take([ToolStarted("1", "web_search", {"query": "why is the sky blue"})])
    view.draw()
    assert tty.seen.lines == ["Searching: why is the sky blue · ddg · 0 s"]
    view.take([ToolFinished("1", "web_search", True, "ddg"), ToolStarted("2", "open_page", {"url": SKY.url + "/x?y"})])
    view.draw()
    assert tty.seen.lines == ["Reading: a.example · reader · 0 s"]
    view.take([ToolFinished("2", "open_page", True), TextDelta("It is")])
    view.draw()
    assert tty.seen.lines == ["It is"]
    view.take([TextDelta(" blue.\n\n"), ToolStarted("3", "web_search", {"query": "more"})])
    view.draw()
    assert tty.seen.lines == ["It is blue.", "Searching: more · ddg · 0 s"]
    view.take([ToolFinished("3", "web_search", True, "ddg"), TextDelta("Really.")])
    view.end()
    assert tty.seen.lines == ["It is blue.", "", "Really."]


def test_the_line_has_room_on_any_terminal() -> None:
    for columns in range(1, 60):
        tty = DrawnOn(columns, 5)
        searching(tty)
        assert len(tty.seen.lines) <= 1


def test_breaking_off_leaves_the_text_and_the_line_in_order() -> None:
    tty = DrawnOn(60, 10)
    view = LiveView(tty, tty, activity())
    view.take([TextDelta("One.\n\nTwo and"), ToolStarted("1", "web_search", {"query": "q"})])
    view.draw()
    view.stop()
    assert tty.seen.lines == ["One.", "", "Two and"]
    assert tty.seen.cursor == (0, 3)


# Sources


CITED: list[Event] = [
    ToolStarted("1", "web_search", {"query": "sky"}),
    ToolFinished("1", "web_search", True, "ddg", (SKY, SEA)),
    ToolStarted("2", "open_page", {"url": SEA.url}),
    ToolFinished("2", "open_page", True, "reader", (SEA,)),
    TextDelta("Blue [1]."),
    Citation(5, 8, SKY, Proof("Air scatters blue light.", "snippet", ("1871",))),
    UsageSeen({"total_tokens": 15}),
    Finished("stop"),
]


def test_sources_below_the_answer() -> None:
    tty = DrawnOn(80, 20)
    live(tty, CITED)
    assert tty.seen.lines == [
        "Blue [1].",
        "",
        "[1] Why the sky is blue",
        "    https://a.example/sky",
        "    not in it: 1871",
        "",
        "Read, not cited:",
        "[2] Why the sea is salty",
        "    https://b.example/sea",
    ]
    assert "\x1b]8;;https://a.example/sky\x1b\\https://a.example/sky\x1b]8;;\x1b\\" in tty.written


def test_the_passage_where_more_is_wanted() -> None:
    tty = DrawnOn(80, 20)
    live(tty, CITED, verbose=True)
    assert "    snippet: “Air scatters blue light.”" in tty.seen.lines


def test_a_passage_of_which_nobody_knows_what_it_is() -> None:
    """An earlier answer cited it."""
    tty = DrawnOn(80, 20)
    live(tty, [TextDelta("Blue [1]."), Citation(5, 8, SKY, Proof("Air scatters blue light."))], verbose=True)
    assert "    “Air scatters blue light.”" in tty.seen.lines


def test_plain_text_in_a_pipe() -> None:
    out, err = io.StringIO(), io.StringIO()
    view = view_for(out, err, activity())
    assert isinstance(view, PlainView)
    view.take(CITED)
    view.draw()
    view.end()
    assert out.getvalue().splitlines()[:5] == [
        "Blue [1].",
        "",
        "[1] Why the sky is blue",
        "    https://a.example/sky",
        "    not in it: 1871",
    ]
    assert "\x1b" not in out.getvalue()
    assert err.getvalue() == ""


def test_a_pipe_beside_a_terminal_shows_what_goes_on_until_the_first_word() -> None:
    out, tty = io.StringIO(), DrawnOn(60, 5)
    view = view_for(out, tty, activity())
    view.draw()
    assert tty.seen.lines == ["Waiting for m · 0 s"]
    view.take([TextDelta("It is")])
    assert tty.seen.lines == []
    written = tty.written
    view.take([ToolStarted("1", "web_search", {"query": "q"})])
    view.draw()
    view.end()
    assert tty.written == written
    assert out.getvalue() == "It is\n"


def test_json() -> None:
    out, err = io.StringIO(), io.StringIO()
    view = view_for(out, err, activity(), as_json=True)
    assert isinstance(view, JsonView)
    view.take([Begun("m-1"), *CITED])
    view.end()
    shown = json.loads(out.getvalue())
    ms = shown["searches"][0].pop("ms"), shown["pages"][0].pop("ms")
    assert all(isinstance(each, int) for each in ms)
    assert shown == {
        "answer": "Blue [1].",
        "model": "m-1",
        "citations": [
            {
                "n": 1,
                "start": 5,
                "end": 8,
                "url": SKY.url,
                "title": SKY.title,
                "cited_text": "Air scatters blue light.",
                "basis": "snippet",
                "unmatched": ["1871"],
            }
        ],
        "read": [{"n": 2, "url": SEA.url, "title": SEA.title}],
        "searches": [{"query": "sky", "provider": "ddg", "results": 2, "ok": True}],
        "pages": [{"url": SEA.url, "ok": True}],
        "usage": {"total_tokens": 15},
    }


def test_failures() -> None:
    broken: list[Event] = [TextDelta("It is"), Failed(502, {"message": "gone\x1b[31m", "code": "x"})]
    tty = DrawnOn(60, 8)
    live(tty, broken)
    assert tty.seen.lines == ["It is", "The answer broke off: gone[31m"]
    out, err = io.StringIO(), io.StringIO()
    for as_json in (False, True):
        view = view_for(out, err, activity(), as_json=as_json)
        view.take(broken)
        view.end()
    assert err.getvalue() == "The answer broke off: gone[31m\n"
    plain, _, shown = out.getvalue().partition("\n")
    assert plain == "It is"
    assert json.loads(shown)["error"]["code"] == "x"


# Hostile text

HOSTILE = (
    "\x1b[2J\x1b]0;title\x07\x9b31m\r\x08\x00\u202egnp.exe\u2066 &#27;[5m &#13; <b>x</b> ![i](https://i.example) x"
)
ORDERS = re.compile(r"\x1b\[(?:\?(?:7|2026)[hl]|[0-9]*A|J|[0-9;]*m)|\x1b\]8;;[!-~]*\x1b\\")


@pytest.mark.parametrize("columns", [20, 80])
def test_nothing_that_others_wrote_is_obeyed(columns: int) -> None:
    source = Source(1, "https://a.example/\x1b[2J", f"T{HOSTILE}")
    tty = DrawnOn(columns, 12)
    events: list[Event] = [
        ToolStarted("1", "web_search", {"query": HOSTILE}),
        ToolFinished("1", "web_search", True, "ddg", (source,)),
        ToolStarted("2", "open_page", {"urls": [f"https://{HOSTILE}/", "http://[" + HOSTILE]}),
        ToolFinished("2", "open_page", True, "r", (source,)),
        *pieces(f"a {HOSTILE}\n\n```{HOSTILE}\n{HOSTILE}\n```\n", 1),
        Citation(0, 1, source, Proof(HOSTILE, "page", (HOSTILE,))),
        Failed(500, {"message": HOSTILE}),
    ]
    live(tty, events, verbose=True)
    rest = ORDERS.sub("", tty.written).replace("\n", "").replace("\r", "")
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", rest)
    assert tty.written.count("\r") <= tty.written.count("\x1b[?2026h"), "each draw returns to the line's beginning once"
    assert "<b>x</b>" in tty.seen.text.replace("\n", "")


def test_json_with_hostile_text() -> None:
    out = io.StringIO()
    view = JsonView(out, io.StringIO(), activity())
    view.take([TextDelta(HOSTILE)])
    view.end()
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2066]", out.getvalue())
    assert json.loads(out.getvalue())["answer"] == HOSTILE


# Colours, and large answers


def test_without_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    tty = DrawnOn(60, 20)
    live(tty, [*pieces(ANSWER, 9), *CITED])
    assert not re.search(r"\x1b\[[0-9;]*(?:3|4|9|10)[0-7]m", tty.written)


def test_a_dumb_terminal_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(view_for(DrawnOn(), DrawnOn(), activity()), PlainView)


@pytest.mark.parametrize(
    "unit",
    ["word and *more* text ", f"- {'an item ' * 40}\n", f"{'A paragraph. ' * 30}\n\n", f"    {'code ' * 15}\n"],
    ids=["words", "items", "paragraphs", "code"],
)
def test_a_large_answer(unit: str) -> None:
    """200 kB: every character once, and drawn often without each picture costing more than the one before."""
    text = unit * (200_000 // len(unit))
    tty = DrawnOn(80, 24)
    view = LiveView(tty, tty, activity())
    for at, event in enumerate(pieces(text, 40)):
        view.take([event])
        if at % 500 == 0:
            view.draw()
    view.end()
    seen = re.sub(r"[\s•*-]", "", tty.seen.text)
    assert seen == re.sub(r"[\s•*-]", "", text)
