"""What the demo model quotes: the sentences of a page that are about a question. Handed texts and a question; hands on
sentences, each with the number of its source. Pure.

A sentence alone says little about what it is about. So the paragraph is chosen first, by its own words and those of the
headings above it, and then its sentences that speak of the question.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence

from providers.records import dataclass
from providers.text.headings import heading_in
from providers.text.relevance import rarity
from providers.text.words import COMMON, terms, words

MOST_SENTENCES = 4
LONGEST = 400  # characters of a sentence that is quoted
_OF_HEADING = 0.6  # what a word is worth that only a heading above the paragraph says
_NEXT_BEST = 0.7  # as good as the best must a second paragraph be
_LEAST = 0.4  # of what the question asks, by weight, must be spoken of
_LEAST_ALONE = 0.5  # of it in a single word
_ALSO = 0.3  # of what the best sentence says of the question must another one say
_IS_IT = 0.8  # of the question, by weight, in the heading right above: what stands there answers it in whatever words
_MANY = 30  # words: in longer paragraphs a word says less of what they are about
_ANSWERS = 2  # sentences right below such a heading
_WIDEST, _MOST_CELLS = 160, 4  # characters and cells of a row of a table that is quoted whole
_ENDED = re.compile(r"(?<!\.\.)[.!?。！？][\"'”’)`*]*$")
_TELLS_NOTHING = re.compile(r"^See\b|[?？][\"'”’)`*]*$")  # another question, or the way to another place
_LEANING = re.compile(r"(?:It|Its|They|Their|These|Those|This|That|Such|He|She|Both|Each|So|Then|There)\b")

# What belongs to the asking and not to what is asked for: "long" in "how long", "need" in "do I need".
_MEASURE = re.compile(r"\bhow\s+(?:long|many|much|often|far|soon)\b", re.IGNORECASE)
_WORDS_OF_ASKING = (
    "am find get gets give go happen happens happened may mean means might must need needs needed please say says see "
    "should show there use used want work works"
)
_OF_ASKING = frozenset(_WORDS_OF_ASKING.split())


@dataclass(frozen=True, slots=True)
class Paragraph:
    """`words` are its own, `above` those of the title and of the headings over it, `answering` those of the heading
    that it stands right below."""

    n: int  # of its source
    sentences: tuple[str, ...]
    words: frozenset[str]
    above: frozenset[str]
    answering: frozenset[str] = frozenset()


def asked_for(question: str) -> frozenset[str]:
    """The words of a question that say what it is about."""
    telling = [word for word in words(_MEASURE.sub(" ", question)) if word not in COMMON | _OF_ASKING]
    return frozenset(terms(" ".join(telling) or question))


def quotes(question: str, texts: Sequence[tuple[int, str, str]]) -> list[tuple[int, str]]:
    """Of each text its source's number, its title and its Markdown. The few sentences that are about the question, in
    the order in which they stand there; none where nothing is."""
    paragraphs = [paragraph for n, title, text in texts for paragraph in _paragraphs(n, title, text)]
    weights = _weights(asked_for(question), paragraphs)
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
        fewest = min(len(weights), 2) if chosen else 1  # beside the best one chance word is too little
        speaking = _speaking(paragraphs[at], weights, fewest)
        if said := [one for one in speaking if not _is_said(one, known)][:left]:
            chosen[at] = said
    return [(paragraphs[at].n, sentence) for at in sorted(chosen) for sentence in chosen[at]]


def _weights(wanted: frozenset[str], paragraphs: Sequence[Paragraph]) -> dict[str, float]:
    """A word that every paragraph holds tells none from another. One that none holds is no better known for that: it
    weighs as much as the others do on the whole."""
    held = {word: sum(word in paragraph.words | paragraph.above for paragraph in paragraphs) for word in sorted(wanted)}
    weights = {word: rarity(holding, len(paragraphs)) for word, holding in held.items() if holding}
    usual = sum(weights.values()) / len(weights) if weights else 0.0
    return {word: weights.get(word, usual) for word in held}


def _score(paragraph: Paragraph, weights: dict[str, float]) -> float:
    own = _weight_in(paragraph.words, weights)
    if not own and not _answers(paragraph, weights):
        return 0.0
    above = _weight_in(paragraph.above - paragraph.words, weights)
    return (own + _OF_HEADING * above) / max(1.0, math.sqrt(len(paragraph.words) / _MANY))


def _weight_in(said: Collection[str], weights: dict[str, float]) -> float:
    return sum((weight for word, weight in weights.items() if word in said), 0.0)


def _is_about(paragraph: Paragraph, weights: dict[str, float]) -> bool:
    """Does it speak of enough of what is asked, and not by one chance word of many?"""
    spoken = [word for word in weights if word in paragraph.words | paragraph.above]
    least = _LEAST if len(spoken) > 1 else _LEAST_ALONE
    return _weight_in(spoken, weights) >= least * sum(weights.values())


def _answers(paragraph: Paragraph, weights: dict[str, float]) -> bool:
    """Is the heading right above it the question, or the name of what is asked for?"""
    return bool(weights) and _weight_in(paragraph.answering, weights) >= _IS_IT * sum(weights.values())


def _speaking(paragraph: Paragraph, weights: dict[str, float], fewest: int) -> list[str]:
    """Its sentences that say the most of the question, and at least so many of its words, each with the one before it
    where it leans on that. Torn ones only in need."""
    telling = [sentence for sentence in paragraph.sentences if not _TELLS_NOTHING.search(sentence)]
    sentences = [sentence for sentence in telling if not _is_torn(sentence)] or telling
    spoken = [weights.keys() & set(_own_words(sentence)) for sentence in sentences]
    said = [_weight_in(of_it, weights) for of_it in spoken]
    if _answers(paragraph, weights) and max(said, default=0) < _LEAST * sum(weights.values()):
        return sentences[:_ANSWERS]
    taken: dict[int, str] = {}
    for at, sentence in enumerate(sentences):
        if len(spoken[at]) >= fewest and said[at] >= _ALSO * max(said):
            if at and _LEANING.match(sentence):
                taken[at - 1] = sentences[at - 1]
            taken[at] = sentence
    return [taken[at] for at in sorted(taken)]


def _own_words(text: str) -> list[str]:
    """The path of a file is a name: the words in it are not what a sentence speaks of."""
    return terms(_FILE.sub(" ", text))


def _is_torn(sentence: str) -> bool:
    """Is it no whole sentence, as far as its ends tell?"""
    return sentence.startswith(("…", "...")) or not _ENDED.search(sentence)


def _is_said(sentence: str, known: Sequence[str]) -> bool:
    words = set(terms(sentence))
    return any(len(words & other) >= 0.8 * min(len(words), len(other)) for other in map(set, map(terms, known)))


# Markdown


def _paragraphs(n: int, title: str, markdown: str) -> Iterator[Paragraph]:
    opened = ""  # the heading below which something was said already
    for block in _blocks(markdown):
        if not (found := tuple(sentences(block.text))):
            continue
        heading = block.headings[-1] if block.headings else ""
        answering = heading if heading != opened else ""
        opened = heading
        above = " ".join((title, *block.headings, block.name))
        words = frozenset(_own_words(block.cells or block.text))
        yield Paragraph(n, found, words, frozenset(terms(above)), frozenset(terms(answering)))


@dataclass(frozen=True, slots=True)
class _Block:
    headings: tuple[str, ...]
    text: str
    name: str = ""  # of a row: its first cell, and those above its columns
    cells: str = ""  # of a row


def _blocks(markdown: str) -> Iterator[_Block]:
    """What stands between blank lines, each item of a list and each row of a table for itself, with the headings above
    it. No code."""
    above: list[tuple[int, str]] = []
    block: list[str] = []
    columns: list[str] = []
    lines = [*_CODE.sub("\n\n", markdown).splitlines(), ""]
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        heading = heading_in(line, below)
        row = _ROW.match(line)
        headings = tuple(text for _, text in above)
        if block and (heading or row or not line.strip() or _ITEM.match(line)):
            yield _Block(headings, "\n".join(block))
            block = []
        if row and not columns:
            columns = _cells(line)
        elif row:
            yield _row(headings, columns, _cells(line))
        elif heading:
            depth = len(line) - len(line.lstrip("#")) or 1
            above = [*((level, text) for level, text in above if level < depth), (depth, heading)]
        elif line.strip():
            block.append(line)
        columns = columns if row else []


def _row(headings: tuple[str, ...], columns: Sequence[str], cells: Sequence[str]) -> _Block:
    """It is about its first cell. It says the cells that hold sentences, or else each cell under its column's name."""
    told = " ".join(cell for cell in cells if cell.rstrip("*_`)").endswith((".", "!", "?")))
    if not told and not _RULE.fullmatch("".join(cells)):
        named = [f"{column} {cell}".strip() for column, cell in zip(columns, cells, strict=False) if cell]
        whole = f"{named[0]}: {', '.join(named[1:])}." if len(named) > 1 else ""
        told = whole if len(whole) <= _WIDEST and len(named) <= _MOST_CELLS else ""
    return _Block(headings, told, " ".join((*columns, cells[0])), " ".join(cells))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in _CELLS.split(line.strip().removeprefix("|").removesuffix("|"))]


