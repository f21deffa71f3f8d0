"""A page as the model reads it. Handed a page as the chain read it; hands on the page cleaned and escaped, once per
request, and of that the part which was asked for, of bounded length. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from providers.chain import Opened

from . import prompts
from .clean import clean, cut_place, one_line
from .provenance import Address
from .relevance import relevance
from .render import MAX_TITLE, PagePart, escape, remark

SHORTEST = 200  # less than this is no use to a reader
SHORT_PAGE = 1000
LONGEST_PAGE = 1_000_000  # what is kept of one page
# Code, which is kept as it is, or a comment of HTML, which no reader of the page sees.
CODE_OR_COMMENT = re.compile(
    r"(^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\2|\Z)|`[^`\n]+`)|<!--.*?-->", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class ReadPage:
    """A page of this request as it can be shown: cleaned and escaped once, so that offsets into it stay true."""

    address: Address
    final_url: str
    title: str
    text: str
    date: str | None
    links: tuple[str, ...]
    provider: str
    message: str


def prepare(address: Address, opened: Opened) -> ReadPage:
    page = opened.page
    return ReadPage(
        address=address,
        final_url=page.url or address.url,
        title=escape(one_line(page.title, MAX_TITLE)),
        text=escape(without_comments(clean(page.text, LONGEST_PAGE))),
        date=escape(one_line(page.date, 40)) if page.date else None,
        links=page.links,
        provider=opened.provider,
        message=remark(opened.failures, opened.provider, opened.age),
    )


def without_comments(text: str) -> str:
    end = text.rfind("-->") + 3  # what lies beyond holds no comment that ends
    return CODE_OR_COMMENT.sub(r"\1", text[:end]) + text[end:] if end > 2 else text


def part_of(page: ReadPage, start: int, query: str, max_length: int) -> PagePart:
    """What the model asked to read of a page: the passages for `query`, or the text from `start` on."""
    note, next_start = page.message, None
    if start >= len(page.text):
        return PagePart(page.address.url, error=prompts.BEYOND_END.format(start=start, length=len(page.text)))
    short = len(page.text) - start <= min(max_length, SHORT_PAGE)  # nothing is won by picking from it
    content = passages(page.text[start:], query, max_length) if query and not short else ""
    truncated = bool(content) and len(content) < len(page.text) - start
    if query and not content and not short:
        note = f"{note} {prompts.NO_PASSAGE.format(start=start)}".strip()
    if not content:
        end = cut(page.text, start, max_length)
        content, truncated = page.text[start:end].strip("\n"), end < len(page.text)
        next_start = end if truncated else None
    return PagePart(
        url=page.address.url,
        title=page.title,
        content=content,
        original_length=len(page.text),
        truncated=truncated,
        next_start=next_start,
        date=page.date,
        provider=page.provider,
        message=note,
    )


def cut(text: str, start: int, max_length: int) -> int:
    """Where a part that begins at `start` ends: after a paragraph, else a sentence, else a word, else anywhere."""
    end = start + max_length
    if end >= len(text):
        return len(text)
    earliest = start + max_length // 2
    for stop in ("\n\n", "\n", ". ", "。", " "):
        at = text.rfind(stop, earliest, end)
        if at >= 0:
            return at + len(stop)
    return max(cut_place(text, end), start + 1)


def passages(text: str, query: str, max_length: int) -> str:
    """The paragraphs that speak of the query, best first until the length is used up, in the order of the page."""
    paragraphs = [paragraph for paragraph in re.split(r"\n{2,}", text) if paragraph.strip()]
    scores = relevance(query, paragraphs)
    room = max_length
    chosen: dict[int, str] = {}
    for number in sorted(range(len(paragraphs)), key=lambda number: -scores[number]):
        paragraph = paragraphs[number]
        if scores[number] <= 0:
            break
        if not chosen:
            paragraph = paragraph[: cut(paragraph, 0, room)].rstrip()
        cost = len(paragraph) + len(prompts.GAP) + 4
        if cost <= room or not chosen:
            chosen[number] = paragraph
            room -= cost
    pieces: list[str] = []
    last = -1
    for number in sorted(chosen):
        pieces += [prompts.GAP, chosen[number]] if number > last + 1 else [chosen[number]]
        last = number
    if chosen and last < len(paragraphs) - 1:
        pieces.append(prompts.GAP)
    return "\n\n".join(pieces)
