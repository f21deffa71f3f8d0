"""What the model reads and what `--json` prints, from the same values. Handed a `SearchAnswer` or `PagePart`s, hands on
text in a constant layout or plain JSON objects. `escape` is the last thing done to web text before it gets here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from providers.chain import Failure
from providers.records import dataclass
from providers.text.patterns import pattern
from providers.text.stretches import substituted

from . import prompts
from .clean import one_line
from .ledger import Source

MAX_TITLE = 200
MAX_SHOWN_QUERY = 100
FEW = 2  # things to read: below that a model is told that there is not more
# Why a search has no results: nothing was found, it could not be made like this, or nobody was able to serve it.
SearchFault = Literal["", "arguments", "providers"]


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    query: str
    provider: str = ""
    direct: str = ""  # the service's own answer
    sources: tuple[Source, ...] = ()
    message: str = ""  # why it failed, or who failed before someone served
    ok: bool = True
    age: float | None = None  # seconds, if it comes from the cache
    fault: SearchFault = ""
    advice: str = ""  # what the operator can do about a failure: no model reads it


@dataclass(frozen=True, slots=True)
class PagePart:
    """A page as far as it was asked for, or the reason why there is none."""

    url: str
    title: str = ""
    content: str = ""
    original_length: int = 0
    truncated: bool = False
    next_start: int | None = None
    query: str = ""  # the content is the passages for it, with what lies between them left out
    date: str | None = None
    source: Source | None = None
    provider: str = ""
    message: str = ""
    error: str = ""


def search_text(answer: SearchAnswer, fence: str, today: str, *, cite: bool = True) -> str:
    """`cite`: does it say how to cite?"""
    query = escape(answer.query)
    if not answer.ok:
        return f"{prompts.NOTHING_FOUND.format(query=query, message=answer.message)}\n{prompts.GIVE_UP}"
    results = prompts.RESULTS.format(query=query, provider=answer.provider)
    rule = [prompts.CITE.format(n=answer.sources[0].n)] if answer.sources and cite else []
    lines = [
        f"{prompts.TODAY.format(today=today)} {results}",
        *([answer.message] if answer.message else []),
        " ".join([*rule, prompts.UNTRUSTED]),
    ]
    return "\n".join([*lines, *fenced(fence, [*_direct(answer), *map(_hit, answer.sources)])])


def reading_text(
    answer: SearchAnswer,
    parts: Sequence[PagePart],
    missed: Sequence[PagePart],
    fence: str,
    today: str,
    *,
    cite: bool = True,
) -> str:
    """A search and the pages that it led to as one thing to read, each source once, the rule for citing last. Of
    `missed` the reader is told that they could not be opened."""
    read = [(part.source, part.content) for part in parts if part.source]
    opened = {source.n for source, _ in read}
    rest = [source for source in answer.sources if source.n not in opened]
    pages = ["\n".join([*_head(source), content]) for source, content in read]
    blocks = [*_direct(answer), *pages, *map(_hit, rest)]
    if not blocks:
        return search_text(answer, fence, today, cite=cite) if answer.query else pages_text(parts, fence, cite=cite)
    numbers = [*opened, *(source.n for source in rest)]
    little = [prompts.LITTLE_FOUND] if answer.query and len(blocks) < FEW else []
    lines = [
        *(_page_text(part, fence, cite) for part in missed),
        f"{prompts.TODAY.format(today=today)} {prompts.UNTRUSTED}",
        *fenced(fence, blocks),
        " ".join([*little, prompts.ANSWER_FROM, *([prompts.CITE.format(n=min(numbers))] if numbers and cite else [])]),
    ]
    return "\n".join(lines)


def fenced(fence: str, blocks: Sequence[str]) -> list[str]:
    """What the web says, one thing after the other, between the two lines that nothing in it can imitate."""
    return [f"<<<{fence}", *(["\n\n".join(blocks)] if blocks else []), f"{fence}>>>"]


def _direct(answer: SearchAnswer) -> list[str]:
    return [prompts.DIRECT_ANSWER.format(text=answer.direct)] if answer.direct else []


def _hit(source: Source) -> str:
    lines = _head(source)
    if source.snippet:
        lines.append(source.snippet)
    return "\n".join(lines)


def _head(source: Source) -> list[str]:
    lines = [prompts.source_title(source.n, source.title), prompts.source_url(source.url)]
    return lines + dated(source.date) if source.date else lines


def dated(date: str | None) -> list[str]:
    return [prompts.source_date(date)] if date else []


def pages_text(parts: Sequence[PagePart], fence: str, *, cite: bool = True) -> str:
    return "\n\n".join(_page_text(part, fence, cite) for part in parts)


def _page_text(part: PagePart, fence: str, cite: bool) -> str:
    if part.error or part.source is None:
        return prompts.NOT_OPENED.format(url=part.url, reason=part.error)
    title = prompts.PAGE_TITLE.format(n=part.source.n, title=part.title)
    head = "\n".join([title, prompts.source_url(part.source.url), *dated(part.date)])
    lines = [
        *([part.message] if part.message else []),
        *([passages_line(part)] if part.query else []),
        _lengths(part),
        " ".join([*([prompts.CITE.format(n=part.source.n)] if cite else []), prompts.UNTRUSTED]),
        *fenced(fence, [head, part.content]),
    ]
    return "\n".join(lines)


def _lengths(part: PagePart) -> str:
    truncated = "true" if part.truncated else "false"
    lengths = prompts.PAGE_LENGTHS.format(shown=len(part.content), whole=part.original_length, truncated=truncated)
    return lengths if part.next_start is None else lengths + prompts.READ_ON.format(start=part.next_start)


def passages_line(part: PagePart) -> str:
    """In words that this is no page but what it says about something, and how to get the page."""
    query = escape(one_line(part.query, MAX_SHOWN_QUERY))
    return prompts.PASSAGES.format(query=query, shown=len(part.content), whole=part.original_length)


def remark(failures: Sequence[Failure], served_by: str, age: float | None, note: str = "") -> str:
    """One line on who should have served and did not, what whoever served says of how it did, and how old the answer
    is; empty if there is nothing to say."""
    sentences = []
    if failures:
        reasons = "; ".join(f"{failure.provider}: {failure.reason.rstrip('.')}" for failure in failures)
        shown = escape(one_line(reasons, 500))
        sentences.append(prompts.SERVED_INSTEAD.format(provider=served_by, reasons=shown))
    if note:
        sentences.append(f"{served_by}: {escape(one_line(note, 300)).rstrip('.')}.")
    if age is not None:
        sentences.append(prompts.CACHED.format(age=age))
    return " ".join(sentences)


def sentence(error: Exception) -> str:
    """A failure as one clean sentence."""
    return escape(one_line(str(error), 1500)).rstrip(".") + "."


def search_json(answer: SearchAnswer) -> dict[str, Any]:
    return {
        "query": answer.query,
        "provider": answer.provider,
        "results": [_source_json(found) for found in answer.sources],
        "message": answer.message,
    }


def _source_json(found: Source) -> dict[str, Any]:
    """Author and score stand there only where the provider gave them."""
    told = {"author": found.author, "score": found.score}
    return {
        "n": found.n,
        "title": found.title,
        "url": found.url,
        "snippet": found.snippet,
        "date": found.date,
        **{name: value for name, value in told.items() if value is not None},
    }


def open_json(part: PagePart) -> dict[str, Any]:
    return {
        "url": part.source.url if part.source else part.url,
        "title": part.title,
        "content": part.content,
        "content_length": len(part.content),
        "original_length": part.original_length,
        "truncated": part.truncated,
        "status": "error" if part.error else "success",
        "error": part.error,
        **({"message": passages_line(part)} if part.query else {}),
    }


_TAGS = (
    "s|bos|eos|system|system-reminder|assistant|think|thinking|invoke|(?:start|end)_of_(?:turn|role|text|image)"
    "|(?:tool|function)(?:s|[_-][\\w-]{1,40})?"
)
# Only the shapes that some chat template or agent reads as its own; every other tag of a page stays as it is.
_TEMPLATE = pattern(
    rf"<(?=[|｜][^<>\n]{{0,80}}[|｜]>|/?(?:{_TAGS})(?:[\s=][^<>\n]{{0,80}})?/?>|</?SYS>>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|IMG)\])",
    re.IGNORECASE,
)
_FENCE_ID = pattern(r"web-[0-9a-f]{16}", re.IGNORECASE)
_MARKER = pattern(r"\[(\s*\d{1,6}(?:\s*[-–,;]\s*\d{1,6}){0,20}\s*(?:†[^\]\n]{0,80})?)\]|【([^】\n]{0,80})】")
_TICKS = pattern("`+")
_CODE_FENCE = pattern(r" {0,3}(`{3,}|~{3,})")


def escape(text: str) -> str:
    """Web text in which nothing can pass for our fence, for a chat template's token or for one of our markers.

    It does not depend on the request, so offsets into an escaped page hold from one call to the next.
    """
    if "<" in text or "[" in text:
        text = substituted(_TEMPLATE, lambda found: found[0] + " ", text)
    if "-" in text:
        text = substituted(_FENCE_ID, "web-id", text)
    if "[" not in text and "【" not in text:
        return text
    lines = text.split("\n")
    code = _code_lines(lines)
    return "\n".join(line if number in code else _without_markers(line) for number, line in enumerate(lines))


def _code_lines(lines: Sequence[str]) -> set[int]:
    """The lines of closed code blocks. An open end counts as text, or one ``` would shield all markers below it."""
    code: set[int] = set()
    begin, mark = -1, ""
    for number, line in enumerate(lines):
        found = _CODE_FENCE.match(line)
        if found is None:
            continue
        if not mark:
            begin, mark = number, found[1]
        elif found[1].startswith(mark) and not line.strip(" `~"):
            code.update(range(begin, number + 1))
            mark = ""
    return code


def _without_markers(line: str) -> str:
    if "[" not in line and "【" not in line:
        return line
    pieces, at = [], 0
    for start, end in _code_spans(line):
        pieces += [_MARKER.sub(_as_parentheses, line[at:start]), line[start:end]]
        at = end
    return "".join([*pieces, _MARKER.sub(_as_parentheses, line[at:])])


def _code_spans(line: str) -> Iterator[tuple[int, int]]:
    """From a run of backticks to the next, where that is not longer. Each run is looked at once: a pattern that goes
    back to its first run takes the cube of the length for a line of backticks."""
    opened = 0  # how long the run is that may open one
    behind = 0  # where it ends
    for run in _TICKS.finditer(line):
        size = run.end() - run.start()
        if opened >= size:
            yield behind - size, run.end()
            opened = 0
        else:
            opened, behind = size, run.end()


def _as_parentheses(marker: re.Match[str]) -> str:
    return f"({marker[1] or marker[2] or ''})"
