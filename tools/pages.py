"""A page as the model reads it. Handed a page as the chain read it; hands on the page cleaned and escaped, once per
request, and of that the part which was asked for, of bounded length. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from providers.chain import Opened
from providers.text.cuts import cut
from providers.text.passages import best_passages

from . import prompts
from .clean import clean, one_line
from .provenance import Address
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
    content = best_passages(page.text[start:], query, max_length) if query and not short else ""
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
