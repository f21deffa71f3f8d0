"""A page as a sequence of blocks: handed the body of a page, hands on its runs of text in order, as Markdown.

A block is what stands between two line breaks: a heading, a paragraph, a list item, a whole table, a piece of code.
With each go the clues by which `evidence` judges it: what holds it, how it is named, how much of it is links.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from .evidence import HOLDERS, clues_of_names
from .visible import UNREAD_TAGS

if TYPE_CHECKING:
    from lxml.html import HtmlElement

BREAKING = frozenset(
    "address article aside blockquote body br button caption center dd details dir div dl dt fieldset figcaption "
    "figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr html label legend li main menu nav noscript ol p pre "
    "section summary table tbody td tfoot th thead tr ul".split()
)
HEADINGS = {"h1": 1, "h2": 2, "h3": 3, "h4": 4, "h5": 5, "h6": 6}
_MARKS = {"b": "**", "strong": "**", "em": "*", "i": "*", "code": "`", "kbd": "`", "samp": "`", "del": "~~", "s": "~~"}
# Cells with these inside are for layout, and read as if there were no table.
_NOT_IN_CELLS = frozenset({"table", "pre", "h1", "h2", "h3", "form", "blockquote", "article", "section"})
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{1,2}|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_REFERENCE = re.compile(r"\s*\[[\w\s]{1,12}\]\s*")  # a footnote mark; in our answers such a thing means a source
_LANGUAGE = re.compile(r"(?:^|\s)(?:lang(?:uage)?|highlight(?:-source)?)-([\w+#]{1,20})")
_DEPTH = 250  # what lies deeper is read as plain text: no page that people wrote gets there


@dataclass(slots=True)
class Block:
    text: str
    words: int
    linked: float  # the share of link text
    tag: str
    clues: frozenset[str]
    quotes: int = 0
    level: int = 0  # how many lists it stands in
    marker: str = ""  # of the list item that begins with it
    close: bool = False  # only a line break away from the block before
    links: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Span:
    """The blocks from `first` up to `last` that one <main> or <article> holds."""

    kind: str
    first: int
    last: int


@dataclass(slots=True)
class _Run:
    tag: str
    clues: frozenset[str]
    parts: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    size: int = 0
    linked: int = 0


@dataclass(slots=True)
class _Item:
    marker: str


def count_words(text: str) -> int:
    return len(_WORD.findall(text))


def split_blocks(body: HtmlElement, url: str, passed_over: set[HtmlElement]) -> tuple[list[Block], list[Span]]:
    walk = _Walk(url, passed_over)
    walk.visit(body, "body", frozenset(), 0)
    walk.end_run()
    return walk.blocks, walk.spans


class _Walk:
    def __init__(self, url: str, passed_over: set[HtmlElement]) -> None:
        self.blocks: list[Block] = []
        self.spans: list[Span] = []
        self._url = url
        self._passed_over = passed_over
        self._run: _Run | None = None
        self._href = ""
        self._items: list[_Item] = []
        self._quotes = 0
        self._breaks = 0

    def visit(self, element: HtmlElement, holder: str, clues: frozenset[str], depth: int) -> None:
        """`holder` is the tag of the nearest breaking element."""
        tag = element.tag
        if tag == "br":
            self.end_run()
            self._breaks += 1
            return
        clues = self._gather(element, tag, clues)
        if tag == "pre":
            self._take_code(element, clues)
        elif tag == "table" and _is_data(element):
            self._take_table(element, clues)
        elif tag == "a":
            self._take_link(element, holder, clues, depth)
        elif tag in _MARKS:
            self._take_marked(element, _MARKS[tag], holder, clues, depth)
        elif tag == "sup" and _REFERENCE.fullmatch(element.text_content()):
            return
        elif tag in BREAKING:
            self._take_breaking(element, tag, clues, depth)
        else:
            self._take_children(element, holder, clues, depth)

    def end_run(self) -> None:
        run, self._run = self._run, None
        if run is None:
            return
        text = " ".join("".join(run.parts).split())
        words = count_words(text) - sum(count_words(link) for link in run.links)
        if words > 0:
            self._add(Block(text, words, run.linked / run.size, run.tag, run.clues, links=run.links))

    def _gather(self, element: HtmlElement, tag: str, clues: frozenset[str]) -> frozenset[str]:
        found = HOLDERS.get(element.get("role") or "") or HOLDERS.get(tag)
        names = f"{element.get('class') or ''} {element.get('id') or ''}"
        new = clues_of_names(names[:300]) if names != " " and tag != "body" else frozenset()
        if found:
            new |= {found}
        return clues if new <= clues else clues | new

    def _take_breaking(self, element: HtmlElement, tag: str, clues: frozenset[str], depth: int) -> None:
        self.end_run()
        self._breaks = 0
        first = len(self.blocks)
        if tag in ("ul", "ol"):
            self._take_list(element, tag, clues, depth)
        elif tag == "blockquote":
            self._quotes += 1
            self._take_children(element, tag, clues, depth)
            self.end_run()
            self._quotes -= 1
        else:
            self._take_children(element, tag, clues, depth)
            self.end_run()
        self._breaks = 0
        kind = element.get("role") if element.get("role") in ("main", "article") else tag
        if kind in ("main", "article") or element.get("itemprop") == "articleBody":
            self.spans.append(Span("main" if kind == "main" else "article", first, len(self.blocks)))

    def _take_list(self, element: HtmlElement, tag: str, clues: frozenset[str], depth: int) -> None:
        item = _Item("")
        self._items.append(item)
        number = int(start) if (start := element.get("start") or "").isdecimal() and len(start) < 7 else 1
        for child in self._seen(element):
            if child.tag == "li":
                item.marker = f"{number}." if tag == "ol" else "-"
                number += 1
            self.visit(child, tag, clues, depth + 1)
            self._add_text(child.tail, tag, clues)
        self.end_run()
        self._items.pop()

    def _take_children(self, element: HtmlElement, holder: str, clues: frozenset[str], depth: int) -> None:
        self._add_text(element.text, holder, clues)
        if depth > _DEPTH:
            self._add_text(" ".join(text for child in element for text in child.itertext()), holder, clues)
            return
        for child in self._seen(element):
            if isinstance(child.tag, str):
                self.visit(child, holder, clues, depth + 1)
            self._add_text(child.tail, holder, clues)
