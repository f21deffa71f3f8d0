"""Which lines of an answer are code for everybody who shows it. Handed each line's beginning; says whether the line is
surely inside a fenced block.

Renderers disagree about odd fences: behind quotes and list markers, indented, in a formula, closed in strange ways. A
filter that believes in code where a renderer sees a link lets that link through. So after the first line on which two
renderers could part nothing counts as code any more: that may change code that is shown, and never lets a link pass.
"""

from __future__ import annotations

import re

from providers.records import dataclass

LONGEST = 200  # characters of a line that are looked at

_HEAD = re.compile(r"[ \t>]*(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]+[ \t>]*)*")
_HALF_A_MARKER = re.compile(r"[0-9]{1,9}[.)]?")
_ITEM = re.compile(r"( *)([-*+]|[0-9]{1,9}[.)])( {1,4})(?=[^ \t])")
_RUN = re.compile(r"`+|~+")
_ENOUGH = 3  # characters behind the head of a line: a fence shows in them
_FORMULA = ("$$", "\\[")
_ALL_COUNTS = ("```", "~~~", *_FORMULA, "\\]")  # where all of the line counts


@dataclass(frozen=True, slots=True)
class _Fence:
    mark: str
    size: int
    indent: int
    most: int  # how far its closing line may be indented


class FencedCode:
    def __init__(self) -> None:
        self.blank = False  # was the last line blank?
        self._fence: _Fence | None = None
        self._doubt = False
        self._formula = False
        self._item = 0  # where the text of the list item begins that is surely open; 0: none is

    @property
    def inside(self) -> bool:
        return self._fence is not None

    def begin(self, line: str, *, complete: bool) -> bool | None:
        """Is this line code? `line` is what is known of it, at most its first LONGEST characters; `complete` says that
        there are no more of these. None: more must be known."""
        if self._fence:
            return self._inside(self._fence, line, complete)
        head = _head(line)
        rest = line[len(head) :]
        if not complete and (len(rest) < _ENOUGH or _HALF_A_MARKER.fullmatch(rest) or rest.startswith(_ALL_COUNTS)):
            return None
        opens = bool(_fence_run(rest)) and not self._doubt and self._open(head, rest, cut=len(line) == LONGEST)
        self._note(head, rest)
        return opens

    def _note(self, head: str, rest: str) -> None:
        """What the line means for those below it."""
        after_blank, self.blank = self.blank, not rest and not head.strip(" \t")
        if self.blank:
            return
        indent = _columns(head)
        item = _ITEM.match(head + rest)
        if item and self._is_item(item, rest, after_blank):
            self._item = item.end()
        elif indent < self._item or ">" in head:
            self._item = 0
        if rest.startswith(_FORMULA):
            ends_here = len(rest) > _ENOUGH and rest.rstrip(" \t").endswith(("$$", "\\]"))
            self._formula = not self._formula and not ends_here
        elif rest.startswith("\\]"):
            self._formula = False

    def _is_item(self, item: re.Match[str], rest: str, after_blank: bool) -> bool:
        """Surely? A number other than 1 cannot break into a paragraph, and `- - -` is a line across the page."""
        spaces, marker = len(item[1]), item[2]
        near = spaces <= 3 or self._item <= spaces <= self._item + 3
        begins = marker in "-*+" or marker[:-1] == "1" or after_blank or self._item > 0
        return near and begins and not rest.startswith(marker[0])

    def _open(self, head: str, rest: str, *, cut: bool) -> bool:
        run = _fence_run(rest)
        if run[0] == "`" and "`" in rest[len(run) :]:
            return False  # code within the line
        indent = _columns(head)
        in_item = self._item and self._item <= indent <= self._item + 3
        if head.strip(" \t") or self._formula or cut or (indent > 3 and not in_item):
            self._doubt = True
            return False
        self._fence = _Fence(run[0], len(run), indent, 3 if indent <= 3 else self._item + 3)
        return True

    def _inside(self, fence: _Fence, line: str, complete: bool) -> bool | None:
        rest = line.lstrip(" \t")
        if not rest:
            return True if complete else None
        indent = _columns(line[: len(line) - len(rest)])
        if indent < fence.indent:  # what it stands in may have ended, and it with that
            return self._give_up()
        run = _RUN.match(rest)
        size = len(run[0]) if run and rest[0] == fence.mark else 0
        if size < fence.size and (complete or not size or size < len(rest)):
            return True
        if not complete:
            return None
        tail = rest[size:].strip(" \t")
        if tail.strip("`~"):
            return True
        if tail or indent > fence.most or len(line) == LONGEST:
            return self._give_up()
        self._fence = None
        self.blank = False
        return True

    def _give_up(self) -> bool:
        self.distrust()
        return False

    def distrust(self) -> None:
        """From here on nothing is code."""
        self._doubt, self._fence = True, None


def _head(line: str) -> str:
    found = _HEAD.match(line)
    return found[0] if found else ""


def _fence_run(rest: str) -> str:
    run = _RUN.match(rest)
    return run[0] if run and len(run[0]) >= _ENOUGH else ""


def _columns(head: str) -> int:
    """How far a line is indented; a tab leads to the next fourth column."""
    blanks = head[: len(head) - len(head.lstrip(" \t"))]
    return len(blanks.expandtabs(4))
