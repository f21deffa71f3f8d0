"""Text that is still coming, read in small steps. Handed the pieces of a message as they arrive; hands its readers the
words, literals and JSON they ask for, or raises `NotACall` at the first character that disproves them. Every step is
a generator that yields when it needs more text, so nothing is read twice while a message trickles in.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Generator, Mapping
from typing import Any, Literal, TypeAlias, TypeVar

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


class Names:
    """Words that name a tool, and the tool that each names. There may be thousands, and any `<` of an answer asks for
    one: in their order, those that a word begins stand right behind it."""

    def __init__(self, tools: Mapping[str, str]) -> None:
        self.tools = tools
        self._sorted = sorted(tools)

    def may_become_one(self, word: str) -> bool:
        at = bisect_left(self._sorted, word)
        return at < len(self._sorted) and self._sorted[at].startswith(word)


class Tape:
    """Text that is still coming. Places count from where it was begun, whatever has been forgotten since.

    Held is what stands from `start` on; a step that needs text beyond `bound` is disproved.
    """

    def __init__(self) -> None:
        self.begin("\n")
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

    def begin(self, before: str) -> None:
        """Reads from here on. `before` is the end of what came before, which nobody needs to read."""
        self.text = before
        self.base = -len(before)  # the place of text[0]
        self.at = self.start = 0

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

    def word(self, names: Names) -> Steps[str]:
        """One of the names. Disproved by the first character that none of them has."""
        while True:
            word = self._run(_WORD)
            if not names.may_become_one(word):
                raise NotACall
            if self.at + len(word) < self.end or not (yield from self._more()):
                break
        if word not in names.tools:
            raise NotACall
        self.at += len(word)
        return names.tools[word]

    def json(self) -> Steps[Any]:
        """A JSON object or list. Line feeds in strings are let through, as models write them."""
        begin = self.at
        place = _JsonPlace()
        while not place.over:
            yield from self.blanks(MOST_HELD)
            kind = place.take((yield from self.peek()))
            if kind == "mark":
                self.at += 1
            elif kind == "string":
                yield from self._string()
            else:
                yield from self._scalar()
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


# What JSON wants next: a value or a key, here also the end of a list or an object that is still empty, a colon, or what
# follows a value: a comma, or the end of what the value stands in.
_Wanted: TypeAlias = Literal["value", "value]", "key", "key}", ":", ","]
_AFTER_STRING: dict[str, _Wanted] = {"value": ",", "value]": ",", "key": ":", "key}": ":"}
_OPENERS: dict[str, tuple[str, _Wanted]] = {"{": ("}", "key}"), "[": ("]", "value]")}
_AFTER_COMMA: dict[str, _Wanted] = {"}": "key", "]": "value"}
_MAY_CLOSE = frozenset({("}", "key}"), ("}", ","), ("]", "value]"), ("]", ",")})


class _JsonPlace:
    """How far a JSON value has been read: what may come next, and what is still open."""

    def __init__(self) -> None:
        self.over = False
        self._wants: _Wanted = "value"
        self._closers: list[str] = []

    def take(self, char: str) -> Literal["mark", "string", "scalar"]:
        """What stands at this character: a mark is the character itself. Nothing else may stand here: `NotACall`."""
        wants, closers = self._wants, self._closers
        if char == '"' and wants in _AFTER_STRING:
            self._wants = _AFTER_STRING[wants]
            self.over = not closers
            return "string"
        if wants in ("value", "value]") and char in _OPENERS and len(closers) < _MOST_DEPTH:
            closer, self._wants = _OPENERS[char]
            closers.append(closer)
            return "mark"
        if not closers:
            raise NotACall
        return self._take_inside(char, wants, closers)

    def _take_inside(self, char: str, wants: _Wanted, closers: list[str]) -> Literal["mark", "scalar"]:
        if char == closers[-1] and (char, wants) in _MAY_CLOSE:
            closers.pop()
            self.over = not closers
            self._wants = ","
            return "mark"
        if char == wants:
            self._wants = "value" if char == ":" else _AFTER_COMMA[closers[-1]]
            return "mark"
        if wants not in ("value", "value]"):
            raise NotACall
        self._wants = ","
        return "scalar"


def parsed(text: str) -> Any:
    try:
        return json.loads(text, strict=False, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise NotACall from None


def _refuse(constant: str) -> None:
    raise ValueError(constant)
