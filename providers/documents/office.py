"""DOCX, PPTX and EPUB: handed the bytes of such a file, hands on its title, Markdown, date and links.

They are zip archives of XML, and a folder may hold anything: each part is inflated up to a limit, and all parts
together; no entity is resolved and nothing is fetched. Text that its readers do not see (hidden, deleted) is left out.
Raises `Unavailable` in words for the operator. Runs in a worker process (`providers/web/worker.py`).
"""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ..base import LONGEST_TEXT
from ..errors import PageBlocked, Unavailable
from ..web.extract import Extracted, extract

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

ZIP = b"PK\x03\x04"
_MOST_PARTS = 10_000  # of an archive
_LONGEST_PART = 32 << 20  # inflated
_LONGEST_WHOLE = 96 << 20  # of all parts that are looked at
_MOST_LINKS = 200
_DAMAGED = "the file is damaged or cut short"
_LOCKED = "the file is locked by a password"
_TOO_LARGE = "the file is far larger inside than outside"

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_RELATION = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"
_DC = "{http://purl.org/dc/elements/1.1/}"
_TERMS = "{http://purl.org/dc/terms/}"
_OPF = "{http://www.idpf.org/2007/opf}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_CONTAINER = "{urn:oasis:names:tc:opendocument:xmlns:container}"

_DAY = re.compile(r"(?:19|20)\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])")
_HEADING = re.compile(r"heading ?([1-6])", re.IGNORECASE)
_CODE = re.compile(r"[0-9A-Fa-f]{1,4}")
_OFF = frozenset({"0", "false", "off"})
# Fonts that draw other characters than their codes say: a dose in "mg" or "µg" may hang on it.
_SYMBOL = " !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼"
_SYMBOL_HIGH = (  # from A0 on
    "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊〈®©™∑"
)
_DRAWN = {
    "symbol": {
        **{0x20 + place: shown for place, shown in enumerate(_SYMBOL)},
        **{0xA0 + place: shown for place, shown in enumerate(_SYMBOL_HIGH)},
    },
    "wingdings": dict(zip(b"\xfc\xfb\xfe\xfd\xa8\x6f\xdf\xe0", "✓✗☑☒☐☐←→", strict=True)),
}


def read_office(body: bytes) -> Extracted:
    """What of the three it is, its parts say."""
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            parts = _Parts(archive)
            return _reader(parts)(parts)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, OSError, ValueError) as error:
        raise Unavailable(_DAMAGED) from error


def _reader(parts: _Parts) -> Callable[[_Parts], Extracted]:
    for part, reader in (("word/document.xml", _docx), ("ppt/presentation.xml", _pptx), (_CONTAINER_PART, _epub)):
        if part in parts:
            return reader
    raise Unavailable("the archive is no document that can be read")


