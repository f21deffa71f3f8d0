"""Markdown as lines for a terminal. Handed the text of a block and a width; hands on lines with their colours.

What Markdown would swallow (HTML, definitions of links, addresses of images) is shown as text, and a link shows where
it leads: nothing that the model wrote is hidden. Rich is imported with this file, so only where something is drawn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import ClassVar, TextIO

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.segment import Segment
from rich.theme import Theme

from .terminal_text import harmless

_SWALLOWED = ("html_block", "html_inline", "reference", "image")
_CODE = "ansi_dark"  # the terminal's own colours, which are right on light and dark ones
_LOOKS = {
    "markdown.h1": "bold underline",
    "markdown.h2": "bold",
    "markdown.h3": "bold",
    "markdown.h4": "italic",
    "markdown.h5": "italic",
    "markdown.h6": "italic",
    "markdown.code": "cyan",
    "markdown.block_quote": "italic",
    "markdown.item.bullet": "bold",
    "markdown.item.number": "bold",
    "markdown.table.border": "dim",
    "markdown.table.header": "bold",
    "markdown.link": "underline",
    "markdown.link_url": "dim",
    "markdown.hr": "dim",
}
_LARGEST = 16_000  # characters of a block that is painted: of a larger one it would take seconds
_NARROWEST = 10  # columns: on less there is nothing to lay out
_EMPTY = re.compile(r"(?:\x1b\[[0-9;]*m|\s)*\Z")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class _LeftHeading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Shown(Markdown):
    """A block, with nothing in it that a terminal obeys: Markdown can write characters by their numbers."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _LeftHeading}

    def __init__(self) -> None:
        super().__init__("", code_theme=_CODE, hyperlinks=False)  # which makes a parser of its own: once is enough

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(_Rendered(super().__rich_console__(console, options)), options):
            yield Segment(harmless(segment.text), segment.style)


class _Rendered:
    def __init__(self, parts: RenderResult) -> None:
        self._parts = parts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return self._parts


class MarkdownPainter:
    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, force_terminal=True, highlight=False, theme=Theme(_LOOKS))
        self._parser = MarkdownIt().enable(["strikethrough", "table"]).disable(list(_SWALLOWED))
        self._shown = _Shown()

    def lines(self, text: str, width: int) -> list[str]:
        """Without empty ones before and behind. What cannot be laid out is shown as it was written: a block that is too
        large, or one that has too little room, of which the library would leave out words."""
        text = harmless(text)
        if len(text) <= _LARGEST and width >= _NARROWEST:
            self._shown.parsed = self._parser.parse(text)
            with self._console.capture() as drawn:
                self._console.print(self._shown, width=width, end="")
            lines = [line.rstrip() for line in drawn.get().split("\n")]
            if _letters(_COLOUR.sub("", line) for line in lines) >= _letters(_contents(self._shown.parsed)):
                return _within(lines)
        return _within(text.split("\n"))


def _within(lines: Sequence[str]) -> list[str]:
    """Less empty lines at both ends."""
    filled = [at for at, line in enumerate(lines) if not _EMPTY.match(line)]
    return list(lines[filled[0] : filled[-1] + 1]) if filled else []


def _contents(tokens: Iterable[Token]) -> Iterable[str]:
    for token in tokens:
        yield from _contents(token.children or ())
        if not token.children:
            yield token.content


def _letters(texts: Iterable[str]) -> int:
    return sum(character.isalnum() for text in texts for character in text)
