"""Clients send our earlier answers back with every request. Handed the messages of a request; hands on the same
messages with our decoration taken out of the assistant's (`[[n]](url)` reads `[n]` again; footer, annotations and the
markers that the model did not write go), what those numbers stood for, and the highest number that the conversation
already uses.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from providers.records import dataclass
from providers.text.stretches import STRETCH, first_in, substituted
from tools.ledger import KnownSource

from ..values.markdown import Code
from ..values.messages import is_text, texts_in
from .fenced_reading import without_reading
from .marker_forms import AUTO_LEAD, FOOTER_HEAD, SURE_LEAD
from .marker_shapes import NUMBER, NUMBERS

_LINKABLE = ("http://", "https://")
_OUR_FIELDS = ("annotations", "search_results")  # ours or OpenAI's; upstreams refuse them
_OUR_LINK = re.compile(rf"\[\[({NUMBER})\]\]\((https?://[^\s()<>]+)\)")
_FOOTER_LINE = re.compile(rf"\[({NUMBER})\] \S.*")
_OPENAI_MARKER = re.compile(r"\(\[[^\[\]]+\]\(https?://[^\s()<>]+\)\)")
# A document without a link stands in OpenAI's form by its title alone.
_TITLE = r"\((?:[^()\n]++|\([^()\n]*+\))*+\)"
_AUTO_MARKER = re.compile(
    rf"{SURE_LEAD}(?:\[{NUMBER}\]|{_OPENAI_MARKER.pattern}|{_TITLE})|{AUTO_LEAD}{_OUR_LINK.pattern}"
)
# How all that is looked for here begins, but for what stands behind a hair space.
_NUMBERED = re.compile(r"[\[【][1-9]")
_BARE_MARKER = re.compile(rf"\[({NUMBER})\]")
_CODE_BEGINS = re.compile(r"`|~~~")
_MOST_TAKEN = 99  # beyond that a bracketed number is a year or an amount, not somebody's footnote
_LISTED = re.compile(rf"^[ \t>*-]*\[({NUMBER})\][ \t:]", re.MULTILINE)  # a list of somebody's own
_MOST_NUMBER = 999  # that a marker can hold
_MOST_MARKER = 5000  # characters of one that holds an address
_MOST_LINKS = 10_000  # of ours in a conversation; those beyond stay as they are
_LONGEST_LINK = 8 * 1024  # characters of a link of ours
_LONGEST_NUMBERS = 64  # characters of a marker that may stand across two pieces
_MOST_CODE_MARKS = 50_000  # of a conversation; in texts beyond them code is not told from prose


@dataclass(frozen=True, slots=True)
class CleanedHistory:
    messages: list[dict[str, Any]]  # the same objects where nothing changed, copies where something did
    changed: bool
    highest_number: int  # our numbers count on from here
    known_sources: dict[int, KnownSource]  # by number
    claimed: frozenset[int]  # numbers of lists that people or clients wrote: from then on they are theirs


def strip_decoration(
    messages: list[dict[str, Any]], footer: bool = True, sources: Mapping[int, KnownSource] | None = None
) -> CleanedHistory:
    """`footer` says whether a "Sources" list at the end of an answer may be ours; `sources` are numbers that are known
    from elsewhere."""
    marked = []
    for place, message in enumerate(messages):
        if _may_hold_marks(message):
            marked.append(place)
    if not marked:
        return CleanedHistory(messages, False, 0, {}, frozenset())
    reader = _Reader(footer, sources or {})
    clean = list(messages)
    changed = False
    for place in marked:
        clean[place] = reader.read(messages[place])
        changed = changed or clean[place] is not messages[place]
    return CleanedHistory(clean, changed, reader.highest, reader.known, frozenset(reader.claimed))


def _may_hold_marks(message: Mapping[str, Any]) -> bool:
    """May anything stand in it that is ours, or a number in brackets? Most messages are seen at once to have none."""
    content = message.get("content")
    if type(content) is str:
        if AUTO_LEAD in content or (("[" in content or "【" in content) and first_in(_NUMBERED, content)):
            return True
    elif content is not None:
        return True
    return "annotations" in message or "search_results" in message


def prose(text: str) -> Iterator[tuple[int, int]]:
    """The stretches `[start, end)` of a text that are not code."""
    text = "\n" + text
    code = Code()
    i = 1
    while i < len(text):
        begins = first_in(_CODE_BEGINS, text, i)
        stop = begins.start() if begins else len(text)
        if stop > i:
            yield i - 1, stop - 1
        i = code.scan(text, stop) if begins else stop


class _Reader:
    """Reads messages in their order. What a message reads afterwards depends on those before it alone, so that the
    beginning of a conversation is told to the model in the same bytes from turn to turn.

    The number inside a link of ours counted the sources of that one answer. The model's numbers are its own: a page has
    the one that a turn put back gave it, else the one that an earlier message gave it, else the next that is free."""

    def __init__(self, footer: bool, sources: Mapping[int, KnownSource]) -> None:
        self._footer = footer
        self._kept = frozenset(sources)
        self._by_page: dict[str, int] = {}
        for n, source in sources.items():
            self._by_page.setdefault(source.url, n)
        self._contested: set[int] = set()  # two answers gave the number to two pages: it stands for neither
        self._marks_left = _MOST_CODE_MARKS
        self._links_left = _MOST_LINKS
        self.claimed: set[int] = set()
        self.highest = 0  # of all numbers up to here
        self.known: dict[int, KnownSource] = {}

    def read(self, message: dict[str, Any]) -> dict[str, Any]:
        if message.get("role") != "assistant":
            self._note_numbers(texts_in(message.get("content")))
            if message.get("role") != "tool":
                self._note_claims(texts_in(message.get("content")))
            return message
        content = message.get("content")
        titles = self._read_annotations(message.get("annotations"), "".join(texts_in(content)))
        plain = self._without_footers(content)
        self._note_numbers(_without_ours(text) for text in texts_in(plain))
        if isinstance(plain, str):
            plain = self._with_numbers(plain, message.get("annotations"))
        plain = _with_texts(plain, self._without_auto_markers)
        plain = _with_texts(plain, lambda text: self._without_links(text, titles))
        if plain is content and not any(name in message for name in _OUR_FIELDS):
            return message
        clean = {name: value for name, value in message.items() if name not in _OUR_FIELDS}
        if plain is not content:
            clean["content"] = plain
        return clean

    def _note_claims(self, texts: Iterable[str]) -> None:
        for text in texts:
            if "[" in text:
                self.claimed.update(map(int, _LISTED.findall(without_reading(text))))

    def _note_numbers(self, texts: Iterable[str]) -> None:
        """The numbers that stand in brackets anywhere in the prose of a message are taken."""
        for text in texts:
            if "[" in text or "【" in text:
                for start, end in self._prose(text):
                    self.highest = _highest_number(text, start, end, self.highest)

    def _read_annotations(self, annotations: Any, text: str) -> dict[str, str]:
        """Learns the numbers that annotations stand on, where these are the model's own; hands on the title of each
        url. A page that cannot be linked to stands under a number that only its answer knows."""
        titles: dict[str, str] = {}
        for citation in _url_citations(annotations):
            url, title = citation.get("url"), citation.get("title")
            if not isinstance(url, str):
                continue
            titles[url] = title if isinstance(title, str) else ""
            place = _place(citation, len("[999]"))
            marker = _BARE_MARKER.fullmatch(text[place])
            if marker and url.startswith(_LINKABLE) and not _is_auto(text, place):
                self._learn(int(marker.group(1)), url, titles[url])
        return titles

    def _with_numbers(self, text: str, annotations: Any) -> str:
        """OpenAI's own form, `([host](url))`, as `[n]`; what the model did not write is left out, in whatever form."""
        pieces: list[str] = []
        done = 0
        for citation in _url_citations(annotations):
            url, place = citation.get("url"), _place(citation, _MOST_MARKER)
            marker = text[place]
            if not isinstance(url, str) or place.start < done:
                continue
            if _is_auto(text, place):
                lead = 2 if text.endswith(SURE_LEAD, 0, place.start) else 1
                pieces.append(text[done : place.start - lead])
                done = place.stop
                continue
            if _OPENAI_MARKER.fullmatch(marker) and marker.endswith(f"]({url}))"):
                title = citation.get("title")
                n = self._number_of(url, title if isinstance(title, str) else "")
                pieces += text[done : place.start], f"[{n}]"
                done = place.stop
        return "".join(pieces) + text[done:] if pieces else text

    def _without_footers(self, content: Any) -> Any:
        return _with_texts(content, _without_footer) if self._footer else content

    def _without_auto_markers(self, text: str) -> str:
        """What the model did not write it does not read either."""
        if AUTO_LEAD not in text:
            return text
        pieces: list[str] = []
        done = 0
        for start, end in self._prose(text):
            pieces += text[done:start], _without(_AUTO_MARKER, text[start:end])
            done = end
        return "".join(pieces) + text[done:]

    def _without_links(self, text: str, titles: Mapping[str, str]) -> str:
        if "[[" not in text:
            return text

        def bare(link: re.Match[str]) -> str:
            if self._links_left == 0:
                return link[0]
            self._links_left -= 1
            return f"[{self._number_of(link[2], titles.get(link[2], ''))}]"

        pieces: list[str] = []
        done = 0
        for start, end in self._prose(text):
            pieces += text[done:start], _without(_OUR_LINK, text[start:end], bare)
            done = end
        return "".join(pieces) + text[done:]

    def _number_of(self, url: str, title: str) -> int:
        n = self._by_page.get(url)
        if n is None:
            n = self.highest + 1
            while n in self._kept:
                n += 1
        self._learn(n, url, title)
        return n

    def _prose(self, text: str) -> Iterable[tuple[int, int]]:
        """Each mark of code costs microseconds to read: nobody may have millions of them read."""
        marks = text.count("`") + text.count("~~~")
        self._marks_left -= marks
        return prose(text) if marks and self._marks_left >= 0 else ((0, len(text)),)

    def _learn(self, n: int, url: str, title: str) -> None:
        self.highest = max(self.highest, n)
        self._by_page.setdefault(url, n)
        known = self.known.get(n, KnownSource(url))
        if known.url != url:
            self._contested.add(n)
            del self.known[n]
        elif n not in self._contested and n <= _MOST_NUMBER:
            self.known[n] = KnownSource(url, known.title or title)


