"""A page as a sequence of blocks: handed the body of a page, hands on its runs of text in order, as Markdown.

A block is what stands between two line breaks: a heading, a paragraph, a list item, a whole table, a piece of code.
With each go the clues by which `evidence` judges it: what holds it, how it is named, how much of it is links.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from ..records import dataclass
from .evidence import COMMENTS, HOLDERS, clues_of_names
from .visible import UNREAD_TAGS

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

_BREAKING = (
    "address article aside blockquote body br button caption center dd details dir div dl dt fieldset figcaption "
    "figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr html label legend li main menu nav noscript ol p pre "
    "section summary table tbody td tfoot th thead tr ul"
)
BREAKING = frozenset(_BREAKING.split())
HEADINGS = {"h1": 1, "h2": 2, "h3": 3, "h4": 4, "h5": 5, "h6": 6}
_MARKS = {"b": "**", "strong": "**", "em": "*", "i": "*", "code": "`", "kbd": "`", "samp": "`", "del": "~~", "s": "~~"}
# Cells with these inside are for layout, and read as if there were no table.
_NOT_IN_CELLS = frozenset({"table", "pre", "h1", "h2", "h3", "form", "blockquote", "article", "section"})
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{1,2}|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_REFERENCE = re.compile(r"\s*\[[\w\s]{1,12}\]\s*")  # a footnote mark; in our answers such a thing means a source
_LANGUAGE = re.compile(r"(?:^|\s)(?:lang(?:uage)?|highlight(?:-source)?)-(?!default|none|text)([\w+#]{1,20})")
_UNSAFE_IN_URL = re.compile(r"[\s()<>\\^`{|}\"]")
_LONGEST_URL = 2000  # a base of a megabyte would make a megabyte of every link on the page
_DEPTH = 200  # what lies deeper is read as plain text: no page that people wrote gets there


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

    def link(self, url: str) -> None:
        self.links.append(url)
        if self.tag not in ("pre", "table") and "](" not in self.text:
            self.text = _link([self.text], url)


@dataclass(slots=True)
class Span:
    """The blocks from `first` up to `last` that one <main> or <article> holds."""

    kind: str
    first: int
    last: int


@dataclass(slots=True)
class _Run:
    """A block in the making."""

    tag: str
    clues: frozenset[str]
    parts: list[str] = field(default_factory=list)  # Markdown
    plain: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    size: int = 0
    linked: int = 0

    def link(self, start: int, url: str) -> None:
        """What came since `start` leads to `url`, if that is anywhere."""
        linked = _link(self.parts[start:], url)
        apart = " " if start and self.parts[start - 1].endswith(")") else ""  # two links, side by side
        self.parts[start:] = [apart + linked]
        if url and linked.strip():
            self.links.append(url)


@dataclass(slots=True)
class _List:
    ordered: bool
    items: int = 0
    marker: str = ""  # of the item at hand, until a block has taken it

    def begin_item(self) -> None:
        self.items += 1
        self.marker = f"{self.items}." if self.ordered else "-"


def count_words(text: str) -> int:
    return len(_WORD.findall(text))


def split_blocks(body: Element, url: str, passed_over: set[Element]) -> tuple[list[Block], list[Span]]:
    walk = _Walk(url, passed_over)
    walk.visit(body, "body", frozenset(), 0)
    return walk.blocks, walk.spans


class _Walk:
    def __init__(self, url: str, passed_over: set[Element]) -> None:
        self.blocks: list[Block] = []
        self.spans: list[Span] = []
        self._url = url
        self._passed_over = passed_over
        self._run: _Run | None = None
        self._in_link = False
        self._in_mark = False
        self._lists: list[_List] = []  # those around, the innermost last
        self._quotes = 0
        self._breaks = 0

    def visit(self, element: Element, holder: str, clues: frozenset[str], depth: int) -> None:
        """Reads an element and all it holds; `holder` is the tag of the nearest one that breaks the line."""
        tag = element.tag
        clues = _gather(element, tag, clues)
        if tag == "br":
            self._end_run()
            self._breaks += 1
        elif tag == "pre":
            self._take_code(element, clues)
        elif tag == "table" and _is_data(element):
            self._take_table(element, clues, depth)
        elif tag in BREAKING:
            self._take_breaking(element, tag, clues, depth)
        elif tag == "a":
            self._take_link(element, holder, clues, depth)
        elif tag in _MARKS and holder not in HEADINGS and not self._in_mark:
            self._take_marked(element, _MARKS[tag], holder, clues, depth)
        elif tag != "sup" or not _REFERENCE.fullmatch(self._text_of(element)):
            self._take_children(element, holder, clues, depth)

    def _take_children(self, element: Element, holder: str, clues: frozenset[str], depth: int) -> None:
        if depth > _DEPTH:
            self._add_text(self._text_of(element), holder, clues)
            return
        self._add_text(element.text, holder, clues)
        for child in element:
            if child.tag not in UNREAD_TAGS and child not in self._passed_over:
                self.visit(child, holder, clues, depth + 1)
            self._add_text(child.tail, holder, clues)

    def _take_breaking(self, element: Element, tag: str, clues: frozenset[str], depth: int) -> None:
        self._end_run()
        self._breaks = 0
        first = len(self.blocks)
        if tag in ("ul", "ol"):
            self._lists.append(_List(ordered=tag == "ol"))
        elif tag == "li" and self._lists:
            self._lists[-1].begin_item()
        elif tag == "blockquote":
            self._quotes += 1
        self._take_children(element, tag, clues, depth)
        self._end_run()
        self._breaks = 0
        if tag in ("ul", "ol"):
            self._lists.pop()
        elif tag == "blockquote":
            self._quotes -= 1
        kind = _span_kind(element, tag)
        if kind:
            self.spans.append(Span(kind, first, len(self.blocks)))

    def _take_link(self, element: Element, holder: str, clues: frozenset[str], depth: int) -> None:
        run, first = self._run, len(self.blocks)
        start = len(run.parts) if run else 0
        outer, self._in_link = self._in_link, True
        self._take_children(element, holder, clues, depth)
        self._in_link = outer
        url = absolute(self._url, element.get("href"))
        if self._run is not None and len(self.blocks) == first:
            self._run.link(start, url)
        elif url and len(self.blocks) > first:  # it holds whole blocks, as cards do: the first one carries the link
            self.blocks[first].link(url)

    def _take_marked(self, element: Element, mark: str, holder: str, clues: frozenset[str], depth: int) -> None:
        run, first = self._run, len(self.blocks)
        start = len(run.parts) if run else 0
        self._in_mark = True
        self._take_children(element, holder, clues, depth)
        self._in_mark = False
        if self._run is not None and len(self.blocks) == first:
            self._run.parts[start:] = [_mark(self._run.parts[start:], mark)]

    def _take_code(self, element: Element, clues: frozenset[str]) -> None:
        self._end_run()
        text = self._text_of(element).strip("\n").rstrip()
        around = (*element, element, *islice(element.iterancestors(), 2))
        language = _LANGUAGE.search(" ".join(one.get("class") or "" for one in around))
        fence = "```" if "```" not in text else "~~~~"
        words = count_words(text)
        if words:
            fenced = f"{fence}{language[1] if language else ''}\n{text}\n{fence}"
            self._add(Block(fenced, words, 0.0, "pre", clues))

    def _take_table(self, table: Element, clues: frozenset[str], depth: int) -> None:
        self._end_run()
        rows, links, words, linked = [], [], 0, 0.0
        for row in self._rows(table):
            cells = []
            for cell in self._shown(row, "td", "th"):
                inner = _Walk(self._url, self._passed_over)
                inner.visit(cell, "td", frozenset(), depth + 1)
                cells.append(" ".join(block.text for block in inner.blocks).replace("|", "\\|"))
                words += sum(block.words for block in inner.blocks)
                linked += sum(block.words * block.linked for block in inner.blocks)
                links += [link for block in inner.blocks for link in block.links]
            if any(cells):
                rows.append(cells)
        if words:
            self._add(Block(_table(rows), words, linked / words, "table", clues, links=links))

    def _rows(self, table: Element) -> Iterator[Element]:
        for part in self._shown(table, "tr", "thead", "tbody", "tfoot"):
            yield from (part,) if part.tag == "tr" else self._shown(part, "tr")

    def _shown(self, parent: Element, *tags: str) -> Iterator[Element]:
        return (child for child in parent.iterchildren(*tags) if child not in self._passed_over)

    def _text_of(self, element: Element) -> str:
        """All text in it that is shown, as it stands."""
        pieces: list[str] = []
        rest: list[Element | str] = [element]
        while rest:
            part = rest.pop()
            if isinstance(part, str):
                pieces.append(part)
                continue
            for child in reversed(part):
                rest.append(child.tail or "")
                if child.tag == "br":
                    rest.append("\n")
                elif child.tag not in UNREAD_TAGS and child not in self._passed_over:
                    rest.append(child)
            rest.append(part.text or "")
        return "".join(pieces)

    def _add_text(self, text: str | None, holder: str, clues: frozenset[str]) -> None:
        if not text:
            return
        if self._run is None:
            if text.isspace():
                return
            self._run = _Run(holder, clues)
        run = self._run
        run.parts.append(text)
        size = len(text.strip())
        run.size += size
        run.plain.append(text)
        if self._in_link:
            run.linked += size

    def _end_run(self) -> None:
        run, self._run = self._run, None
        if run is None:
            return
        text, words = " ".join("".join(run.parts).split()), count_words("".join(run.plain))
        if text and words:
            self._add(Block(text, words, run.linked / run.size, run.tag, run.clues, links=run.links))

    def _add(self, block: Block) -> None:
        block.quotes = self._quotes
        block.level = len(self._lists)
        if self._lists:
            block.marker, self._lists[-1].marker = self._lists[-1].marker, ""
        block.close, self._breaks = self._breaks == 1, 0
        self.blocks.append(block)


def absolute(base: str, href: str | None) -> str:
    """The address a link leads to, or nothing: within the page, to a script, to a mailbox, to nowhere."""
    href = (href or "").strip()
    if not href or href[0] == "#":
        return ""
    try:
        url = href if href.startswith(("http://", "https://")) else urljoin(base, href)
        parts = urlsplit(url)
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not parts.netloc or len(url) > _LONGEST_URL:
        return ""
    return _UNSAFE_IN_URL.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), url)


def _gather(element: Element, tag: str, clues: frozenset[str]) -> frozenset[str]:
    """The clues around an element, and its own."""
    own = frozenset() if tag == "body" else _clues_of_names(element)
    holder = HOLDERS.get(element.get("role") or "") or HOLDERS.get(tag)
    new = own | {holder} if holder else own
    return clues if new <= clues else clues | new


def _clues_of_names(element: Element) -> frozenset[str]:
    names = f"{element.get('class') or ''} {element.get('id') or ''}"
    if names == " ":
        return frozenset()
    clues = clues_of_names(names[:300])
    if COMMENTS in clues and element.find(".//h1") is not None:
        return clues - {COMMENTS}  # it names the whole page, which may be commented on
    return clues


def _span_kind(element: Element, tag: str) -> str:
    role = element.get("role")
    if tag == "main" or role == "main":
        return "main"
    return "article" if tag == "article" or role == "article" or element.get("itemprop") == "articleBody" else ""


def _is_data(table: Element) -> bool:
    """Several rows of several cells, as many in each or with headings; and nothing in it that no cell of data holds."""
    if table.get("role") == "presentation" or any(inner is not table for inner in table.iter(*_NOT_IN_CELLS)):
        return False
    widths = [len(row) for row in table.iter("tr") if len(row)]
    if len(widths) < 2 or max(widths) < 2:
        return False
    return len(set(widths)) == 1 or next(table.iter("th"), None) is not None


def _table(rows: list[list[str]]) -> str:
    width = max(len(row) for row in rows)
    lines = ["| " + " | ".join([*row, *[""] * (width - len(row))]) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])


def _link(parts: list[str], url: str) -> str:
    text = "".join(parts)
    inner = text.strip()
    if not count_words(inner):
        return ""
    if not url:
        return text
    lead, _, trail = text.partition(inner)
    label = inner.replace("[", "\\[").replace("]", "\\]")
    return f"{lead}[{label}]({url}){trail}"


def _mark(parts: list[str], mark: str) -> str:
    text = "".join(parts)
    inner = text.strip()
    if not inner or mark[0] in inner or "](" in inner:
        return text
    lead, _, trail = text.partition(inner)
    return f"{lead}{mark}{inner}{mark}{trail}"
