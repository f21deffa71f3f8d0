"""A page as the model reads it. Handed a page as the chain read it; hands on the page cleaned and escaped, once per
request, and of that the part which was asked for, of bounded length. Pure.
"""

from __future__ import annotations

import re
from dataclasses import replace

from providers.chain import Opened
from providers.records import dataclass
from providers.text.cuts import cut
from providers.text.passages import best_passages
from providers.text.patterns import pattern
from providers.text.stretches import first_in

from . import prompts
from .clean import clean, one_line
from .provenance import Address
from .render import MAX_TITLE, PagePart, escape, remark

SHORTEST = 200  # less than this is no use to a reader
SHORT_PAGE = 1000
LONGEST_PAGE = 1_000_000  # what is kept of one page
LONGEST_REMARK = 150
# Where code begins, which is kept as it is, or a comment of HTML, which no reader of the page sees.
_BEGINS = pattern(r"^ {0,3}(`{3,}|~{3,})|`|<!--", re.MULTILINE)


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
    cut_short: str = ""  # the sentence its text begins with, if more was there than could be read


def prepare(address: Address, opened: Opened) -> ReadPage:
    page = opened.page
    text, cut_short = _shown(page.text, LONGEST_PAGE), _shown(page.cut_short, LONGEST_REMARK)
    if not text.startswith(cut_short):
        text = f"{cut_short}\n\n{text}"
    return ReadPage(
        address=address,
        final_url=page.url or address.url,
        title=escape(one_line(page.title, MAX_TITLE)),
        text=text,
        date=escape(one_line(page.date, 40)) if page.date else None,
        links=page.links,
        provider=opened.provider,
        message=remark(opened.failures, opened.provider, opened.age),
        cut_short=cut_short,
    )


def _shown(text: str, most: int) -> str:
    return escape(without_comments(clean(text, most)))


def without_comments(text: str) -> str:
    """Step by step, and what ends something is found by `find`: one pattern over a megabyte would let nobody else go
    on until it is done."""
    end = text.rfind("-->") + 3  # what lies beyond holds no comment that ends
    kept, behind = [], 0  # behind: what has been read so far
    while end > 2 and (found := first_in(_BEGINS, text, behind)) and found.start() < end:
        if found[0] == "<!--":
            close = text.find("-->", found.end())
            kept.append(text[behind : found.start() if close >= 0 else found.end()])
            behind = close + 3 if close >= 0 else found.end()  # `<!-->` may be the last end, and ends nothing
            continue
        stop = _fence_end(text, found[1], found.end(), end) if found[1] else _span_end(text, found.end(), end)
        kept.append(text[behind:stop])
        behind = stop
    return "".join([*kept, text[behind:]]) if kept else text


def _fence_end(text: str, fence: str, start: int, end: int) -> int:
    """Behind the same run at the beginning of a line; a fence that is not closed goes on to the end."""
    while (line := text.find("\n", start, end)) >= 0:
        at = text.find(fence, line + 1, end)
        if at < 0:
            break
        begin = text.rfind("\n", at - 4, at) + 1
        if begin and not text[begin:at].strip(" "):
            return at + len(fence)
        start = at
    return end


def _span_end(text: str, start: int, end: int) -> int:
    """Behind the next backtick in the same line; without one, or right behind the first, it is no code."""
    stop = text.find("`", start, end)
    if stop <= start or text.find("\n", start, stop) >= 0:
        return start
    return stop + 1


def part_of(page: ReadPage, start: int, query: str, max_length: int) -> PagePart:
    """What the model asked to read of a page: the passages for `query`, or the text from `start` on."""
    left = len(page.text) - start
    if left <= 0:
        return PagePart(page.address.url, error=prompts.BEYOND_END.format(start=start, length=len(page.text)))
    if not query or left <= min(max_length, SHORT_PAGE):  # nothing is won by picking from it
        return _read_on(page, start, max_length)
    content = _passages(page, start, query, max_length)
    if not content:
        part = _read_on(page, start, max_length)
        return replace(part, message=f"{page.message} {prompts.NO_PASSAGE.format(start=start)}".strip())
    left_out = content != page.text.strip()
    truncated = left_out or bool(page.cut_short)
    return replace(_described(page), content=content, truncated=truncated, query=query if left_out else "")


def _passages(page: ReadPage, start: int, query: str, max_length: int) -> str:
    """With the sentence in front that says that more was there: what a page does not hold may stand in the rest."""
    first = max(start, len(page.cut_short))
    front = f"{page.cut_short}\n\n" if page.cut_short else ""
    found = best_passages(page.text[first:], query, max_length - len(front))
    return found and front + found


def _read_on(page: ReadPage, start: int, max_length: int) -> PagePart:
    end = cut(page.text, start, max_length)
    goes_on = end < len(page.text)
    content = page.text[start:end].strip("\n")
    truncated = goes_on or bool(page.cut_short)
    return replace(_described(page), content=content, truncated=truncated, next_start=end if goes_on else None)


def _described(page: ReadPage) -> PagePart:
    """All that is said of a page besides its content."""
    return PagePart(
        url=page.address.url,
        title=page.title,
        original_length=len(page.text),
        date=page.date,
        provider=page.provider,
        message=page.message,
    )
