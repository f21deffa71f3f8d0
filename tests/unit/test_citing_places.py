"""Where a marker is a citation: cited prose of `tests/data/citing`, and code and data in which nothing is one. Each is
fed whole and character by character.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.answering.citations import Citer
from proxy.answering.citing_places import stands_in_call
from proxy.values.events import Citation, TextDelta
from tools.ledger import Ledger

CORPUS = Path(__file__).parents[1] / "data" / "citing"
CODE: list[dict[str, Any]] = yaml.safe_load((CORPUS / "code_and_data.yaml").read_text(encoding="utf-8"))
PROSE: list[dict[str, Any]] = [
    snippet
    for snippets in yaml.safe_load((CORPUS / "prose.yaml").read_text(encoding="utf-8")).values()
    for snippet in snippets
]

KNOWN = Ledger()
for n in (1, 2, 3):
    KNOWN.restore(n, f"https://source{n}.example/", f"Source {n}")


def run(pieces: list[str]) -> tuple[str, list[int]]:
    citer = Citer(KNOWN.get, "link")
    events = [event for piece in pieces for event in citer.feed(piece)] + citer.flush()
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    return text, [event.source.n for event in events if isinstance(event, Citation)]


def both_ways(text: str) -> tuple[str, list[int]]:
    whole = run([text])
    assert run(list(text)) == whole
    return whole


def test_the_corpora_are_large_enough() -> None:
    for corpus in (CODE, PROSE):
        assert len(corpus) >= 120
        assert 4 * sum(1 for snippet in corpus if snippet.get("held_out")) >= len(corpus)


@pytest.mark.parametrize("snippet", CODE, ids=lambda snippet: snippet["name"])
def test_code_and_data_stay_as_they_are(snippet: dict[str, Any]) -> None:
    assert both_ways(snippet["text"]) == (snippet["text"], [])


@pytest.mark.parametrize("snippet", CODE, ids=lambda snippet: snippet["name"])
def test_code_and_data_keep_their_numbers_behind_an_answer_that_counts_others(snippet: dict[str, Any]) -> None:
    """What people see as 1 is here the model's 3."""
    text, cited = both_ways("So it is [3].\n\n" + snippet["text"])
    assert (text, cited) == (f"So it is [[1]](https://source3.example/).\n\n{snippet['text']}", [3])


@pytest.mark.parametrize("snippet", PROSE, ids=lambda snippet: snippet["text"][:40])
def test_prose_is_cited(snippet: dict[str, Any]) -> None:
    assert both_ways(snippet["text"])[1] == snippet["cited"]


@given(st.text("aB_.!() ", max_size=30))
def test_a_call_is_open_where_a_name_stands_before_what_is_not_closed(text: str) -> None:
    """The same as by its definition, which looks at every parenthesis anew."""
    opened = [n for n, char in enumerate(text) if char == "(" and is_open(text[n + 1 :])]
    name = re.compile(r"(?:(?<!\w)[a-z_]\w*|\w\.\w+)!?\Z", re.ASCII)
    assert stands_in_call(text) is any(name.search(text[:n]) is not None for n in opened)


def is_open(behind: str) -> bool:
    depths = itertools.accumulate((char == "(") - (char == ")") for char in behind)
    return all(depth >= 0 for depth in depths)


def test_most_markers_wait_for_one_word_at_most() -> None:
    """Text must stream: behind a marker the first character that is not blank decides."""
    late = [snippet["text"] for snippet in PROSE if not decided_at_once(snippet["text"])]
    assert len(late) * 20 <= len(PROSE), late


def decided_at_once(text: str) -> bool:
    citer = Citer(lambda n: None, "link")
    made = 0
    for i, char in enumerate(text):
        made += sum(len(event.text) for event in citer.feed(char) if isinstance(event, TextDelta))
        held = text[made : i + 1]
        if "]" in held and held[-1] not in " \t]" and not held.endswith("("):
            return False
    return True


@pytest.mark.parametrize("snippet", [*CODE, *PROSE], ids=lambda snippet: snippet["text"][:30])
def test_little_is_held(snippet: dict[str, Any]) -> None:
    citer = Citer(lambda n: None, "openai")
    made = ""
    for i, char in enumerate(snippet["text"]):
        made += "".join(event.text for event in citer.feed(char) if isinstance(event, TextDelta))
        assert i + 1 - len(made) <= 64


