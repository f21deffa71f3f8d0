"""The folder behind `local`: which of its files are documents, and what a document says.

Handed a folder; hands on document paths (relative, `/`-separated) and parsed `Document`s. Hidden files, links that
leave the folder, and files over the size limit are no documents.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from lxml import etree, html

from ..web.visible import UNREAD_TAGS, unseen

BLOCKS = frozenset(
    "address article aside blockquote dd details div dl dt fieldset figcaption figure footer form "  # noqa: SIM905
    "header hr main nav ol p pre section summary table tr ul".split()
)
HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
MARKERS = {**HEADINGS, "li": "- "}
GAPS_AFTER = dict.fromkeys((*BLOCKS, *HEADINGS), "\n\n")
GAPS_BEFORE = {**GAPS_AFTER, "li": "\n", "br": "\n", "td": " ", "th": " "}

CHARSET = re.compile(rb"""charset\s*=\s*["']?([\w.:-]{1,40})""", re.IGNORECASE)
FRONT_MATTER = re.compile(r"\A---\n(.*?\n)(?:---|\.\.\.)(?:\n|\Z)", re.DOTALL)
FRONT_TITLE = re.compile(r"^title:[ \t]*(\S.*)$", re.MULTILINE)
ATX_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.+)")
UNDERLINE = re.compile(r"([=\-~^#*+])\1{2,}")
WEB_LINK = re.compile(r"""https?://[^\s<>"'`)\]]+""")
MARKDOWN_LINK = re.compile(r"\]\(\s*<?([^()\s<>]{1,1000})")
# Attributes are compared one by one: so many of them in one element would keep the parser busy for minutes.
LONG_TAG = re.compile(r"<[^<>]{50000,}>?")
MARKUP = (
    (re.compile(r"!?\[([^\[\]]{0,300})\]\([^()]{0,1000}\)"), r"\1"),
    (re.compile(r"<[^<>]{1,300}>"), " "),
    (re.compile(r"^[ \t]*(?:#{1,6} |>+ |[-+*] |\|)"), ""),
    (re.compile(r"[*`~]+"), ""),
)


@dataclass(frozen=True, slots=True)
class Document:
    title: str
    text: str  # as it is read: Markdown stays as it is, HTML becomes text with headings
    plain: str  # without markup, as it is searched and quoted
    links: tuple[str, ...]  # as they are written, absolute or relative
    date: str


@dataclass(frozen=True, slots=True)
class Folder:
    root: Path  # real: no link on the way
    extensions: frozenset[str]
    max_file_size: int

    def walk(self) -> Iterator[tuple[str, int, int]]:
        """Every document with the time and size by which a change shows."""
        folders = [""]
        while folders:
            folder = folders.pop()
            for entry in self._entries(folder):
                path = folder + entry.name
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path + "/")
                elif found := self._stat(path, entry):
                    yield path, found.st_mtime_ns, found.st_size

    def holds(self, path: str) -> bool:
        return self._stat(path) is not None

    def read(self, path: str) -> Document | None:
        """None if there is no such document, or none any more."""
        found = self._stat(path)
        if found is None:
            return None
        try:
            data = (self.root / path).read_bytes()
        except OSError:
            return None
        date = datetime.fromtimestamp(found.st_mtime, UTC).date().isoformat()
        name = os.fsencode(path).decode("utf-8", "replace").rpartition("/")[2]
        return parse(name, data, date)

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.root / folder) as entries:
                return list(entries)
        except OSError:
            if not folder:  # without its root nothing can be said about any document
                raise
            return []

    def _stat(self, path: str, seen: os.DirEntry[str] | None = None) -> os.stat_result | None:
        """The file behind a document's path, else None. `seen` on a walk: only a link needs to be looked into then."""
        if not self._may_be_document(path):
            return None
        try:
            found = seen.stat() if seen is not None and not seen.is_symlink() else self._followed(path)
        except (OSError, ValueError):  # gone, unreadable, or a name that no file can have
            return None
        whole = found is not None and stat.S_ISREG(found.st_mode) and found.st_size <= self.max_file_size
        return found if whole else None

    def _may_be_document(self, path: str) -> bool:
        """By its name alone: nothing hidden on the way, and one of our extensions."""
        hidden = any(not part or part.startswith(".") for part in path.split("/"))
        return not hidden and os.path.splitext(path)[1].lower() in self.extensions

    def _followed(self, path: str) -> os.stat_result | None:
        """What the path leads to, unless a link leads out of the folder."""
        real = Path(os.path.realpath(self.root / path))
        return real.stat() if real.is_relative_to(self.root) else None