class _Parts:
    """The parts of an archive by their names, inflated when asked for, within limits."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._left = _LONGEST_WHOLE
        listed = archive.infolist()
        if len(listed) > _MOST_PARTS:
            raise Unavailable(_TOO_LARGE)
        self._infos = {info.filename: info for info in listed}

    def __contains__(self, name: str) -> bool:
        return name in self._infos

    def read(self, name: str) -> bytes:
        info = self._infos[name]
        if info.flag_bits & 1:
            raise Unavailable(_LOCKED)
        most = min(_LONGEST_PART, self._left)
        with self._archive.open(info) as part:
            data = part.read(most + 1)  # what its head says of its length may be a lie
        if len(data) > most:
            raise Unavailable(_TOO_LARGE)
        self._left -= len(data)
        return data

    def tree(self, name: str) -> Element:
        from lxml import etree

        parser = etree.XMLParser(
            resolve_entities=False, no_network=True, load_dtd=False, remove_comments=True, remove_pis=True
        )
        try:
            return etree.fromstring(self.read(name), parser)
        except etree.LxmlError as error:
            raise Unavailable(_DAMAGED) from error

    def optional(self, name: str) -> Element | None:
        return self.tree(name) if name in self else None

    def relations(self, name: str) -> dict[str, str]:
        """Where the ids in a part lead to: the names of other parts, or addresses."""
        folder, own = posixpath.split(name)
        tree = self.optional(f"{folder}/_rels/{own}.rels")
        if tree is None:
            return {}
        return {str(each.get("Id")): _target(folder, each) for each in tree.iter(_RELATION)}


def _target(folder: str, relation: Element) -> str:
    target = relation.get("Target") or ""
    if relation.get("TargetMode") == "External":
        return target
    return _inside(folder, target)


def _inside(folder: str, target: str) -> str:
    """The name of another part, as a part of that folder writes it."""
    return posixpath.normpath(posixpath.join("/", folder, unquote(target))).lstrip("/")


def _about(parts: _Parts) -> tuple[str, str | None]:
    """The title and the day that an office program wrote down."""
    core = parts.optional("docProps/core.xml")
    if core is None:
        return "", None
    days = (_day(core.findtext(f"{_TERMS}{when}")) for when in ("modified", "created"))
    return _line(core.findtext(f"{_DC}title") or ""), next(filter(None, days), None)


def _day(text: str | None) -> str | None:
    found = _DAY.match((text or "").strip())
    return found[0] if found else None


def _line(text: str) -> str:
    return " ".join(text.split())


def _made(title: str, blocks: Iterator[str], day: str | None, links: Mapping[str, str]) -> Extracted:
    pieces, length = [], 0
    for block in blocks:
        pieces.append(block)
        length += len(block) + 2
        if length > LONGEST_TEXT:
            break
    text = re.sub(r"\n{3,}", "\n\n", "\n\n".join(pieces)).strip()
    if not text:
        raise Unavailable("the file holds no text")
    heading = next((line.lstrip("# ") for line in text.splitlines() if line.startswith("#")), "")
    web = [link for link in links.values() if link.startswith(("http://", "https://"))]
    return Extracted(title or heading[:300], text, day, tuple(dict.fromkeys(web))[:_MOST_LINKS])


def _shown(tree: Element) -> Element:
    """The tree without what stands in it twice: programs write some things in a new and in an old form, of which each
    reader takes one, and what was moved also where it was. What was deleted goes too."""
    for choice in list(tree.iter(f"{_MC}AlternateContent")):
        forms = list(choice)
        taken = next((form for form in forms if any(text.text for text in form.iter(f"{_W}t", f"{_A}t"))), None)
        for form in forms:
            if form is not taken:
                choice.remove(form)
    for gone in list(tree.iter(f"{_W}del", f"{_W}moveFrom")):
        parent = gone.getparent()
        if parent is not None:
            parent.remove(gone)
    return tree


# Word


def _docx(parts: _Parts) -> Extracted:
    title, day = _about(parts)
    body = _shown(parts.tree("word/document.xml")).find(f"{_W}body")
    styles = _heading_styles(parts.optional("word/styles.xml"))
    blocks = _word_blocks(body, styles) if body is not None else iter(())
    return _made(title, blocks, day, parts.relations("word/document.xml"))


def _heading_styles(styles: Element | None) -> dict[str, int]:
    """Styles by their ids, which are in the writer's language; their names are in English."""
    levels: dict[str, int] = {}
    for style in styles.iter(f"{_W}style") if styles is not None else ():
        named = style.find(f"{_W}name")
        name = (named.get(f"{_W}val") or "") if named is not None else ""
        if name.lower() == "title":
            levels[style.get(f"{_W}styleId") or ""] = 1
        elif found := _HEADING.fullmatch(name):
            levels[style.get(f"{_W}styleId") or ""] = int(found[1])
    return levels


def _word_blocks(body: Element, styles: Mapping[str, int]) -> Iterator[str]:
    for element in body.iter(f"{_W}p", f"{_W}tbl"):
        if element.tag == f"{_W}tbl":
            if not _within(element, f"{_W}tbl"):
                yield _table(_word_rows(element))
        elif not _within(element, f"{_W}tbl") and (text := _word_text(element)):
            yield _word_dressed(element, text, styles)


def _within(element: Element, tag: str) -> bool:
    return next(element.iterancestors(tag), None) is not None


def _word_dressed(paragraph: Element, text: str, styles: Mapping[str, int]) -> str:
    style = paragraph.find(f"{_W}pPr/{_W}pStyle")
    name = (style.get(f"{_W}val") or "") if style is not None else ""
    found = _HEADING.match(name)
    level = styles.get(name) or (int(found[1]) if found else 0)
    if level:
        return f"{'#' * level} {_line(text)}"
    return f"- {text}" if paragraph.find(f"{_W}pPr/{_W}numPr") is not None else text


def _word_rows(table: Element) -> Iterator[list[str]]:
    """Its own: a cell may hold a table again."""
    for row in _own(table, f"{_W}tr", within=f"{_W}tbl"):
        yield [_word_cell(cell) for cell in _own(row, f"{_W}tc", within=f"{_W}tr")]


def _word_cell(cell: Element) -> str:
    """In one line. A table inside stays with the cell: what its rows are about may stand beside it."""
    pieces = []
    for part in _own(cell, f"{_W}p", f"{_W}tbl", within=f"{_W}tc"):
        if part.tag == f"{_W}p":
            pieces.append(_word_text(part))
        else:
            pieces.append("; ".join(", ".join(filter(None, row)) for row in _word_rows(part)))
    return _line(" ".join(pieces))


def _own(element: Element, *tags: str, within: str) -> Iterator[Element]:
    """Those that no other element of the kind stands between."""
    return (each for each in element.iter(*tags) if next(each.iterancestors(within), None) is element)


