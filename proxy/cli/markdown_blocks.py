"""Cuts Markdown that comes in pieces into blocks. Handed pieces of text; hands on each block as soon as nothing that
may follow can change it, and knows the open rest. Every character stands in exactly one block, and the work for a
character does not grow with the text. The items of a list are blocks of their own: a long list needs no redrawing.

It ends a block only where it is sure: what stays together too long is still rendered right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain

from providers.records import dataclass

_FENCE = re.compile(r" {0,3}(?:(`{3,})[^`]*|(~{3,}).*)\Z", re.DOTALL)
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|\Z)")
_RULE = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}\Z")
_QUOTE = re.compile(r" {0,3}>")
_ITEM = re.compile(r"( {0,3})([-*+]|[0-9]{1,9}[.)])(?:([ \t]+)(?=[^ \t])|[ \t]*\Z)")
_INTERRUPTING_ITEM = re.compile(r" {0,3}(?:[-*+]|1[.)])[ \t]+[^ \t]")
_MARKS = re.compile(r"(?:(?:[-*+]|[0-9]{1,9}[.)]|>)(?:[ \t]|\Z) {0,3})+(?! )")  # of what stands in an item
_DEEPEST_LEAD = 4  # blanks behind an item's mark; more of them are code that begins there


@dataclass(frozen=True, slots=True)
class Block:
    text: str
    joined: bool = False  # to the block before it: both are items of one list


class MarkdownBlocks:
    """`feed(piece)` hands on the blocks that it finishes; `rest` is what is open; `flush()` ends it."""

    def __init__(self) -> None:
        self._lines: list[str] = []  # of the open block, with their ends
        self._line: list[str] = []  # pieces of the line that is not over
        self._takes: Callable[[str], bool] | None = None  # does the next line belong to the open block?
        self._over = False  # does the line that was just taken end the block?
        self._mark = ""  # of the open item, and of the last one while its list goes on
        self._joined = False
        self._size = 0  # of the open block

    @property
    def rest(self) -> Block:
        return Block("".join([*self._lines, *self._line]), self._joined)

    @property
    def size(self) -> int:
        """Characters of the rest."""
        return self._size

    def tail(self, most: int) -> str:
        """The last characters of the rest, without looking at all of it."""
        found: list[str] = []
        for piece in chain(reversed(self._line), reversed(self._lines)):
            found.append(piece[-most:])
            most -= len(piece)
            if most <= 0:
                break
        return "".join(reversed(found))

    def feed(self, piece: str) -> Iterator[Block]:
        start = 0
        while (end := piece.find("\n", start)) >= 0:
            self._line.append(piece[start : end + 1])
            self._size += end + 1 - start
            start = end + 1
            line = "".join(self._line)
            self._line.clear()
            yield from self._take(line)
        if start < len(piece):
            self._line.append(piece[start:])
            self._size += len(piece) - start

    def flush(self) -> Iterator[Block]:
        if self._line:
            line = "".join(self._line)
            self._line.clear()
            yield from self._take(line)
        yield from self._finish()
        self._mark = ""

    # One line

    def _take(self, line: str) -> Iterator[Block]:
        bare = line.rstrip("\r\n")
        if self._takes is not None and not self._takes(bare):
            self._size -= len(line)
            yield from self._finish()
            self._size += len(line)
        if self._takes is not None or not bare.strip():
            self._lines.append(line)
            if self._over:
                yield from self._finish()
            return
        self._begin(bare)
        self._lines.append(line)
        if self._over:
            yield from self._finish()

    def _finish(self) -> Iterator[Block]:
        if self._lines:
            yield Block("".join(self._lines), self._joined)
        self._lines.clear()
        self._takes = None
        self._over = False
        self._joined = False
        self._size = 0

    # What begins with a line

    def _begin(self, line: str) -> None:
        mark, self._mark = self._mark, ""
        if (fence := _FENCE.match(line)) is not None:
            self._takes = self._inside_fence(fence[1] or fence[2])
        elif _HEADING.match(line) or _RULE.match(line):
            self._over = True
        elif item := _ITEM.match(line):
            self._mark = item[2][-1]
            self._joined = self._mark == mark
            self._takes = self._inside_item(item, line)
        elif _QUOTE.match(line):
            self._takes = self._inside_quote
        elif line.startswith(("    ", "\t")):
            self._takes = self._inside_code()
        else:
            self._takes = self._inside_text

    def _inside_fence(self, fence: str) -> Callable[[str], bool]:
        closes = _closing(fence)

        def takes(line: str) -> bool:
            self._over = bool(closes.match(line))
            return True

        return takes

    def _inside_text(self, line: str) -> bool:
        if not line.strip():
            self._over = True
            return True
        return not _interrupts(line)

    def _inside_quote(self, line: str) -> bool:
        if not line.strip():
            self._over = True
            return True
        return bool(_QUOTE.match(line)) or not _leaves(line)

    def _inside_code(self) -> Callable[[str], bool]:
        return lambda line: not line.strip() or line.startswith(("    ", "\t"))

    def _inside_item(self, item: re.Match[str], line: str) -> Callable[[str], bool]:
        """What is indented as far as the item's text belongs to it, and lines that go on with a sentence."""
        lead = len(item[3] or " ")
        mark = len(item[1]) + len(item[2])
        depth = mark + (lead if lead <= _DEEPEST_LEAD else 1)
        within = _InItem(depth)
        within.take(" " * mark + line[mark:])

        def takes(line: str) -> bool:
            if not line.strip() or _indent(line) >= depth:
                within.take(line)
                return True
            if within.sentence and not _leaves(line) and not _ITEM.match(line):
                return True
            if not _ITEM.match(line) or _RULE.match(line):
                self._mark = ""
            return False

        return takes


class _InItem:
    """What an item of a list holds so far: may a line that is not indented go on with its last sentence?"""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._closing: re.Pattern[str] | None = None  # what ends the code that is open
        self.sentence = False

    def take(self, line: str) -> None:
        """A line that is indented as far as the item's text, or is blank."""
        bare = line.strip()
        if self._closing is not None:
            self._closing = None if self._closing.match(bare) else self._closing
            return
        if not bare:
            self.sentence = False
            return
        if not self.sentence and _indent(line) >= self._depth + 4:
            return  # code
        inner = _MARKS.sub("", bare)
        if fence := _FENCE.match(inner):
            self._closing = _closing(fence[1] or fence[2])
        self.sentence = not (fence or inner == "" or inner[0] in " \t" or _HEADING.match(inner) or _RULE.match(bare))


def _closing(fence: str) -> re.Pattern[str]:
    return re.compile(rf" {{0,3}}{fence[0]}{{{len(fence)},}}[ \t]*\Z")


def _interrupts(line: str) -> bool:
    """Does it begin a block in the middle of a paragraph? What underlines a heading belongs to what stands above."""
    found = _FENCE.match(line) or _HEADING.match(line) or _QUOTE.match(line) or _INTERRUPTING_ITEM.match(line)
    return bool(found) or bool((rule := _RULE.match(line)) and rule[1] != "-")


def _leaves(line: str) -> bool:
    """The same for a paragraph in a quotation or a list: nothing outside underlines what is inside."""
    return _interrupts(line) or bool(_RULE.match(line))


def _indent(line: str) -> int:
    columns = 0
    for character in line:
        if character == " ":
            columns += 1
        elif character == "\t":
            columns += 4 - columns % 4
        else:
            break
    return columns