_RULE = re.compile(r"[-: ]*")
_FILE = re.compile(r"(?<![\w./-])[\w.-]*+/[\w./-]*\w\.\w+")
_ROW = re.compile(r"[ \t]*\|")
_CELLS = re.compile(r"(?<!\\)\|")
_NOISE = re.compile(r"^[ \t]*+(?:#{1,6}[ \t].*|[-*_=|: \t]*+$|\|.*|!\[.*|\[…\]$)", re.MULTILINE)
_CODE = re.compile(r"^ {0,3}(```|~~~).*?(?:^ {0,3}\1.*?$|\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*(?:\s\"[^\"]*\")?\)")
_ITEM = re.compile(r"^[^\S\n]*+(?:(?:[-*+]|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?|>\s?)", re.MULTILINE)
_EMPHASIS = re.compile(r"(\*\*|__|(?<!\w)[*_](?=\S)|(?<=\S)[*_](?!\w))")
_SENTENCE_END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"'”’)]))\s+(?=`|[\"'“‘(]?[^\W_a-z])|(?<=[。！？])")
_SHORTENED = re.compile(r"(?:\b(?:e\.g|i\.e|etc|cf|vs|Dr|Mr|Mrs|Ms|Prof|St|No|Fig|approx)|\b[A-Z])\.$")
_LONGEST_SHORTENED = 10  # characters, with one before it


def sentences(markdown: str) -> list[str]:
    """The whole sentences of a Markdown text: no headings, tables, code or link targets."""
    found: list[str] = []
    text = _NOISE.sub("", _CODE.sub("\n\n", markdown))
    text = _EMPHASIS.sub("", _LINK.sub(r"\1", _ITEM.sub("\n\n", text)))
    for paragraph in re.split(r"\n\s*\n", text):
        begun: list[str] = []
        for piece in _SENTENCE_END.split(" ".join(paragraph.split())):
            begun.append(piece)
            if not _SHORTENED.search(piece[-_LONGEST_SHORTENED:]):
                found.append(" ".join(begun).strip())
                begun = []
        found.append(" ".join(begun).strip())
    return [_balanced(sentence) for sentence in found if _is_quotable(sentence)]


def _is_quotable(sentence: str) -> bool:
    shortest = 6 if sentence.endswith(("。", "！", "？")) else 12  # scripts without blanks say much in few characters
    return shortest <= len(sentence) <= LONGEST and " | " not in sentence  # what is left of a table is none


def _balanced(sentence: str) -> str:
    """A lone backtick would make code of everything after it, our marker included."""
    return sentence if sentence.count("`") % 2 == 0 else sentence.replace("`", "")
