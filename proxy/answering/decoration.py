"""Clients send our earlier answers back with every request. Handed the messages of a request; hands on the same
messages with our decoration taken out of the assistant's (`[[n]](url)` reads `[n]` again, footer and annotations go),
what those numbers stood for, and the highest number that the conversation already uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tools.ledger import KnownSource

from ..values.markdown import Code
from ..values.messages import is_text, texts_in
from .citations import FOOTER_HEAD, NUMBER, NUMBERS

_OUR_FIELDS = ("annotations", "search_results")  # ours or OpenAI's; upstreams refuse them
_OUR_LINK = re.compile(rf"\[\[({NUMBER})\]\]\((https?://[^\s()<>]+)\)")
_FOOTER_LINE = re.compile(rf"\[({NUMBER})\] \S.*")
_OPENAI_MARKER = re.compile(r"\(\[[^\[\]]+\]\(https?://[^\s()<>]+\)\)")
_BARE_MARKER = re.compile(rf"\[({NUMBER})\]")
_NUMBERED = re.compile(rf"[\[【]({NUMBERS})[\]】†]")
_CODE_BEGINS = re.compile(r"`|~~~")
_MOST_TAKEN = 99  # beyond that a bracketed number is a year or an amount, not somebody's footnote


@dataclass(frozen=True, slots=True)
class CleanedHistory:
    messages: list[dict[str, Any]]  # the same objects where nothing changed, copies where something did
    changed: bool
    highest_number: int  # our numbers count on from here
    known_sources: dict[int, KnownSource]  # by number


def strip_decoration(
    messages: list[dict[str, Any]], footer: bool = True, sources: Mapping[int, KnownSource] | None = None
) -> CleanedHistory:
    """`footer` says whether a "Sources" list at the end of an answer may be ours; `sources` are numbers that are known
    from elsewhere."""
    reader = _Reader(footer, messages, sources or {})
    clean = [reader.clean(message) if message.get("role") == "assistant" else message for message in messages]
    changed = any(new is not old for new, old in zip(clean, messages, strict=True))
    highest = max((_highest_number(text) for message in clean for text in texts_in(message.get("content"))), default=0)
    return CleanedHistory(clean, changed, highest, reader.known)


def prose(text: str) -> Iterator[tuple[int, int]]:
    """The stretches `[start, end)` of a text that are not code."""
    text = "\n" + text
    code = Code()
    i = 1
    while i < len(text):
        begins = _CODE_BEGINS.search(text, i)
        stop = begins.start() if begins else len(text)
        if stop > i:
            yield i - 1, stop - 1
        i = code.scan(text, stop) if begins else stop


class _Reader:
    """Reads assistant messages in order and learns what their numbers stood for."""

    def __init__(self, footer: bool, messages: list[dict[str, Any]], sources: Mapping[int, KnownSource]) -> None:
        self._footer = footer
        self._messages = messages
        # Page → the number given to markers that carry none.
        self._unnumbered: dict[str, int] = {source.url: n for n, source in sources.items()}
        self._last_given: int | None = None  # to a marker that carries no number
        self._highest_known = 0
        self._contested: set[int] = set()  # two answers gave the number to two pages: it stands for neither
        self.known: dict[int, KnownSource] = {}

    def clean(self, message: dict[str, Any]) -> dict[str, Any]:
        content = message.get("content")
        titles = self._read_annotations(message.get("annotations"), "".join(texts_in(content)))
        numbered = self._number(content, message.get("annotations")) if isinstance(content, str) else content
        plain = self._clean_content(numbered, titles)
        if plain is content and not any(name in message for name in _OUR_FIELDS):
            return message
        clean = {name: value for name, value in message.items() if name not in _OUR_FIELDS}
        if plain is not content:
            clean["content"] = plain
        return clean

    def _read_annotations(self, annotations: Any, text: str) -> dict[str, str]:
        """Learns the numbers that annotations stand on; hands on the title of each url."""
        titles: dict[str, str] = {}
        for citation in _url_citations(annotations):
            url, title = citation.get("url"), citation.get("title")
            if not isinstance(url, str):
                continue
            titles[url] = title if isinstance(title, str) else ""
            start, end = citation.get("start_index"), citation.get("end_index")
            if isinstance(start, int) and isinstance(end, int) and 0 <= start < end:
                marker = _BARE_MARKER.fullmatch(text[start:end])
                if marker:
                    self._learn(int(marker.group(1)), url, titles[url])
        return titles

    def _number(self, text: str, annotations: Any) -> str:
        """OpenAI's own form, `([host](url))`, as `[n]`: it carries no number, so its page is given one."""
        for citation in reversed(list(_url_citations(annotations))):
            url, start, end = (citation.get(name) for name in ("url", "start_index", "end_index"))
            if not (isinstance(url, str) and isinstance(start, int) and isinstance(end, int) and 0 <= start < end):
                continue
            marker = text[start:end]
            if _OPENAI_MARKER.fullmatch(marker) and marker.endswith(f"]({url}))"):
                title = citation.get("title")
                n = self._number_of(url, title if isinstance(title, str) else "")
                text = f"{text[:start]}[{n}]{text[end:]}"
        return text

    def _number_of(self, url: str, title: str) -> int:
        if url not in self._unnumbered:
            if self._last_given is None:
                self._last_given = self._highest_taken()
            n = self._last_given = max(self._last_given, self._highest_known) + 1
            self._unnumbered[url] = n
            self._learn(n, url, title)
        return self._unnumbered[url]

    def _highest_taken(self) -> int:
        texts = (text for message in self._messages for text in texts_in(message.get("content")))
        return max(*map(_highest_number, texts), *self._unnumbered.values(), 0, 0)

    def _clean_content(self, content: Any, titles: Mapping[str, str]) -> Any:
        if isinstance(content, str):
            return self._clean_text(content, titles)
        if not isinstance(content, list):
            return content
        parts = [
            {**part, "text": self._clean_text(part["text"], titles)} if is_text(part) else part for part in content
        ]
        return content if parts == content else parts

    def _clean_text(self, text: str, titles: Mapping[str, str]) -> str:
        if self._footer:
            text = _without_footer(text)
        if "[[" not in text:
            return text

        def bare(link: re.Match[str]) -> str:
            n, url = link.groups()
            self._learn(int(n), url, titles.get(url, ""))
            return f"[{n}]"

        pieces: list[str] = []
        done = 0
        for start, end in prose(text):
            pieces += text[done:start], _OUR_LINK.sub(bare, text[start:end])
            done = end
        plain = "".join(pieces) + text[done:]
        return text if plain == text else plain

    def _learn(self, n: int, url: str, title: str) -> None:
        self._highest_known = max(self._highest_known, n)
        known = self.known.get(n, KnownSource(url))
        if known.url != url:
            self._contested.add(n)
            del self.known[n]
        elif n not in self._contested:
            self.known[n] = KnownSource(url, known.title or title)


def _without_footer(text: str) -> str:
    body, head, list_ = text.rpartition(FOOTER_HEAD)
    lines = [_FOOTER_LINE.fullmatch(line) for line in list_.split("\n")]
    numbers = [int(line.group(1)) for line in lines if line]
    ours = head and len(numbers) == len(lines) and numbers == sorted(set(numbers))
    return body if ours else text


def _highest_number(text: str) -> int:
    if "[" not in text and "【" not in text:
        return 0
    found = (
        int(number)
        for start, end in prose(text)
        for marker in _NUMBERED.finditer(text, start, end)
        for number in marker.group(1).split(",")
    )
    return max((n for n in found if n <= _MOST_TAKEN), default=0)


def _url_citations(annotations: Any) -> Iterator[Mapping[str, Any]]:
    """Annotations as Chat Completions nests them, or flat as Responses does."""
    for annotation in annotations if isinstance(annotations, list) else []:
        citation = annotation.get("url_citation", annotation) if isinstance(annotation, dict) else None
        if isinstance(citation, dict):
            yield citation
