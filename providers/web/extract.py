"""A page as the model reads it: bytes in, title, Markdown, date and links out. Nothing is fetched and nothing runs.

Handed a body with the labels it came with. Raises `PageBlocked` where there is a page but not for us (a challenge, a
consent wall, a shell that scripts would fill), `Unavailable` where there is nothing that can be read.

Why our own: mixed pages (shops, forums, listings, docs) are read better and faster than by the extractors one can
install, and what a reader cannot see is left out before anything is chosen. The figures are in bench/extraction.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from ..base import LONGEST_TEXT
from ..errors import PageBlocked, Unavailable
from ..records import dataclass
from .blocks import Block, absolute, split_blocks
from .decode import decode, sniff
from .evidence import choose
from .markdown import plain_text, write_markdown
from .pdf_ink import remove_unseen
from .plain import as_code, is_markdown, is_program, markdown_title, targets, with_whole_addresses
from .visible import find_all, find_values, unseen

if TYPE_CHECKING:
    import pypdfium2
    from lxml.etree import _Element as Element

__all__ = ["Extracted", "extract", "plain_text"]

_MAX_LINKS = 200
_MAX_TITLE = 300
_MAX_PDF_PAGES = 200
_FILES = frozenset({"application", "audio", "font", "image", "model", "video"})
_CUT = "\n\n[The text is longer than can be read; the rest was left out.]"
_PAGES_LEFT_OUT = "[Cut short: these are the first {read} of {all} pages.]"
_NO_TEXT = "the page holds no text of its own"

_ISO_DATE = re.compile(r"\b((?:19|20)\d\d)-?(0[1-9]|1[0-2])-?(0[1-9]|[12]\d|3[01])")
_DATED = re.compile(r'"date(?:Published|Created)"\s*:\s*"([^"]{8,40})"')
_DATE_NAMES = (
    "article:published_time", "datepublished", "date", "dc.date", "dc.date.issued", "dcterms.created", "pubdate",
    "publish-date", "citation_publication_date", "sailthru.date", "parsely-pub-date",
)  # fmt: skip
_BARE_LINK = re.compile(r"https?://[^\s<>\"'`\])}]+[^\s<>\"'`\])}.,;:!?]")

_FORUM = re.compile(r'"@type"\s*:\s*\[?\s*"DiscussionForumPosting"')
_POST = re.compile(r"(?<![\w-])(?:post[-_]?body|bbWrapper|messageContent|cooked|message-body|topic-body|forumpost)")

# A page this short that says one of these is a gate, not a page; longer ones may be about gates.
_GATE_WORDS = 150
_SCRIPTED_WORDS = 40  # scripts are needed by many things that short pages speak of
_CHALLENGE = re.compile(
    r"just a moment|checking (?:if the site connection is secure|your browser)|attention required|access denied"
    r"|(?:verify|confirm|prove)\w*(?: that)? you(?:'re| are) (?:a )?(?:not a )?(?:human|robot)|are you a robot"
    r"|unusual (?:traffic|activity)|captcha|pardon our interruption|request (?:was )?blocked|security check"
    r"|ddos protection|you have been blocked",
    re.IGNORECASE,
)
_SCRIPTED = re.compile(
    r"(?:enable|turn on|activate|requires?|needs?)[^.]{0,20}\b(?:javascript|js)\b(?!-)"
    r"|javascript (?:is|must be|has been)",
    re.IGNORECASE,
)
_CONSENT = re.compile(
    r"before you continue|(?:accept|agree to)[^.]{0,30}cookies|we (?:value|care about) your privacy"
    r"|(?:manage|your) (?:cookie|privacy|consent) (?:preferences|choices|settings)",
    re.IGNORECASE,
)
_CHALLENGE_MARKS = re.compile(
    r"/cdn-cgi/challenge-platform/|_cf_chl_opt|_Incapsula_Resource|px-captcha|captcha-delivery"
)
_EMPTY_ROOT = '//*[@id="root" or @id="app" or @id="__next" or @id="__nuxt" or @id="___gatsby"][not(normalize-space())]'


@dataclass(frozen=True, slots=True)
class Extracted:
    title: str
    text: str  # Markdown
    date: str | None = None
    links: tuple[str, ...] = ()
    cut_short: str = ""  # the sentence the text begins with, if more was there than could be read


def extract(body: bytes, content_type: str, charset: str, url: str, *, own: bool = False) -> Extracted:
    """`own`: a document of the operator's, not a page of the web. Nothing in it is a gate, however short it is."""
    page = _read(body, content_type, charset, url, own)
    return page if len(page.text) <= LONGEST_TEXT else replace(page, text=page.text[:LONGEST_TEXT] + _CUT)


def _read(body: bytes, content_type: str, charset: str, url: str, own: bool) -> Extracted:
    if not body.strip(b"\0\t\n\r "):
        raise PageBlocked("the page is empty")
    kind = sniff(body, content_type)
    if kind == "binary":
        kind_of_file = content_type.partition("/")[0]  # all else of it are its server's own words
        raise Unavailable(f"what is there is not text ({kind_of_file if kind_of_file in _FILES else 'but a file'})")
    if kind == "pdf":
        return _read_pdf(body)
    text = decode(body, charset).replace("\0", "")
    if not text.strip():  # its bytes mean nothing in the charset that it names
        raise PageBlocked("the page is empty")
    if kind == "html":
        return _read_html(text, url, own)
    if kind == "text":
        return _read_plain(text.strip(), content_type, url)
    return Extracted("", as_code(text.strip(), kind), None, _links(_BARE_LINK.findall(text)))