def links_in(texts: Iterable[str]) -> dict[str, int]:
    """The pages that our links in these texts lead to, with the number that people see there."""
    links = (link for text in texts for link in _OUR_LINK.finditer(text))
    return {link[2]: int(link[1]) for link in itertools.islice(links, _MOST_LINKS)}


def _place(citation: Mapping[str, Any], most: int) -> slice:
    """Where it says that it stands; an empty place if that is none, or too long for a marker: to look at it is work."""
    start, end = citation.get("start_index"), citation.get("end_index")
    if isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= start + most:
        return slice(start, end)
    return slice(0, 0)


def _is_auto(text: str, place: slice) -> bool:
    return place.start > 0 and text[place.start - 1 : place.start] == AUTO_LEAD


def _without_ours(text: str) -> str:
    """Less our links, and less all markers that the model did not write: their numbers are no numbers of its own."""
    if AUTO_LEAD in text:
        text = _without(_AUTO_MARKER, text)
    return _without(_OUR_LINK, text) if "[[" in text else text


def _without(pattern: re.Pattern[str], text: str, by: str | Callable[[re.Match[str]], str] = "") -> str:
    return substituted(pattern, by, text, reach=_LONGEST_LINK)


def _with_texts(content: Any, change: Callable[[str], str]) -> Any:
    """The content of a message with its texts changed; the same object where nothing is."""
    if isinstance(content, str):
        changed = change(content)
        return content if changed == content else changed
    if not isinstance(content, list):
        return content
    parts = [{**part, "text": change(part["text"])} if is_text(part) else part for part in content]
    return content if parts == content else parts


