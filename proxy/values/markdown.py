"""Where Markdown code begins and ends: the part of Markdown that both the citer and the reader of echoes must know.
Handed text in pieces; says which of it is prose.
"""

from __future__ import annotations

import re
from typing import Literal

LOOK_BACK = 40  # how much of the text before a place can matter to it

_FENCE_RUNS = {"`": re.compile("`*"), "~": re.compile("~*")}
_FENCE_OPENS = re.compile(r"\n(?:[ \t>]|[-*+](?=[ \t])|[0-9]{1,9}[.)](?=[ \t]))*\Z")
_FENCE_CLOSES = re.compile(r"\n[ \t>]*\Z")
_BLANK_LINE = re.compile(r"\n[ \t\r>]*\Z")
_CODE_STOP = {
    "span": re.compile(r"[`~\n]"),
    "info": re.compile(r"[`\n]"),
    "fence": re.compile(r"[`~]"),
    "closing": re.compile(r"[^ \t\r]"),
}


class Code:
    """Where Markdown code begins and ends, in text that may come in pieces.

    A run of backticks or tildes counts when it is over, so the last run of a piece may stay undecided. A piece begins
    with the last 40 characters of the one before it, the first with a line feed.
    """

    def __init__(self) -> None:
        self._place: Literal["prose", "span", "info", "fence", "closing"] = "prose"
        self._mark, self._size = "", 0  # the character of the open span or fence, and its length
        self._run_mark, self._run, self._run_begins_line = "", 0, False  # the same of the run that is being read

    @property
    def open(self) -> bool:
        return self._run > 0 or self._place != "prose"

    def scan(self, text: str, i: int) -> int:
        """Reads on from `i`, a backtick or tilde in prose or anywhere in code. Says where prose goes on, or the end."""
        if not self.open:
            if is_escaped(text[max(0, i - LOOK_BACK) : i]):
                return i + 1
            i = self._begin_run(text, i)
        while i < len(text):
            if self._run:
                run = _FENCE_RUNS[self._run_mark].match(text, i)
                after = run.end() if run else i
                self._run += after - i
                i = after
                if i < len(text):
                    self._end_run()
            elif self._place == "prose":
                return i
            else:
                stop = _CODE_STOP[self._place].search(text, i)
                i = self._stop(text, stop.start()) if stop else len(text)
        return i

    def _stop(self, text: str, i: int) -> int:
        if self._place == "closing":
            self._place = "prose" if text[i] == "\n" else "fence"
            return i
        if text[i] != "\n":
            return self._begin_run(text, i)
        if self._place == "info":
            self._place = "fence"
        elif _BLANK_LINE.search(text[max(0, i - LOOK_BACK) : i]):
            self._place = "prose"
        return i + 1

    def _begin_run(self, text: str, i: int) -> int:
        line = _FENCE_CLOSES if self._place == "fence" else _FENCE_OPENS
        self._run_begins_line = line.search(text[max(0, i - LOOK_BACK) : i]) is not None
        self._run_mark = text[i]
        self._run = 1
        return i + 1

    def _end_run(self) -> None:
        mark, size = self._run_mark, self._run
        self._run = 0
        if self._place == "fence":
            self._end_run_in_fence(mark, size)
        elif self._place == "info":
            self._end_run_behind_fence(mark, size)
        elif self._place == "span" and mark == "`" and size == self._size:
            self._place = "prose"
        elif size >= 3 and self._run_begins_line:
            self._place, self._mark, self._size = "info", mark, size
        elif self._place == "prose" and mark == "`":
            self._place, self._mark, self._size = "span", mark, size

    def _end_run_in_fence(self, mark: str, size: int) -> None:
        if mark == self._mark and size >= self._size and self._run_begins_line:
            self._place = "closing"

    def _end_run_behind_fence(self, mark: str, size: int) -> None:
        """The first line of a backtick fence holds no other backtick: if there is one, this was a span all along."""
        if mark == self._mark:
            self._place = "prose" if size == self._size else "span"


def is_escaped(before: str) -> bool:
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1
