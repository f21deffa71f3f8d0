"""Markers that are a part of their sentence, and known numbers that are none: the same source is the same number."""

from __future__ import annotations

import pytest

from proxy.answering.citations import Citer
from proxy.values.events import Citation, TextDelta
from proxy.values.request import CitationStyle
from tests.unit.test_citations import KNOWN, STYLES, every_way, expected

# Known numbers that are a part of their sentence: what is shown has to be the number of the same source everywhere.
IN_SENTENCES = {
    "a paragraph": ("Salty [2].\n\n[1] says so.", "Salty «2».\n\n«1» says so."),
    "the first paragraph": ("[2] says so, [1] does too", "«2» says so, «1» does too"),
    "a row": ("[2] and [1] agree, as [3] does", "«2» and «1» agree, as «3» does"),
    "a row with commas": ("[2], [1] and [3] all agree", "«2», «1» and «3» all agree"),
    "numbers in one bracket": ("[2, 1] agree on it", "«2»«1» agree on it"),
    "other brackets": ("【2†source】 says so", "«2» says so"),
    "an item": ("- [2] says so\n- [1] does too", "- «2» says so\n- «1» does too"),
    "a row with two in one bracket": ("[2][1, 3] say so.", "«2»«1»«3» say so."),
    "a list with two in one bracket": ("[1], [2, 3] and others agree.", "«1», «2»«3» and others agree."),
    "a genitive": ("Salty [2].\n\n[1]'s claim is wrong.", "Salty «2».\n\n«1»'s claim is wrong."),
    "a label behind a sentence": ("Salty [2]. Source: [1]", "Salty «2». Source: «1»"),
    "emphasis": ("**[2]** says so and **[1] agrees**", "**«2»** says so and **«1» agrees**"),
    "Chinese": ("[2]指出，海是咸的。\n[1]说", "«2»指出，海是咸的。\n«1»说"),
    "a cell": ("| Sea | [2] says so |", "| Sea | «2» says so |"),
    "behind a comma": ("As for the salt, [2] says so.", "As for the salt, «2» says so."),
    "behind a comma, at the end": ("It is the salt of rivers, [2].", "It is the salt of rivers, «2»."),
    "behind a semicolon": ("So much for salt; [2] says so.", "So much for salt; «2» says so."),
    "behind a colon": ("There are two reasons: [2] gives both.", "There are two reasons: «2» gives both."),
    "in parentheses": ("The sea is salty ([2], [1]).", "The sea is salty («2», «1»)."),
    "a label": ("Salty.\n\nSource: [2]", "Salty.\n\nSource: «2»"),
    "a label in bold": ("**Sources:** [2], [1]", "**Sources:** «2», «1»"),
    "a label in parentheses": ("It is salty (Quelle: [2]).", "It is salty (Quelle: «2»)."),
    "titles without a heading": ("I read:\n[2] Two\n[1]  One, part 1", "I read:\n«2» Two\n«1»  One, part 1"),
    "addresses without a heading": ("[2] https://two.org/b?x=1\n[1] One", "«2» https://two.org/b?x=1\n«1» One"),
}
NOT_IN_SENTENCES = [
    *("b, [1]", "mov eax, [1]", "nums: [1]", "sources: [1]", "x = [1]", "f (a, [1])", "print ([1])", "([1])"),
    *("[1] Paris\n[2] Rome", "[1] Onerous", "[1] TRUE FALSE", "[1] error: no such file", "[1]+  Done", "[1] a b c"),
    *(
        "- [1] and [2]\n",
        "[1] to [3]\n",
        "The values are: [1]",
        "The first rows of it: [1, 2], [3]",
        ".. [1] see there",
    ),
    *("| a | [1] |", "(foo | [1])"),
    *(
        "Which one?\n\n[1] yes\n[2] no\n[3] maybe",
        "Chapters:\n[1] introduction\n[2] methods \n",
        "- [1] apples\n- [2] pears",
    ),
]


@pytest.mark.parametrize("style", [style for style in STYLES if style != "none"])
@pytest.mark.parametrize("name", IN_SENTENCES)
def test_markers_in_sentences(name: str, style: CitationStyle) -> None:
    text, template = IN_SENTENCES[name]
    assert every_way(text, style) == expected(template, style)


def test_without_markers_a_sentence_keeps_its_subject() -> None:
    for text in ("[1] says so", "As for the salt, [2] says so."):
        assert every_way(text, "none") == (text, [])


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("text", NOT_IN_SENTENCES)
def test_markers_in_no_sentence(text: str, style: CitationStyle) -> None:
    """Nor is the number changed: a program may read it."""
    begin, cited = every_way("So [3].\n\n", style)
    assert every_way("So [3].\n\n" + text, style) == (begin + text, cited)


@pytest.mark.parametrize("style", STYLES)
def test_text_that_looked_like_json_counts_in_the_offsets_of_the_next_round(style: CitationStyle) -> None:
    before = ['{"a": 1} let me search', " and more text"]
    citer = Citer(KNOWN.get, style)
    events = [event for piece in before for event in citer.feed(piece)] + citer.end_round()
    events += citer.feed("\n\nThe sea is salty [2].") + citer.flush()
    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    (citation,) = [event for event in events if isinstance(event, Citation)]
    assert said[: citation.start].rstrip().endswith("The sea is salty")
    assert said[citation.end :] == "."