def _without_footer(text: str) -> str:
    if FOOTER_HEAD not in text:
        return text
    body, _, list_ = text.rpartition(FOOTER_HEAD)
    lines = [_FOOTER_LINE.fullmatch(line) for line in list_.split("\n")]
    numbers = [int(line.group(1)) for line in lines if line]
    ours = len(numbers) == len(lines) and numbers == sorted(set(numbers))
    return body if ours else text


def _highest_number(text: str, start: int, end: int, known: int) -> int:
    """The highest number in brackets between these places, if it is above `known`. Looks for higher ones alone: then a
    million brackets with the same number cost one look."""
    while start < end and known < _MOST_TAKEN:
        stop = min(start + STRETCH + _LONGEST_NUMBERS, end)
        if marker := _numbered_above(known).search(text, start, stop):
            known = max(n for n in map(int, marker.group(1).split(",")) if n <= _MOST_TAKEN)
            start = marker.end()
        else:
            start += STRETCH
    return known


@cache
def _numbered_above(least: int) -> re.Pattern[str]:
    """Markers that hold a number above this one."""
    tens, ones = divmod(least, 10)
    same_tens = [f"{tens or ''}[{ones + 1}-9]"] if ones < 9 else []
    more_tens = [f"[{tens + 1}-9][0-9]"] if tens < 9 else []
    higher = "|".join(same_tens + more_tens)
    return re.compile(rf"[\[【](?=(?:{NUMBER}, ?)*(?:{higher})[,\]】†])({NUMBERS})[\]】†]")


def _url_citations(annotations: Any) -> Iterator[Mapping[str, Any]]:
    """Annotations as Chat Completions nests them, or flat as Responses does."""
    for annotation in annotations if isinstance(annotations, list) else []:
        citation = annotation.get("url_citation", annotation) if isinstance(annotation, dict) else None
        if isinstance(citation, dict):
            yield citation