def _word_text(paragraph: Element) -> str:
    """What a reader sees of it; hidden text says so."""
    pieces: list[str] = []
    for run in _own(paragraph, f"{_W}r", within=f"{_W}p"):
        if not _is_hidden(run):
            pieces += map(_word_piece, run)
    return "".join(pieces).strip()


def _word_piece(part: Element) -> str:
    match str(part.tag).removeprefix(_W):
        case "t":
            return part.text or ""
        case "tab" | "ptab":
            return " "
        case "br" | "cr":
            return "\n"
        case "noBreakHyphen":
            return "-"
        case "sym":
            return _symbol(part.get(f"{_W}font") or "", part.get(f"{_W}char") or "")
    return ""  # a soft hyphen too: nobody sees it but at the end of a line


def _symbol(font: str, code: str) -> str:
    """A character by its number in a font; symbols stand in Unicode's private area, where only the font knows them."""
    if not _CODE.fullmatch(code):
        return ""
    number = int(code, 16)
    drawn = _DRAWN.get(font.lower())
    if drawn is not None or 0xF000 <= number <= 0xF0FF:
        return (drawn or {}).get(number & 0xFF, "")
    return "" if 0xD800 <= number <= 0xDFFF else chr(number)


def _is_hidden(run: Element) -> bool:
    vanish = run.find(f"{_W}rPr/{_W}vanish")
    return vanish is not None and (vanish.get(f"{_W}val") or "1") not in _OFF


def _table(rows: Iterator[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows if any(row)]
    if len(lines) > 1:
        lines.insert(1, "|" + " --- |" * (lines[0].count(" | ") + 1))
    return "\n".join(lines)


# PowerPoint


def _pptx(parts: _Parts) -> Extracted:
    title, day = _about(parts)
    relations = parts.relations("ppt/presentation.xml")
    ids = [each.get(f"{_R}id") for each in parts.tree("ppt/presentation.xml").iter(f"{_P}sldId")]
    slides = [name for each in ids if (name := relations.get(each or "", "")) in parts]
    links = {f"{name} {key}": target for name in slides for key, target in parts.relations(name).items()}
    return _made(title, _slides(parts, slides), day, links)


def _slides(parts: _Parts, names: list[str]) -> Iterator[str]:
    for number, name in enumerate(names, start=1):
        slide = _shown(parts.tree(name))
        if (slide.get("show") or "1") in _OFF:
            continue
        heading = _slide_title(slide)
        yield f"## Slide {number}{': ' if heading else ''}{heading}"
        yield from _slide_blocks(slide)


def _is_title(shape: Element) -> bool:
    place = shape.find(f"{_P}nvSpPr/{_P}nvPr/{_P}ph")
    return place is not None and place.get("type") in ("title", "ctrTitle")


def _slide_title(slide: Element) -> str:
    titles = (shape for shape in slide.iter(f"{_P}sp") if _is_title(shape))
    return next((_line(" ".join(map(_slide_text, shape.iter(f"{_A}p")))) for shape in titles), "")


def _slide_blocks(slide: Element) -> Iterator[str]:
    for shape in slide.iter(f"{_P}sp", f"{_A}tbl"):
        if shape.tag == f"{_A}tbl":
            yield _table(
                [_line(" ".join(map(_slide_text, cell.iter(f"{_A}p")))) for cell in row.iter(f"{_A}tc")]
                for row in shape.iter(f"{_A}tr")
            )
        elif not _is_title(shape):
            yield "\n".join(filter(None, map(_slide_text, shape.iter(f"{_A}p"))))


def _slide_text(paragraph: Element) -> str:
    parts = paragraph.iter(f"{_A}t", f"{_A}br")
    return "".join("\n" if part.tag == f"{_A}br" else part.text or "" for part in parts).strip()


# EPUB

_CONTAINER_PART = "META-INF/container.xml"


def _epub(parts: _Parts) -> Extracted:
    root = parts.tree(_CONTAINER_PART).find(f".//{_CONTAINER}rootfile")
    name = (root.get("full-path") or "") if root is not None else ""
    book = parts.tree(name)
    folder = posixpath.dirname(name)
    files = {str(item.get("id")): _inside(folder, item.get("href") or "") for item in book.iter(f"{_OPF}item")}
    chapters = [files.get(item.get("idref") or "", "") for item in book.iter(f"{_OPF}itemref")]
    title = _line(book.findtext(f".//{_DC}title") or "")
    day = _day(book.findtext(f".//{_DC}date"))
    links: dict[str, str] = {}
    return _made(title, _chapters(parts, [each for each in chapters if each in parts], links), day, links)


def _chapters(parts: _Parts, names: list[str], links: dict[str, str]) -> Iterator[str]:
    for name in dict.fromkeys(names):
        try:
            chapter = extract(parts.read(name), "text/html", "", "", own=True)
        except PageBlocked:  # a cover, or a page that is a picture
            continue
        links.update((link, link) for link in chapter.links)
        yield chapter.text
