"""Ordinary text that looks like leaked calls: it comes through unchanged, and what is hostile about it stays cheap.

The files in `tests/data/ordinary` talk about tags, quote them, list them in code, and hold complete calls of tools that
were not offered. What they do not hold, because by definition it is a call: a complete, unfenced, unquoted shape that
names an offered tool, for example
- `<tool_call>{"name": "web_search", "arguments": {"query": "x"}}` in the middle of a sentence,
- a second such shape right behind a quoted one (only what directly follows the quotation mark is quoted),
- `web_search[ARGS]{"query": "x"}` in a C listing without a fence,
- the same shapes in a code block made by indentation alone, in an HTML comment or in a `<pre>`,
- a message that is nothing but one fence with calls, or nothing but `{"name": "web_search", "parameters": {…}}`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.upstreams import leaks
from proxy.upstreams.leaks import LeakedCall, LeakReader

ORDINARY = sorted((Path(__file__).parents[1] / "data" / "ordinary").glob("*.md"))
TOOLS: Mapping[str, Mapping[str, Any]] = {
    "web_search": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    "open_page": {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]},
    "get_weather": {},
}
MOST_HELD_IN_PROSE = 128  # of what turns out to be ordinary: an opener, a name and what was hoped to be arguments
JSON = '{"name": "web_search", "arguments": {"query": "tides"}}'


NAMES = ("web_search", "open_page", "9lives", "_x", "été")


@given(st.text(alphabet=st.sampled_from(" \n(.-_/<[`~9éwopenb_xt́中"), max_size=12))
@example(" tok")
@example("web")
@example(" (we")
def test_a_piece_that_is_one_word_is_judged_as_all_others_are(text: str) -> None:
    """By the end of it: nothing but that may be the beginning of a name."""
    begins = any(name.startswith(text[at:]) for name in NAMES for at in range(len(text)) if not _in_word(text, at))
    opens = any(sign in text for sign in "<[`~")
    assert leaks._Special(NAMES).lacks(text) is not (begins or opens)


def _in_word(text: str, at: int) -> bool:
    return at > 0 and re.match(r"[\w.-]", text[at - 1]) is not None


def pieces(text: str, size: int) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]


def passed(text: str, size: int) -> list[str | LeakedCall]:
    """What comes out, its texts joined."""
    reader = LeakReader(TOOLS)
    out: list[str | LeakedCall] = []
    for made in [*map(reader.feed, pieces(text, size)), reader.flush()]:
        for item in made:
            if isinstance(item, str) and out and isinstance(out[-1], str):
                out[-1] += item
            else:
                out.append(item)
    return out


@pytest.mark.parametrize("file", ORDINARY, ids=lambda file: file.stem)
def test_an_ordinary_file_comes_through_unchanged(file: Path) -> None:
    text = file.read_text("utf-8")
    for size in (len(text), 1, 7):
        assert passed(text, size) == [text]


@pytest.mark.parametrize("file", ORDINARY, ids=lambda file: file.stem)
def test_ordinary_text_leaves_almost_at_once(file: Path) -> None:
    text = file.read_text("utf-8")
    reader = LeakReader(TOOLS)
    left = 0
    for read, char in enumerate(text, 1):
        left += sum(len(item) for item in reader.feed(char) if isinstance(item, str))
        assert read - left <= MOST_HELD_IN_PROSE, text[left:read]


def test_the_corpus_is_there() -> None:
    assert len(ORDINARY) >= 25
    assert sum(len(file.read_text("utf-8")) for file in ORDINARY) >= 20_000


# Each on its own, cut into pieces of every size.
TEXT = {
    "talk": "The tags <tool_call> and </tool_call>, [TOOL_CALLS], <|channel|> or <function=web_search> mark a call.",
    "talk about a tool": "<tool_call>web_search</tool_call> and <function=web_search></function> lack a query.",
    "broken JSON": '<tool_call>{"name": "web_search", "arguments": {"query": }}</tool_call>',
    "JSON with a wrong end": '<tool_call>{"name": "web_search", "arguments": {"query": "x"]}</tool_call>',
    "a number that is none": '<tool_call>{"name": "web_search", "arguments": {"limit": 01}}</tool_call>',
    "arguments that are no object": '<tool_call>{"name": "web_search", "arguments": [1]}</tool_call>',
    "one unknown name of two": f'[TOOL_CALLS][{JSON}, {{"name": "rm", "arguments": {{}}}}]',
    "no list": "[TOOL_CALLS][] [TOOL_CALLS] [web_search](https://a.org) <tool_call>[1]</tool_call>",
    "a longer name": 'my_web_search[ARGS]{"query": "x"} web_searches[ARGS]{} x.web_search[ARGS]{}',
    "a name alone": "web_search[0] and web_search [ARGS] and web_search",
    "an open value": "<function=web_search>\n<parameter=query>\ntides",
    "a value, then prose": "<function=web_search>\n<parameter=query>x</parameter> is how it begins",
    "a description of the tool": '{"name": "web_search", "parameters": {"type": "object", "properties": {}}}',
    "another JSON answer": '{"name": "web_search", "parameters": {}, "description": "Searches."}',
    "a JSON answer": '{"name": "Ada", "born": 1815}',
    "a JSON list": '["name", {"name": "web_search"}]',
    "analysis": "analysis of tides: assistantfinal is a word of the protocol.",
    "Analysis": "Analysis shows that assistantfinal ends it",
    "analysis without end": "analysisWe need to think about assistantcommentary and the rest.",
    "other code": "```python\nprint(1)\n```\n",
    "a fence of two kinds": f"```json\n{JSON}\nand more\n```",
    "an unfinished fence": f"```json\n{JSON}\n",
}


@pytest.mark.parametrize("case", TEXT)
def test_ordinary_text_is_unchanged(case: str) -> None:
    text = TEXT[case]
    for size in range(1, len(text) + 1):
        assert passed(text, size) == [text]


@pytest.mark.parametrize("text", ["", " ", "\n\n", "w", "<", "[", "`"])
def test_the_shortest_texts_pass(text: str) -> None:
    assert passed(text, 1) == ([text] if text else [])


def work(text: str, size: int, tools: Mapping[str, Mapping[str, Any]] = TOOLS) -> int:
    """How many calls and returns, of Python and C functions, it takes to read the text in pieces of this size."""
    count = 0

    def seen(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += 1

    cut = pieces(text, size)
    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        reader = LeakReader(tools)
        for piece in cut:
            reader.feed(piece)
        reader.flush()
    finally:
        sys.setprofile(before)
    return count


HOSTILE = (
    *("<", "[", "`", "w", "\\<", "<tool_call>", "[TOOL_CALLS]", "</tool_call>", "analysisA", "<tool_call>{}"),
    *("<function=web_search><parameter=query>", "web_search[ARGS]{", "<|channel|>commentary to=", "<|start|>assistant"),
    *(
        '<tool_call>{"a":"',
        '<tool_call>{"name":',
        '[TOOL_CALLS][{"name":"web_search","arguments":[',
        '"<tool_call>{"a":1',
    ),
    "<function=web_search><parameter=query>" * 25 + "</parameter>!",
    f"<tool_call>{JSON}",
)


@pytest.mark.parametrize("unit", HOSTILE, ids=lambda unit: unit[:30])
def test_hostile_text_takes_linear_work(unit: str) -> None:
    for size, length in ((100_000, 20_000), (5, 4_000)):
        once, twice = (work(unit * (whole // len(unit)), size) for whole in (length, 2 * length))
        assert twice <= 2.5 * once + 1000


def test_plain_text_takes_few_steps_a_piece() -> None:
    text = "The tide is the rise and fall of the sea. " * 100
    assert work(text, 6) <= 30 * len(pieces(text, 6))


def test_thousands_of_tools_cost_no_more_a_piece() -> None:
    text = "The tide is the rise and fall of the sea. " * 100
    many: dict[str, dict[str, Any]] = {f"weather_of_city_{n}": {} for n in range(2000)}
    assert work(text, 6, many) <= 30 * len(pieces(text, 6)) + 4 * len(many)
    for size in range(1, 40):
        reader = LeakReader(many)
        found = [made for piece in pieces("weather_of_city_1234[ARGS]{}", size) for made in reader.feed(piece)]
        (call,) = [*found, *reader.flush()]
        assert not isinstance(call, str)
        assert call.name == "weather_of_city_1234"


@pytest.mark.parametrize(
    "listing",
    [
        "It writes this:\n\n> {call}\n\nand waits.",
        "It writes this:\n\n    {call}\n\nand waits.",
        "It writes this:\n\n\t{call}\n\nand waits.",
        "| form | model |\n|---|---|\n| {call} | Hermes |\n",
        "It writes <pre>{call}</pre> and waits.",
        "It writes <code>{call}</code> and waits.",
    ],
)
@pytest.mark.parametrize(
    "call",
    [
        '<tool_call>{"name": "web_search", "arguments": {"query": "sky"}}</tool_call>',
        '<function=web_search>{"query": "sky"}</function>',
        '<invoke name="web_search"><parameter name="query">sky</parameter></invoke>',
    ],
)
def test_a_listing_is_not_a_call_however_it_is_set_off(listing: str, call: str) -> None:
    text = listing.format(call=call)
    for size in (1, 7, len(text)):
        reader = LeakReader(TOOLS)
        found = [made for piece in pieces(text, size) for made in reader.feed(piece)] + reader.flush()
        assert "".join(made for made in found if isinstance(made, str)) == text
        assert all(isinstance(made, str) for made in found)


def test_odd_tools_do_no_harm() -> None:
    odd = {"x" * 500: {}, "": {}, "f": {"properties": {"a": {"type": 5}, "b": {"anyOf": 3, "type": [None, "integer"]}}}}
    reader = LeakReader(odd)
    leak = "<function=f><parameter=a>1</parameter><parameter=b>2</parameter></function>"
    (call,) = [made for made in [*reader.feed(leak), *reader.flush()] if not isinstance(made, str)]
    assert call.arguments == '{"a":"1","b":2}'


def test_names_without_measure_are_not_remembered() -> None:
    """Clients choose them, and what is remembered stays."""
    before = leaks._special.cache_info().currsize
    reader = LeakReader({"x" * 1_000_000: {}, "web_search": {}})
    assert leaks._special.cache_info().currsize == before
    assert [*reader.feed("Nothing but words, and web_search"), *reader.flush()] == [
        "Nothing but words, and ",
        "web_search",
    ]
