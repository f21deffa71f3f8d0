"""What the demo model quotes: the sentences of a page that are about a question. Handed texts and a question; hands on
sentences, each with the number of its source. Pure.

A sentence alone says little about what it is about. So the paragraph is chosen first, by its own words and those of the
headings above it, and then its sentences that speak of the question.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from providers.text.headings import heading_in
from providers.text.relevance import rarity
from providers.text.words import terms

MOST_SENTENCES = 4
LONGEST = 400  # characters of a sentence that is quoted
_OF_HEADING = 0.6  # what a word is worth that only a heading above the paragraph says
_NEXT_BEST = 0.7  # as good as the best must a second paragraph be
_LEAST = 0.34  # of what the question asks, by weight, must be spoken of
_MANY = 30  # words: in longer paragraphs a word says less of what they are about
_ENDED = re.compile(r"(?<!\.\.)[.!?。！？][\"'”’)`*]*$")
_TELLS_NOTHING = re.compile(r"^See\b|[?？][\"'”’)`*]*$")  # another question, or the way to another place
_LEANING = re.compile(r"(?:It|Its|They|Their|These|Those|This|That|Such|He|She|Both|Each|So|Then|There)\b")


@dataclass(frozen=True, slots=True)
class Paragraph:
    """`words` are its own, `above` those of the title and of the headings over it."""

    n: int  # of its source
    sentences: tuple[str, ...]
    words: frozenset[str]
    above: frozenset[str]


def quotes(question: str, texts: Sequence[tuple[int, str, str]]) -> list[tuple[int, str]]:
    """Of each text its source's number, its title and its Markdown. The few sentences that are about the question, in
    the order in which they stand there; none where nothing is."""
    wanted = frozenset(terms(question))
    paragraphs = [paragraph for n, title, text in texts for paragraph in _paragraphs(n, title, text)]
    weights = {word: _weight(word, paragraphs) for word in sorted(wanted)}
    scores = [_score(paragraph, weights) for paragraph in paragraphs]
    chosen: dict[int, list[str]] = {}  # place → sentences
    for at in sorted(range(len(paragraphs)), key=lambda at: -scores[at]):
        best = scores[next(iter(chosen), at)]
        left = MOST_SENTENCES - sum(map(len, chosen.values()))
        if not left or scores[at] <= 0 or scores[at] < best * _NEXT_BEST:
            break
        if not _is_about(paragraphs[at], weights):
            continue
        known = [sentence for said in chosen.values() for sentence in said]
        if said := [one for one in _speaking(paragraphs[at], wanted) if not _is_said(one, known)][:left]:
            chosen[at] = said
    return [(paragraphs[at].n, sentence) for at in sorted(chosen) for sentence in chosen[at]]


def _weight(word: str, paragraphs: Sequence[Paragraph]) -> float:
    """A word that every paragraph holds tells none from another."""
    return rarity(sum(word in paragraph.words for paragraph in paragraphs), len(paragraphs))


def _score(paragraph: Paragraph, weights: dict[str, float]) -> float:
    own: float = sum(weight for word, weight in weights.items() if word in paragraph.words)
    above = sum(weight for word, weight in weights.items() if word in paragraph.above - paragraph.words)
    if not own:
        return 0.0
    return (own + _OF_HEADING * above) / max(1.0, math.sqrt(len(paragraph.words) / _MANY))


def _is_about(paragraph: Paragraph, weights: dict[str, float]) -> bool:
    """Does it speak of enough of what is asked, and not by one chance word of many?"""
    spoken = [word for word in weights if word in paragraph.words | paragraph.above]
    enough = sum(weights[word] for word in spoken) >= _LEAST * sum(weights.values())
    return enough and len(spoken) >= min(len(weights), 2)


def _speaking(paragraph: Paragraph, wanted: frozenset[str]) -> list[str]:
    """Its sentences that hold a word of the question; with the one before it where a sentence leans on that. Torn ones
    only in need."""
    telling = [sentence for sentence in paragraph.sentences if not _TELLS_NOTHING.search(sentence)]
    sentences = [sentence for sentence in telling if not _is_torn(sentence)] or telling
    taken: dict[int, str] = {}
    for at, sentence in enumerate(sentences):
        if wanted & set(terms(sentence)):
            if at and _LEANING.match(sentence):
                taken[at - 1] = sentences[at - 1]
            taken[at] = sentence
    return [taken[at] for at in sorted(taken)]


def _is_torn(sentence: str) -> bool:
    """Is it no whole sentence, as far as its ends tell?"""
    return sentence.startswith(("…", "...")) or not _ENDED.search(sentence)


def _is_said(sentence: str, known: Sequence[str]) -> bool:
    words = set(terms(sentence))
    return any(len(words & other) >= 0.8 * min(len(words), len(other)) for other in map(set, map(terms, known)))


# Markdown


def _paragraphs(n: int, title: str, markdown: str) -> Iterator[Paragraph]:
    for headings, text in _blocks(markdown):
        if found := tuple(sentences(text)):
            yield Paragraph(n, found, frozenset(terms(text)), frozenset(terms(f"{title} {headings}")))


def _blocks(markdown: str) -> Iterator[tuple[str, str]]:
    """What stands between blank lines, each item of a list and each row of a table for itself, with the headings above
    it. No code."""
    above: list[tuple[int, str]] = []
    block: list[str] = []
    lines = [*_CODE.sub("\n\n", markdown).splitlines(), ""]
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        heading = heading_in(line, below)
        row = _ROW.match(line)
        if block and (heading or row or not line.strip() or _ITEM.match(line)):
            yield " ".join(text for _, text in above), "\n".join(block)
            block = []
        if row:
            name, said = _row(line)
            yield " ".join([*(text for _, text in above), name]), said
        elif heading:
            depth = len(line) - len(line.lstrip("#")) or 1
            above = [*((level, text) for level, text in above if level < depth), (depth, heading)]
        elif line.strip():
            block.append(line)


def _row(line: str) -> tuple[str, str]:
    """What a row is about, its first cell, and what it says: the cells that hold sentences."""
    first, *others = (cell.strip() for cell in _CELLS.split(line.strip().strip("|")))
    return first, " ".join(cell for cell in (first, *others) if cell.rstrip("*_`)").endswith((".", "!", "?")))


_ROW = re.compile(r"[ \t]*\|")
_CELLS = re.compile(r"(?<!\\)\|")
_NOISE = re.compile(r"^[ \t]*(?:#{1,6}[ \t].*|[-*_=|: \t]+|\|.*|!\[.*|\[…\])$", re.MULTILINE)
_CODE = re.compile(r"^ {0,3}(```|~~~).*?(?:^ {0,3}\1.*?$|\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*(?:\s\"[^\"]*\")?\)")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?|^\s*>\s?", re.MULTILINE)
_EMPHASIS = re.compile(r"(\*\*|__|(?<!\w)[*_](?=\S)|(?<=\S)[*_](?!\w))")
_SENTENCE_END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"'”’)]))\s+(?=[\"'“‘(`]?[^\W_a-z])|(?<=[。！？])")
_SHORTENED = re.compile(r"(?:\b(?:e\.g|i\.e|etc|cf|vs|Dr|Mr|Mrs|Ms|Prof|St|No|Fig|approx)|\b[A-Z])\.$")


def sentences(markdown: str) -> list[str]:
    """The whole sentences of a Markdown text: no headings, tables, code or link targets."""
    found: list[str] = []
    text = _NOISE.sub("", _CODE.sub("\n\n", markdown))
    text = _EMPHASIS.sub("", _LINK.sub(r"\1", _ITEM.sub("\n\n", text)))
    for paragraph in re.split(r"\n\s*\n", text):
        begun = ""
        for piece in _SENTENCE_END.split(" ".join(paragraph.split())):
            begun = f"{begun} {piece}".strip()
            if not _SHORTENED.search(begun):
                found.append(begun)
                begun = ""
        found.append(begun)
    return [_balanced(sentence) for sentence in found if _is_quotable(sentence)]


def _is_quotable(sentence: str) -> bool:
    shortest = 6 if sentence.endswith(("。", "！", "？")) else 20  # scripts without blanks say much in few characters
    return shortest <= len(sentence) <= LONGEST and " | " not in sentence  # what is left of a table is none


def _balanced(sentence: str) -> str:
    """A lone backtick would make code of everything after it, our marker included."""
    return sentence if sentence.count("`") % 2 == 0 else sentence.replace("`", "")