def _read_plain(text: str, content_type: str, url: str) -> Extracted:
    if is_markdown(content_type):
        text = with_whole_addresses(text, url)
        title = markdown_title(text)[:_MAX_TITLE] or _first_line(text)
        return Extracted(title, text, None, _links([*targets(text), *_BARE_LINK.findall(text)]))
    shown = as_code(text) if is_program(text, content_type, url) else text
    return Extracted(_first_line(text), shown, None, _links(_BARE_LINK.findall(text)))


def _read_html(html: str, url: str, own: bool) -> Extracted:
    tree = _parse(html)
    body = _body(tree)
    base = tree.find(".//base[@href]")
    if base is not None:
        url = urljoin(url, absolute(url, base.get("href")) or url)
    blocks, spans = split_blocks(body, url, unseen(body))
    meta = _read_meta(tree)
    title = _title(tree, meta, blocks)
    if not own:
        _refuse_gate(tree, html, title, blocks)
    forum = bool(_FORUM.search(html)) or len(_POST.findall(" ".join(find_values(body, ".//@class")))) > 1
    chosen = choose(blocks, spans, forum=forum) or (blocks if own else [])
    if not chosen:
        raise PageBlocked(_NO_TEXT)
    links = (link for block in chosen for link in block.links)
    return Extracted(title, write_markdown(chosen), _date(tree, html, meta), _links(links))


def _body(tree: Element) -> Element:
    """The body. Where the page does not begin one, the parser puts <nav>, <main> and their like into the head."""
    body, head = tree.find("body"), tree.find("head")
    if body is None and head is not None:
        head.tag = "body"
        return head
    return tree if body is None else body


def _parse(html: str) -> Element:
    from lxml import etree

    parser = etree.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True)
    try:
        tree = etree.fromstring(html.encode("utf-8", "replace"), parser)
    except etree.LxmlError as error:
        raise PageBlocked(_NO_TEXT) from error
    if tree is None:
        raise PageBlocked(_NO_TEXT)
    return tree


def _refuse_gate(tree: Element, html: str, title: str, blocks: Sequence[Block]) -> None:
    words = sum(block.words for block in blocks)
    if words >= _GATE_WORDS:
        return
    text = f"{title}\n" + "\n".join(block.text for block in blocks)
    if _CHALLENGE.search(text) or _CHALLENGE_MARKS.search(html):
        raise PageBlocked("the page asks for proof that its reader is human")
    if not blocks or (words < _SCRIPTED_WORDS and _SCRIPTED.search(text)) or find_all(tree, _EMPTY_ROOT):
        raise PageBlocked("the page shows nothing without JavaScript")
    if _CONSENT.search(text):
        raise PageBlocked("the page asks for consent before it shows anything")


def _read_meta(tree: Element) -> dict[str, str]:
    meta: dict[str, str] = {}
    for element in tree.iter("meta"):
        name = element.get("property") or element.get("name") or element.get("itemprop") or ""
        content = (element.get("content") or "").strip()
        if name and content:
            meta.setdefault(name.lower(), content)
    return meta


def _title(tree: Element, meta: dict[str, str], blocks: Sequence[Block]) -> str:
    heading = next((plain_text(block.text) for block in blocks if block.tag == "h1"), "")
    title = meta.get("og:title") or tree.findtext(".//title") or heading
    return " ".join(title.split())[:_MAX_TITLE]


def _date(tree: Element, html: str, meta: dict[str, str]) -> str | None:
    """The day it was published, as its author declares it."""
    declared = [meta.get(name, "") for name in _DATE_NAMES]
    times = find_values(tree, './/*[@pubdate or @itemprop="datePublished"]/@*[name()="datetime" or name()="content"]')
    return next((day for value in (*declared, *_DATED.findall(html), *times) if (day := _day(value))), None)


def _day(value: str) -> str:
    found = _ISO_DATE.search(value)
    return "-".join(found.groups()) if found else ""


def _links(found: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(found))[:_MAX_LINKS]


def _first_line(text: str) -> str:
    line = next((line for line in text.splitlines() if line.strip()), "")
    return " ".join(line.lstrip("# ").split())[:_MAX_TITLE]


def _read_pdf(body: bytes) -> Extracted:
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(body)
    except pypdfium2.PdfiumError as error:
        locked = any(word in str(error).lower() for word in ("password", "security"))
        raise Unavailable("the PDF is locked by a password" if locked else "the PDF is damaged or cut short") from error
    with document:
        pages = _read_pdf_pages(document)
        about = document.get_metadata_dict(skip_empty=True)
        length = len(document)
    text = "\n\n".join(page for page in pages if page)
    if not text:
        raise Unavailable("the PDF holds pictures of pages and no text")
    title = " ".join(about.get("Title", "").split())[:_MAX_TITLE] or _first_line(text)
    links = _links(_BARE_LINK.findall(text))
    cut_short = _PAGES_LEFT_OUT.format(read=len(pages), all=length) if len(pages) < length else ""
    if cut_short:  # at the front: whoever reads a part of it must know
        text = f"{cut_short}\n\n{text}"
    return Extracted(title, text, _day(about.get("CreationDate", "")) or None, links, cut_short)


def _read_pdf_pages(document: pypdfium2.PdfDocument) -> list[str]:
    pages, length = [], 0
    for number in range(min(len(document), _MAX_PDF_PAGES)):
        pages.append(_read_pdf_page(document, number))
        length += len(pages[-1])
        if length > LONGEST_TEXT:
            break
    return pages


def _read_pdf_page(document: pypdfium2.PdfDocument, number: int) -> str:
    page = document[number]
    remove_unseen(page)
    text = page.get_textpage()
    try:
        whole = text.get_text_bounded().encode("utf-8", "replace").decode()  # PDFs hold halves of characters too
        return "\n".join(line.rstrip() for line in whole.splitlines()).strip()
    finally:
        text.close()
        page.close()
