"""What a document says: handed the bytes of a file and its name, hands on title, text, date and links, or the passages
that it is found by. The name's ending says what it should be, and the bytes whether it is.

Raises `Unavailable` with the reason why a file cannot be read, in words for the operator. Pure; files that need a
parser are read in a worker process (`providers/web/worker.py`), because anybody may have written them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from itertools import pairwise
from urllib.parse import quote

from ..base import LONGEST_TEXT
from ..errors import PageBlocked, Unavailable
from ..records import dataclass
from ..text.headings import heading_in
from ..web.decode import decode, sniff
from ..web.extract import Extracted, extract, plain_text
from .office import ZIP, read_office
from .passages import split_passages
from .words import index_words

INSIDE = "https://document.invalid/"  # where the links of a page lead that stay in its folder
PLAIN = frozenset({".md", ".markdown", ".rst", ".txt"})
SHORT = 64 * 1024
_HTML = frozenset({".html", ".htm", ".xhtml"})
_MARKED = frozenset({".md", ".markdown", ".rst"})
_OFFICE = frozenset({".docx", ".pptx", ".epub"})
_NO_TEXT = "it holds no text"

_FRONT_MATTER = re.compile(r"\A---\n(.*?\n)(?:---|\.\.\.)(?:\n|\Z)", re.DOTALL)
_FRONT_TITLE = re.compile(r"^title:[ \t]*(\S.*)$", re.MULTILINE)
_FRONT_DATE = re.compile(
    r"^(?:date|published|created|updated|last_modified_at|lastmod):[ \t]*[\"']?"
    r"((?:19|20)\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01]))",
    re.MULTILINE | re.IGNORECASE,
)
_WEB_LINK = re.compile(r"""https?://[^\s<>"'`)\]]+""")
_MARKDOWN_LINK = re.compile(r"\]\(\s*<?([^()\s<>]{1,1000})")
# Attributes are compared one by one: so many of them in one element would keep the parser busy for minutes.
_LONG_TAG = re.compile(rb"<[^<>]{50000,}>?")
_MARKUP = (
    (re.compile(r"!?\[([^\[\]]{0,300})\]\([^()]{0,1000}\)"), r"\1"),
    (re.compile(r"<[^<>]{1,300}>"), " "),
    (re.compile(r"^[ \t]*(?:#{1,6} |>+ |[-+*] |\|)"), ""),
    (re.compile(r"[*`~]+"), ""),
)


@dataclass(frozen=True, slots=True)
class Passage:
    heading: str  # the nearest above it
    text: str  # without markup
    words: str  # as the index compares them; the heading's are not in it


@dataclass(frozen=True, slots=True)
class Indexed:
    """What the index keeps of a document."""

    title: str
    date: str
    digest: str  # equal for documents that say the same
    passages: list[Passage]


def kind_of(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def needs_no_parser(path: str, size: int) -> bool:
    """Whether it is plain text, and short: then no process has to be started for it. What only calls itself so is
    refused as fast."""
    return kind_of(path) in PLAIN and size <= SHORT


def read_document(path: str, body: bytes) -> Extracted:
    """`path` is relative to the folder; links inside it lead to `INSIDE`."""
    name = os.fsencode(path).decode("utf-8", "replace").rpartition("/")[2]
    page = _read(path, kind_of(name), body)
    text = page.text[:LONGEST_TEXT]
    if not text.strip():
        raise Unavailable(_NO_TEXT)
    return Extracted(page.title or name, text, page.date, page.links)


def read_passages(path: str, body: bytes) -> Indexed:
    page = read_document(path, body)
    kind = kind_of(path)
    plain = _plain_marked if kind in _MARKED else str if kind in PLAIN else plain_text
    front = _FRONT_MATTER.match(page.text) if kind in _MARKED else None
    text = page.text[front.end() :] if front else page.text
    passages = []
    for heading, piece in split_passages(text):
        said = plain(piece).strip()
        said = said.removeprefix(page.title).strip() or said  # a hit shows the title anyhow
        if said:
            shown = " ".join(plain(heading).split())
            passages.append(Passage(shown, said, index_words(said)))
    digest = hashlib.sha256(" ".join(page.text.split()).encode("utf-8", "replace")).hexdigest()
    return Indexed(page.title, page.date or "", digest, passages)


def _read(path: str, kind: str, body: bytes) -> Extracted:
    """By the kind that its name says, if the bytes are so. Plain text is never handed to a parser: see
    `needs_no_parser`."""
    if kind in _HTML:
        return _read_page(path, body, "text/html")
    if kind == ".pdf" and sniff(body, "application/pdf") == "pdf":
        return _read_page(path, body, "application/pdf")
    if kind in _OFFICE and body.startswith(ZIP):
        return read_office(body)
    if kind == ".pdf" or kind in _OFFICE:
        raise Unavailable(f"it is no {kind[1:].upper()}, whatever its name says" if body else _NO_TEXT)
    if body.startswith((ZIP, b"%PDF-")) or sniff(body, "text/plain") == "binary":
        raise Unavailable("what is there is not text")
    text = decode(body, "").replace("\0", "").replace("\r\n", "\n").replace("\r", "\n")
    return _read_marked(text) if kind in _MARKED else Extracted("", text, None, _distinct(_WEB_LINK.findall(text)))


def _read_page(path: str, body: bytes, content_type: str) -> Extracted:
    if content_type == "text/html":
        body = _LONG_TAG.sub(b" ", body)
    try:
        return extract(body, content_type, "", INSIDE + quote(os.fsencode(path)), own=True)
    except PageBlocked:
        raise Unavailable(_NO_TEXT) from None


def _read_marked(text: str) -> Extracted:
    front = _FRONT_MATTER.match(text)
    title = _heading(text[front.end() :] if front else text)
    said = _FRONT_TITLE.search(front[1]) if front else None
    dated = _FRONT_DATE.search(front[1]) if front else None
    title = said[1].strip("\"' ") if said else title
    links = _distinct([*_MARKDOWN_LINK.findall(text), *_WEB_LINK.findall(text)])
    return Extracted(_plain_marked(title), text, dated[1] if dated else None, links)


def _heading(text: str) -> str:
    """The first heading outside code."""
    fenced = False
    for line, below in pairwise([*text.splitlines(), ""]):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced and (found := heading_in(line, below)):
            return found
    return ""


def _plain_marked(markup: str) -> str:
    """Line by line: one pattern over a whole book would take long."""
    return "\n".join(map(_plain_line, markup.splitlines())).strip()


def _plain_line(line: str) -> str:
    for pattern, instead in _MARKUP:
        line = pattern.sub(instead, line)
    return line


def _distinct(links: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(links))
