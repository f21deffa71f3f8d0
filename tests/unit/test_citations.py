"""The citer, fed whole, character by character and cut at every place: same text, same citations."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.answering.citations import Citer
from proxy.values.events import Citation, TextDelta
from proxy.values.request import CitationStyle
from tools.ledger import Ledger, Source

STYLES: tuple[CitationStyle, ...] = get_args(CitationStyle)
LOCAL = 4


def ledger() -> Ledger:
    """Knows 1, 2, 3 (web pages), 4 (a local document) and 12."""
    sources = Ledger()
    sources.restore(1, "https://www.one.org/a", "One")
    sources.restore(2, "https://two.org/b?x=1", "Two")
    sources.restore(3, "http://three.org/", "Three")
    sources.restore(LOCAL, "local:docs/guide.md", "The [guide]")
    sources.restore(12, "https://twelve.org/", "Twelve")
    return sources


KNOWN = ledger()
Made = tuple[str, list[tuple[int, int, int]]]


def run(
    pieces: Sequence[str],
    style: CitationStyle = "link",
    lookup: Callable[[int], Source | None] = KNOWN.get,
    footer: bool = False,
    enabled: bool = True,
) -> Made:
    citer = Citer(lookup, style, footer, enabled)
    text = ""
    citations: list[Citation] = []
    for made in [*map(citer.feed, pieces), citer.flush()]:
        kinds = [type(event) for event in made]
        assert kinds.count(TextDelta) <= 1
        assert TextDelta not in kinds[1:]
        before = len(text)
        for event in made:
            if isinstance(event, TextDelta):
                assert event.text
                text += event.text
            else:
                assert before <= event.start <= event.end <= len(text), "a marker was split over two deltas"
                citations.append(event)
    assert citer.cited == list({c.source.n: c.source for c in citations}.values())
    return text, [(c.start, c.end, c.source.n) for c in citations]


def every_way(text: str, style: CitationStyle = "link", footer: bool = False) -> Made:
    whole = run([text], style, footer=footer)
    assert run(list(text), style, footer=footer) == whole
    for cut in range(len(text) + 1):
        assert run([text[:cut], text[cut:]], style, footer=footer) == whole, f"cut at {cut}"
    return whole


def marker(source: Source, style: CitationStyle, shown: dict[int, int]) -> str:
    """`shown` grows: in links the first source that is cited is the first that people see."""
    web, count = source.n != LOCAL, shown.setdefault(source.n, len(shown) + 1)
    return {
        "link": f"[[{count}]]({source.url})" if web else f"[{count}]",
        "number": f"[{source.n}]",
        "openai": f"([{source.host}]({source.url}))" if web else f"({source.title})",
        "none": "",
    }[style]


def expected(template: str, style: CitationStyle) -> Made:
    """In a template `«n»` is a marker. `openai` puts a blank before it where there is none, `none` takes them away."""
    text = ""
    citations = []
    shown: dict[int, int] = {}
    rest = template
    while "«" in rest:
        plain, _, rest = rest.partition("«")
        number, _, rest = rest.partition("»")
        text += plain
        if style == "none":
            text = text.rstrip(" \t")
        if style == "openai" and text and not text[-1].isspace():
            text += " "
        written = marker(KNOWN.get(int(number)) or pytest.fail(number), style, shown)
        citations.append((len(text), len(text) + len(written), int(number)))
        text += written
    return text + rest, citations


MARKERS = {
    "plain": ("Paris is big [1].", "Paris is big «1»."),
    "after a word": ("It is in France[1]. Yes.", "It is in France«1». Yes."),
    "after CJK": ("首都[1]。東京[2]", "首都«1»。東京«2»"),
    "after emoji": ("🎉🎉 [1] é[2]", "🎉🎉 «1» é«2»"),
    "two digits": ("x. [12]", "x. «12»"),
    "list": ("So [1, 2].", "So «1»«2»."),
    "list without blank": ("So [1,2,3].", "So «1»«2»«3»."),
    "adjacent": ("So [1][2].", "So «1»«2»."),
    "adjacent with blank": ("So [1] [2].", "So «1» «2»."),
    "double brackets": ("So [[1]].", "So «1»."),
    "lenticular": ("So 【1†L10-L20】.", "So «1»."),
    "lenticular, bare": ("So【1】【2†source】。", "So«1»«2»。"),
    "lenticular list": ("So 【1, 2】", "So «1»«2»"),
    "link": ("So [1](https://evil.example/a_(b)?c) on", "So «1» on"),
    "link, double": ("So [[1]](http://x.org) on", "So «1» on"),
    "link to www": ("So [1](www.x.org)[2](/rel)[3](#top)", "So «1»«2»«3»"),
    "link in angles": ("So [1](<https://x y>) [4](local:docs/x)", "So «1» «4»"),
    "link with title": ('So [1](HTTPS://X.ORG "A title") on', "So «1» on"),
    "link on a list": ("So [1, 2](https://x.org) on", "So «1»«2» on"),
    "unclosed link ends with its line": ("So [1](https://x.org/a\nnext [2]", "So «1»\nnext «2»"),
    "unclosed link, CRLF": ("So [1](https://x.org/a\r\nnext", "So «1»\r\nnext"),
    "parenthesis is no link": ("So [1](see below) and [2](httpx) (a)", "So «1»(see below) and «2»(httpx) (a)"),
    "parenthesis at the end": ("So [1](", "So «1»("),
    "half a link at the end": ("So [1](https:/", "So «1»(https:/"),
    "unknown": ("So [7] and [0] and [999] [1234].", "So [7] and [0] and [999] [1234]."),
    "unknown, as written": ("[7,8] [[7]] 【7†x】 [7](http://x/[1]) [07]", "[7,8] [[7]] 【7†x】 [7](http://x/[1]) [07]"),
    "unknown in a list": ("So [1, 7].", "So «1»[7]."),
    "nothing before a marker matters": ("So [1].Then[2] [3](https://x.org).Then[1]", "So «1».Then«2» «3».Then«1»"),
    "after an unknown": ("So [7][1].", "So [7]«1»."),
    "local document": ("So [4].", "So «4»."),
    "after bold and quotes": ('**a**[1] "b"[2] (c)[3] _d_[1] `e`[2]', '**a**«1» "b"«2» (c)«3» _d_«1» `e`«2»'),
    "after numbers and names": ("1990s[1] 42[1] CO2[1] GPT4[1] OpenAI[1]", "1990s«1» 42«1» CO2«1» GPT4«1» OpenAI«1»"),
    "after odd capitals": ("macOS[1] iPhone[1] mRNA[1]", "macOS«1» iPhone«1» mRNA«1»"),
    "after a domain": ("example.com[1] Node.js[1] …ah...Paris[1]", "example.com«1» Node.js«1» …ah...Paris«1»"),
    "ASCII inside CJK": ("维生素C[1]", "维生素C«1»"),
    "words that programs use too": (
        "hepatitis B[1] and recent data[2]; data[1], A[1]",
        "hepatitis B«1» and recent data«2»; data[1], A[1]",
    ),
    "after a closed link": ("[Paris](https://p.org)[1]", "[Paris](https://p.org)«1»"),
    "after an address": (
        "https://x.org [1] (https://x.org)[2] <http://x>[3]",
        "https://x.org «1» (https://x.org)«2» <http://x>«3»",
    ),
    "address as link text": ("[https://x.org](https://x.org/[1]) [1]", "[https://x.org](https://x.org/[1]) «1»"),
    "and/or": ("and/or [1] a//b[2]", "and/or «1» a//b[2]"),
    "a link anywhere in prose": ("[1](https://x.org) and ([2](www.x.org))", "«1» and («2»)"),
}
TEXT = {
    "a bare list": "[1] [2] [3] … [12]",
    "a bare list with words between": "[1], [2] and [3]",
    "a bare item": "Well:\n- [1] und [2]\n",
    "a bare list of sources": "Sources:\n[1] [2] [3]\n",
    "a bare list in other brackets": "【1】 to 【3】",
    "inline code": "Use `[1]` and ``a`[1]`` and ` `` [1]`.",
    "unclosed code": "Use `[1] still [2]\nand [3]",
    "fence": "```\n[1]\n```\n",
    "fence with info": "Look:\n```python\nx = [1]\n\n\ny = [2]\n```",
    "tilde fence": "~~~\n[1]\n```\n[1]\n~~~~\n",
    "longer fence": "````\n```\n[1]\n```\n[1]\n````",
    "indented fence": "   ```\n   [1]\n\n   [1]\n   ```",
    "fence in a list": "- ```\n  [1]\n\n  [1]\n  ```\n1. ~~~\n   [1]\n   ~~~",
    "fence in a nested list": "1. a\n\n    ```\n    [1]\n\n    [1]\n    ```\n",
    "fence in a quote": "> ```\n> [1]\n>\n> [1]\n> ```\n",
    "fence not closed in mid-line": "```\na ```\n[1]\n- ```\n[1]",
    "fence not closed by text after it": "```\n[1]\n``` no [1]\n[1]",
    "fence ends an unclosed span": "a ` b\n```\n[1]\n\n` [1]",
    "link target": "[Paris](https://x.org/[1]) [a](b (c) [1])",
    "bare address": "https://x/?a[1]=2 http://x/[1] HTTPS://X/[1]: www.x.org/?q[]=[1]",
    "image": "![1](https://x.org/a.png) ![[1]](https://x.org/a.png)",
    "escaped": r"\[1] and \\\[1]",
    "reference link": "[Paris][1] and [a b][2]",
    "footnote": "So[^1] and [^1]: a",
    "index": "a[1] arr[1] argv[1] x_1[2] list.items[1] foo()[1] $x[1] x1[1] rowData[1] A[1]",
    "more index": "@a_list[1] p->name[1] std::names[1] foo().bar[1] a[1][2] x[[1]] a[1].names[2] data[1]",
    "in outer brackets": "So [[1], [2]]",
    "definition": "\n[1]: https://x.org",
    "shapes that are none": "[ 1] [1 ] [1,] [1, x] [x] [-1] [1.5] [] [1 2] 【】 【1 】 【x†1】 [１]",
    "unfinished": "So [1, 2",
    "unfinished lenticular": "So 【1†abc",
    "JSON object": '{"a": [1], "b": "x [2]"}',
    "JSON list": ' \n[{"a": [1]}]',
    "JSON list, spaced": '[   "a", [1]]',
    "JSON list over lines": "[\n  [1]\n]",
}  # fmt: skip
AFTER_CODE = [
    "`a` ", "`` a` `` ", "`a\n\n", "`a\n> \n", "```\na\n```\n", "```\na\n  ````  \n", "~~~ `x`\na\n~~~\n", "```a``` ",
    "> ```\n> a\n> ```\n", r"\` ", r"\`a ", "~~gone~~ ", "~5 ", "a ~~~ ", "```\n``` x\n```\n", "a ```b\nc\n``` ", "",
]  # fmt: skip


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", MARKERS)
def test_markers(name: str, style: CitationStyle) -> None:
    text, template = MARKERS[name]
    assert every_way(text, style) == expected(template, style)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", TEXT)
def test_text_that_only_looks_like_a_marker(name: str, style: CitationStyle) -> None:
    assert every_way(TEXT[name], style) == (TEXT[name], [])


@pytest.mark.parametrize("code", AFTER_CODE)
def test_markers_count_again_after_code(code: str) -> None:
    said = code + "so "
    text, citations = every_way(said + "[1]", "number")
    assert text == said + "[1]"
    assert citations == [(len(said), len(said) + 3, 1)]


def test_known_numbers_in_code_like_text_after_a_marker() -> None:
    assert every_way("x [1]```\n[2]", "number") == ("x [1]```\n[2]", [(2, 5, 1)]), "no fence in mid-line, but a span"


@pytest.mark.parametrize(
    ("text", "openai", "none"),
    [
        ("So   [1].", "So ([one.org](https://www.one.org/a)).", "So."),
        ("So\u202f【1】.", "So ([one.org](https://www.one.org/a)).", "So."),
        ("So [1] [2] .", "So ([one.org](https://www.one.org/a)) ([two.org](https://two.org/b?x=1)) .", "So ."),
        ("So [7] ", "So [7] ", "So [7] "),
        ("So[1]", "So ([one.org](https://www.one.org/a))", "So"),
    ],
)
def test_blanks_before_a_marker(text: str, openai: str, none: str) -> None:
    assert every_way(text, "openai")[0] == openai
    assert every_way(text, "none")[0] == none


def test_a_flood_of_blanks_is_not_held() -> None:
    text, citations = every_way("So it is" + " " * 100 + "[1][2]", "none")
    assert text == "So it is" + " " * 92
    assert citations == [(100, 100, 1), (100, 100, 2)]


def test_a_link_after_an_exclamation_mark_is_no_image() -> None:
    assert every_way("Wow![1]!", "link")[0] == "Wow! [[1]](https://www.one.org/a)!"
    assert every_way("Wow![1]!", "number")[0] == "Wow![1]!"


def test_long_lenticular_is_text() -> None:
    text = "So【1†" + "x" * 64 + "】"
    assert every_way(text) == (text, [])
    assert every_way("So【1†" + "x" * 50 + "】", "number") == ("So[1]", [(2, 5, 1)])


def test_long_lists() -> None:
    assert every_way("So [" + ", ".join(["12"] * 11) + "]", "number")[0] == "So " + "[12]" * 11
    long = "So [" + ", ".join(["12"] * 30) + "]"
    assert every_way(long) == (long, [])


def test_sources_may_be_found_between_feeds() -> None:
    sources = Ledger()
    citer = Citer(sources.get, "number")
    assert citer.feed("a [1] b [1") == [TextDelta("a [1] b ")]
    source = sources.add("https://x.org", "X")
    assert citer.feed("] c") == [TextDelta("[1] c"), Citation(8, 11, source)]


def test_deltas_flow_at_once() -> None:
    citer = Citer(KNOWN.get)
    for piece in ("Hello", " world", "\n\n", "- a (b)", " `code", "[1]", "` and", " http://x/", "[1]", " x] so"):
        assert citer.feed(piece) == [TextDelta(piece)]
    assert citer.feed("") == []
    assert citer.feed(" [1") == [TextDelta(" ")]
    assert citer.feed("]") == []
    one = KNOWN.get(1)
    assert one is not None
    text = "[[1]](https://www.one.org/a)"
    start = len("Hello world\n\n- a (b) `code[1]` and http://x/[1] x] so ")
    assert citer.feed(".") == [TextDelta(text + "."), Citation(start, start + len(text), one)]
    assert citer.feed(" tail 【") == [TextDelta(" tail ")]
    assert citer.flush() == [TextDelta("【")]
    assert citer.flush() == []


def test_a_swallowed_target_is_not_kept() -> None:
    citer = Citer(KNOWN.get, "number")
    assert citer.feed("[1](https://") == [TextDelta("[1]"), Citation(0, 3, citer.cited[0])]
    for _ in range(100):
        assert citer.feed("x" * 1000) == []
    assert citer.feed(") on") == [TextDelta(" on")]


@pytest.mark.parametrize("style", STYLES)
def test_disabled(style: CitationStyle) -> None:
    text = "So [1] `x` 【2†】 "
    assert run(list(text), style, footer=True, enabled=False) == (text, [])


@pytest.mark.parametrize("style", STYLES)
def test_footer(style: CitationStyle) -> None:
    body, citations = every_way("b [2], d [4], a [1], b [2]", style)
    one, two, guide = "[One](https://www.one.org/a)", "[Two](https://two.org/b?x=1)", "The \\[guide\\]"
    lines = (
        (f"[1] {one}", f"[2] {two}", f"[4] {guide}")
        if style == "number"
        else (f"[1] {two}", f"[2] {guide}", f"[3] {one}")
    )
    footer = "\n".join(["\n\nSources:", *lines])
    assert every_way("b [2], d [4], a [1], b [2]", style, footer=True) == (body + footer, citations)


def test_no_footer_without_citations() -> None:
    assert every_way("nothing [7]", footer=True) == ("nothing [7]", [])
    assert every_way('{"a": [1]}', footer=True) == ('{"a": [1]}', [])


def test_footer_comes_once() -> None:
    citer = Citer(KNOWN.get, "number", footer=True)
    citer.feed("a [1]")
    assert citer.flush() == [
        TextDelta("[1]\n\nSources:\n[1] [One](https://www.one.org/a)"),
        Citation(2, 5, citer.cited[0]),
    ]
    assert citer.flush() == []


def test_cited_in_order_of_first_citation() -> None:
    citer = Citer(KNOWN.get)
    citer.feed("So [3] [1] [3] [2] .")
    assert [source.n for source in citer.cited] == [3, 1, 2]


# Any text at all.

ATOMS = [
    *'[]()【】†`~!\\ \t\n\r,.:/_$@-># "{<*1127aZé日🎉\u202f',
    *("[1]", "[1, 2]", "[[3]]", "](", "](http", "s://x", "```", "\n~~~", "\n\n", "【1†", "[1](https://", "a[", "()"),
    *("        ", "www.", "-> ", "local:", "\n> ", "0123456789"),
]
texts = st.lists(st.sampled_from(ATOMS), max_size=60).map("".join)


def cut(text: str, seed: int) -> list[str]:
    choose = random.Random(seed)
    places = sorted(choose.choices(range(len(text) + 1), k=choose.randrange(1, 12)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


@settings(max_examples=200, deadline=None)
@given(texts, st.sampled_from(STYLES), st.integers(0, 2**32))
def test_any_cuts_give_the_same(text: str, style: CitationStyle, seed: int) -> None:
    whole = run([text], style)
    assert run(list(text), style) == whole
    assert run(cut(text, seed), style) == whole


@settings(max_examples=200, deadline=None)
@given(texts, st.sampled_from(STYLES))
def test_ranges_are_markers(text: str, style: CitationStyle) -> None:
    made, citations = run([text], style)
    shown: dict[int, int] = {}
    for start, end, n in citations:
        assert made[start:end] == marker(KNOWN.get(n) or pytest.fail(str(n)), style, shown)
    assert citations == sorted(citations, key=lambda citation: citation[:2])


@settings(max_examples=200, deadline=None)
@given(texts, st.sampled_from(STYLES))
def test_nothing_known_changes_nothing_and_little_is_held(text: str, style: CitationStyle) -> None:
    citer = Citer(lambda n: None, style, footer=True)
    made = ""
    for i, char in enumerate(text):
        made += "".join(event.text for event in citer.feed(char) if isinstance(event, TextDelta))
        assert text.startswith(made)
        assert i + 1 - len(made) <= 64
    made += "".join(event.text for event in citer.flush() if isinstance(event, TextDelta))
    assert made == text


@pytest.mark.parametrize("style", STYLES)
def test_the_most_that_is_held(style: CitationStyle) -> None:
    citer = Citer(lambda n: None, style)
    longest = 0
    for text in (
        "x" + " " * 20 + "【1†" + "y" * 80,
        "\n" + " " * 20 + "[" + "12, " * 10 + "123](https:",
        "[" + " " * 90,
    ):
        made = 0
        for i, char in enumerate(text):
            made += sum(len(event.text) for event in citer.feed(char) if isinstance(event, TextDelta))
            longest = max(longest, i + 1 - made)
        citer.flush()
    assert 55 <= longest <= 64


# Linear time: counted in lines of our code executed, not in seconds.


def work(pieces: Sequence[str], style: CitationStyle, *, marking: bool = False) -> int:
    citer = Citer(KNOWN.get, style)
    if marking:
        citer.mark_sentences(lambda sentence: None)
    count = 0

    def trace(frame: object, event: str, arg: object) -> object:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for piece in (*pieces, "[1]"):  # for a marker all must be read that has passed before it
            citer.feed(piece)
        citer.flush()
    finally:
        sys.settrace(before)
    return count


UNITS = [
    *("[", "[[1], ", "[1](https://x", "`", "``a` ", "~~~\n", "【1†", "[1,", "](", "\\", " ", "a_", "https://["),
    *("word ", "word [1]. ", "- a [1]\n", "<", '<a b="', '{"', "f(", "\n+a"),
]


@pytest.mark.parametrize("marking", [False, True], ids=["", "marking sentences"])
@pytest.mark.parametrize("style", ["link", "none"])
@pytest.mark.parametrize("unit", [*UNITS, "A word. ", "e.g. ", ". ", "。", "- a\n", ".   "])
def test_work_is_linear(unit: str, style: CitationStyle, marking: bool) -> None:
    for pieces in (lambda n: [unit * n], lambda n: list(unit * n)):
        small, large = work(pieces(50), style, marking=marking), work(pieces(500), style, marking=marking)
        assert large <= 12 * small + 200


def test_long_answers_in_one_piece() -> None:
    """Big enough that quadratic copying would run into the test's time limit."""
    for unit in ("[1] ", "word [1] ", "word", "`a` [", "a `b\n\n", "[x](y) ", "https://x/[1] ", "【1†a "):
        text = unit * 30_000
        made, _ = run([text], "number")
        assert len(made) == len(text)
