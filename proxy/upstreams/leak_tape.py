"""Text that is still coming, read in small steps. Handed the pieces of a message as they arrive; hands its readers the
words, literals and JSON they ask for, or raises `NotACall` at the first character that disproves them. Every step is
a generator that yields when it needs more text, so nothing is read twice while a message trickles in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping
from typing import Any, TypeAlias, TypeVar

from ..values.markdown import LOOK_BACK

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]

MOST_HELD = 65_536
_MOST_BLANKS = 64  # between two things that belong together
_MOST_DEPTH = 100
_LONGEST = 48  # of all literals that are asked for

_SPACE = re.compile(r"[ \t\r\n]*")
_WORD = re.compile(r"[\w.-]{0,100}")
_STRING_STOP = re.compile(r'["\\]')
_SCALAR_RUN = re.compile(r"[-+.0-9A-Za-z]*")
_SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")


class NotACall(Exception):
    """What was read is ordinary text after all."""


class Tape:
    """Text that is still coming. Places count from the beginning of the message, whatever has been forgotten of it.

    Held is what stands from `start` on; a step that needs text beyond `bound` is disproved.
    """

    def __init__(self) -> None:
        self.text = "\n"
        self.base = -1  # the place of text[0]
        self.at = self.start = 0
        self.bound = 0
        self.ended = False
        self._pieces: list[str] = []  # not yet part of `text`: none of them holds a character that is waited for
        self._waiting = 0  # the size of these
        self._wanted: re.Pattern[str] | None = None

    @property
    def end(self) -> int:
        return min(self.base + len(self.text), self.bound)

    @property
    def held(self) -> str:
        return self.text[self.start - self.base :] + "".join(self._pieces)

    def add(self, piece: str) -> bool:
        """Says whether there is now a reason to read on."""
        self._pieces.append(piece)
        self._waiting += len(piece)
        if self._wanted and not self._wanted.search(piece) and len(self.text) + self._waiting < self.bound - self.base:
            return False
        self._join()
        return True

    def skip(self, piece: str) -> None:
        """Takes a piece that nobody needs to read. Nothing may be held."""
        end = self.base + len(self.text) + len(piece)
        self.text = (self.text + piece)[-LOOK_BACK:]
        self.base = end - len(self.text)
        self.at = self.start = end

    def finish(self) -> None:
        self.ended = True
        self._join()

    def _join(self) -> None:
        forgotten = max(0, min(self.start, self.at) - LOOK_BACK - self.base)
        self.text = self.text[forgotten:] + "".join(self._pieces)
        self.base += forgotten
        self._pieces, self._waiting = [], 0

    def hold(self) -> None:
        """From here on text is held."""
        self.start, self.bound = self.at, self.at + MOST_HELD

    def cut(self, begin: int, end: int) -> str:
        return self.text[begin - self.base : end - self.base]

    def _find(self, pattern: re.Pattern[str]) -> int:
        """Goes to where the pattern is found, or to the end; says which by the place."""
        found = pattern.search(self.text, self.at - self.base, self.end - self.base)
        self.at = self.base + found.start() if found else self.end
        return self.at

    def _run(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at - self.base, self.end - self.base)
        return found.group() if found else ""

    def _more(self, wanted: re.Pattern[str] | None = None) -> Steps[bool]:
        """Waits for more than there is. False: the message is over."""
        if self.end == self.bound:
            raise NotACall
        seen = self.end
        self._wanted = wanted
        while self.end == seen and not self.ended:
            yield
        self._wanted = None
        return self.end > seen

    def peek(self) -> Steps[str]:
        """The next character, or nothing at the end of the message."""
        if self.at < self.end or (yield from self._more()):
            return self.text[self.at - self.base]
        return ""

    def literal(self, *options: str) -> Steps[str]:
        """Reads and says which option stands here, or nothing. No option may begin another one."""
        while True:
            rest = self.cut(self.at, min(self.at + _LONGEST, self.end))
            if rest.startswith(options):
                found = next(option for option in options if rest.startswith(option))
                self.at += len(found)
                return found
            if not any(option.startswith(rest) for option in options) or not (yield from self._more()):
                return ""

    def expect(self, *options: str) -> Steps[str]:
        found = yield from self.literal(*options)
        if not found:
            raise NotACall
        return found

    def blanks(self, most: int = _MOST_BLANKS) -> Steps[None]:
        stop = self.at + most
        while True:
            self.at += len(self._run(_SPACE))
            if self.at > stop:
                self.at = stop
                raise NotACall
            if self.at < self.end or not (yield from self._more()):
                return

    def until(self, first: re.Pattern[str], *options: str) -> Steps[tuple[str, str]]:
        """The text up to the first of the options, and which it is. `first` finds what all of them begin with."""
        begin = self.at
        while True:
            if self._find(first) == self.end:
                if not (yield from self._more(first)):
                    raise NotACall
                continue
            stop = self.at
            found = yield from self.literal(*options)
            if found:
                return self.cut(begin, stop), found
            self.at += 1

    def word(self, names: Mapping[str, str]) -> Steps[str]:
        """One of the names. Disproved by the first character that none of them has."""
        while True:
            word = self._run(_WORD)
            if not any(name.startswith(word) for name in names):
                raise NotACall
            if self.at + len(word) < self.end or not (yield from self._more()):
                break
        if word not in names:
            raise NotACall
        self.at += len(word)
        return names[word]

    def json(self) -> Steps[Any]:
        """A JSON object or list. Line feeds in strings are let through, as models write them."""
        begin = self.at
        closers: list[str] = []
        wants = "value"
        while True:
            yield from self.blanks(MOST_HELD)
            char = yield from self.peek()
            if char == '"' and wants in ("value", "value]", "key", "key}"):
                yield from self._string()
                wants = ":" if wants.startswith("key") else ","
            elif char and char in "{[" and wants.startswith("value") and len(closers) < _MOST_DEPTH:
                self.at += 1
                closers.append("}" if char == "{" else "]")
                wants = "key}" if char == "{" else "value]"
            elif closers and char == closers[-1] and (wants == "," or wants.endswith(char)):
                self.at += 1
                closers.pop()
                wants = ","
            elif char and char == wants and closers:
                self.at += 1
                wants = "value" if char == ":" or closers[-1] == "]" else "key"
            elif closers and wants.startswith("value"):
                yield from self._scalar()
                wants = ","
            else:
                raise NotACall
            if not closers:
                return parsed(self.cut(begin, self.at))

    def _string(self) -> Steps[None]:
        self.at += 1
        while True:
            if self._find(_STRING_STOP) == self.end:
                if not (yield from self._more(_STRING_STOP)):
                    raise NotACall
                continue
            char = self.text[self.at - self.base]
            self.at += 1
            if char == '"':
                return
            if not (yield from self.peek()):
                raise NotACall
            self.at += 1

    def _scalar(self) -> Steps[None]:
        while True:
            run = self._run(_SCALAR_RUN)
            if self.at + len(run) < self.end or not (yield from self._more()):
                break
        if not _SCALAR.fullmatch(run):
            raise NotACall
        self.at += len(run)


def parsed(text: str) -> Any:
    try:
        return json.loads(text, strict=False, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise NotACall from None


def _refuse(constant: str) -> None:
    raise ValueError(constant)