def parse(name: str, data: bytes, date: str) -> Document:
    text = _decode(data)
    suffix = os.path.splitext(name)[1].lower()
    if suffix in (".html", ".htm"):
        title, text, links = _read_html(text)
        return Document(title or name, text, text, links, date)
    web_links = WEB_LINK.findall(text)
    if suffix == ".txt":
        return Document(name, text, text, _distinct(web_links), date)
    front = FRONT_MATTER.match(text)
    body = text[front.end() :] if front else text
    title = _heading(body.splitlines())
    if front and (named := FRONT_TITLE.search(front[1])):
        title = named[1].strip("\"' ")
    return Document(
        _plain(title) or name, text, _plain(body), _distinct([*MARKDOWN_LINK.findall(text), *web_links]), date
    )


def _decode(data: bytes) -> str:
    """The text of a file in whatever encoding: a byte-order mark, a declared charset, UTF-8, else Windows-1252."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = data.decode("utf-16", "replace")
    else:
        declared = CHARSET.search(data[:2048])
        charsets = ["utf-8-sig", *([declared[1].decode("ascii", "replace")] if declared else [])]
        text = next(filter(None, (_try(data, charset) for charset in charsets)), None) or data.decode(
            "cp1252", "replace"
        )
    return text.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n")


def _try(data: bytes, charset: str) -> str | None:
    try:
        return data.decode(charset)
    except (UnicodeError, LookupError):
        return None


def _heading(lines: list[str]) -> str:
    """The first heading outside code, `# so` or underlined."""
    fenced = False
    for line, below in pairwise([*lines, ""]):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced and (found := ATX_HEADING.fullmatch(line)):
            return found[1].rstrip(" \t#")
        elif (
            not fenced and UNDERLINE.fullmatch(below.strip()) and line.strip() and not UNDERLINE.fullmatch(line.strip())
        ):
            return line
    return ""


def _plain(markup: str) -> str:
    """Line by line: one pattern over a whole book would hold up every other thread."""
    return "\n".join(map(_plain_line, markup.splitlines())).strip()


def _plain_line(line: str) -> str:
    for pattern, instead in MARKUP:
        line = pattern.sub(instead, line)
    return line


def _read_html(text: str) -> tuple[str, str, tuple[str, ...]]:
    """Title, text with headings and list items marked, and link targets."""
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True)
    try:
        root = html.document_fromstring(LONG_TAG.sub(" ", text).encode(), parser=parser)
    except etree.ParserError:  # nothing in it
        return "", "", ()
    named = root.findtext(".//title")
    for element in unseen(root):
        element.tag = "template"  # which nobody reads
    etree.strip_elements(root, *UNREAD_TAGS, with_tail=False)
    heading = root.find(".//h1")
    title = named or ("" if heading is None else "".join(map(str, heading.itertext())))
    links = _distinct(str(anchor.get("href")) for anchor in root.iter("a") if anchor.get("href"))
    lines = (line.rstrip() for line in "".join(_html_text(root)).split("\n"))
    return " ".join(title.split()), re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip(), links


def _html_text(root: etree._Element) -> Iterator[str]:
    """The text of the tree piece by piece. The walk is flat, because nesting may be deeper than Python's stack."""
    lines = _Lines()
    for event, element in etree.iterwalk(root, events=("start", "end")):
        tag = str(element.tag)
        yield lines.begin(tag, element.text) if event == "start" else lines.end(tag, element.tail)


class _Lines:
    """Where in a line the text has come to, and whether its white space counts."""

    def __init__(self) -> None:
        self._preformatted = 0
        self._new_line = True

    def begin(self, tag: str, text: str | None) -> str:
        self._preformatted += tag == "pre"
        gap = GAPS_BEFORE.get(tag, "")
        apart = "" if gap == " " and self._new_line else gap
        return self._piece(apart, MARKERS.get(tag, ""), text)

    def end(self, tag: str, tail: str | None) -> str:
        self._preformatted -= tag == "pre"
        return self._piece(GAPS_AFTER.get(tag, ""), "", tail)

    def _piece(self, gap: str, marker: str, text: str | None) -> str:
        self._new_line = self._new_line or "\n" in gap
        piece = gap + marker + self._words(text or "")
        self._new_line = self._new_line and not piece.strip()
        return piece

    def _words(self, text: str) -> str:
        if self._preformatted:
            return text
        text = re.sub(r"\s+", " ", text)
        return text.lstrip() if self._new_line else text


def _distinct(links: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(links))