PIECES = [
    *"[]()【】`~\\ \t\n\r,.:;/_$@->#\"'{}<*+=%|&^1aZé日»”",
    *("[1]", "[1, 2]", "[[3]]", "【1†s】", "word ", " [1]", "[1];", "[1] =", "[1]**", "**", "\n- ", "\n1. ", "\n    "),
    *("<code>", "</code>", "<div>", '<a href="x">', '<item k="', '{"a": ', '["', "\n\n", "\nSources:\n", "\n[1] Title"),
    *("\n@@ -1 +1 @@\n", "\n+++ b\n", "\n---\n", "key: ", "x = ", "return ", "for x in ", "f(", "print(", "http://x/"),
    *("`c`", "\n```\n", "\n| a | ", "$x", "\\(", "a,b,c", "In ", "make", "[1]:", "; "),
]
TEXTS = st.lists(st.sampled_from([*PIECES, *(snippet["text"] for snippet in [*CODE, *PROSE])]), max_size=20).map(
    "".join
)


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.data())
def test_any_cuts_give_the_same(text: str, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(text)))
    second = data.draw(st.integers(first, len(text)))
    assert run([text[:first], text[first:second], text[second:]]) == both_ways(text)


# What stands around a marker, one thing at a time. `«1»` is a marker that counts.
PLACES = {
    "a tag of prose": "<b>Paris</b> «1», <span>Rome «2»</span>",
    "a tag's content": "<note>Paris [1]</note> Rome «2»",
    "a tag's content over lines": "<note>\nParis [1]\n\nRome [2]\n</note>\nBonn «3»",
    "a tag with the same tag in it": "<a1>\n<a1>\nx y [1]\n</a1>\nx y [2]\n</a1>\nx y «3»",
    "a tag that is mentioned": "<form> is a tag «1».\nUse <form> here «2».\n\nSo «3».",
    "a tag that is not closed in its line": "See <note>Paris [1]\nRome «2»",
    "a type": "Vec<T> of words «1»",
    "an address in angles": "<https://example.org> «1»",
    "JSON in a sentence": 'It is {"a": "b [1]", "c": ["d [2]"]} here «3».',
    "JSON with brackets in strings": 'It is {"a": "}", "b": "so [1]"} here «2».',
    "JSON that broke off": 'It is {"a": "b [1]\n\nSo «2».',
    "a brace that is none of JSON": "The set {a, b} is small «1».",
    "code within a line": 'Write `{"` or `<note>` «1».',
    "behind a fence": '```\n{"a": <note>\n```\nSo «1».',
    "a diff and a list": "@@ -1 +1 @@\n-a b [1]\n+a b [2]\n\n- a b «3»",
    "the header of a document": "---\ntitle: Paris [1]\n---\nParis «2»",
    "a line across the page": "So.\n\n---\n\ntitle: Paris «1»",
    "values with commas": "a,b,c\nd,e f [1]\n\ng,h i «1»",
    "thousands": "1,000,000 people «1» and 2,5 % «2»",
    "commas without blanks": "Paris,Rome «1»",
    "an item's paragraph": "- Paris\n\n    is large «1»\n\nRome\n\n    is old [2]",
    "code in an item": "- Paris\n\n      is large [1]",
    "a list of sources": "Sources:\n\n«1» Paris",
    "a list without a heading": "[1] Paris\n[2] Rome",
    "emphasis around a marker": "Paris is large **«1»** or *«2»*, **[3]** Not",
    "behind other signs": "a: [1]\nb, [1]\n(c «2») ([1]) d = [1]\ne > [1]\nf + [1]\n[1]",
    "behind a marker": "So «1», «2»; «3» [7] «1»",
    "before a word": "how [1]sweet",
    "before a word, in Chinese": "巴黎«1»很大",
}


@pytest.mark.parametrize("name", PLACES)
def test_places(name: str) -> None:
    template = PLACES[name]
    text = template.replace("«", "[").replace("»", "]")
    wanted = [int(part.partition("»")[0]) for part in template.split("«")[1:]]
    for cut in range(len(text) + 1):
        assert run([text[:cut], text[cut:]])[1] == wanted, f"cut at {cut}"
    assert both_ways(text)[1] == wanted
