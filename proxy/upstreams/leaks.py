"""Calls that a model's server leaked as text, recovered while the text streams by. Handed text in pieces and the
offered tools; hands on the text without the calls, and the calls. Whatever the pieces, the outcome is the same. Text
is held back only while it could still be a call; inside code and after a quotation mark nothing is one.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from ..values.markdown import LOOK_BACK, Code, is_escaped
from .leak_shapes import OPENERS, LeakedCall, Shapes
from .leak_tape import NotACall, Steps, Tape

__all__ = ["LeakReader", "LeakedCall", "recovered"]

Kind = Literal["whole", "call", "quoted", "tail"]

# A false alarm up to this size is read again, for a call inside it; a longer one is passed on whole. So hostile text
# costs a constant per character at most.
_MOST_REREAD = 1024
_MOST_TRIED = 64
_LONGEST_OPENER = max(map(len, OPENERS))
_QUOTES = "\"'“”„‘’«»‹›「『《"
_WHOLE_BEGINS = "`~{[<ac"  # what a message may begin with that is a call only as a whole, see `Shapes.whole`
_NOT_BLANK = re.compile(r"\S")
_OPENER = re.compile(r"[<\[`~]")
_LONGEST_NAME = 64  # what an API allows
_MOST_REMEMBERED = 100_000  # characters of all names of one request
_NAME = re.compile(rf"[\w.-]{{1,{_LONGEST_NAME}}}")
# In an indented listing, a block quote, a cell of a table, or HTML's own code.
_LISTED = re.compile(r"\n(?: {4}|\t|[ \t]*[>|])[^\n]*\Z|<(?:pre|code)>[^\n]*\Z")
_NAME_BEFORE = re.compile(r"([\w.-]+)[\s>(=:\"'\]]*\Z")


class LeakReader:
    """`feed(text)` per piece, then `flush()`. `tools`: offered name → JSON schema of its parameters."""

    _tape: Tape  # both are made for the first text that does not just pass: in most answers all of it does
    _code: Code

    def __init__(self, tools: Mapping[str, Mapping[str, Any]]) -> None:
        self._tools = tools
        self._passed = "\n"  # the end of what has just passed; a message begins as a line does
        self._shapes: Shapes | None = None  # made for the first that might be a call
        self._special = _special_of(tuple(tools))
        self._begun = False  # has anything but white space come?
        self._has_read = False  # was there any text that did not just pass?
        self._attempt: Steps[list[LeakedCall]] | None = None
        self._kind: Kind = "call"
        self._blind = 0  # openers before this place are known to open nothing
        self._plain = True  # in prose and nothing is held: text without a special character just passes
        self._passes_all = not tools
        self._out: list[str | LeakedCall] = []

    def passes(self, text: str) -> bool:
        """Is this piece plain text, with nothing before it held? Then it is read by now, and goes on as it is."""
        if self._passes_all:
            return True
        if not self._plain or not (self._begun or self._begins_plainly(text)) or not self._special.lacks(text):
            return False
        self._passed = (self._passed + text)[-LOOK_BACK:]
        return True

    def _begins_plainly(self, text: str) -> bool:
        """At the beginning of a message: can it not be one that is a call as a whole?"""
        found = _NOT_BLANK.search(text)
        if found is None:
            return True
        self._begun = found[0] not in _WHOLE_BEGINS
        return self._begun

    def feed(self, text: str) -> list[str | LeakedCall]:
        if self.passes(text):
            return [text] if text else []
        if self._plain:
            if not self._has_read:
                self._tape, self._code, self._has_read = Tape(), Code(), True
            self._tape.begin(self._passed)
            self._plain, self._blind = False, 0
        if self._tape.add(text):
            self._read()
        return self._take()

    def flush(self) -> list[str | LeakedCall]:
        """The model is done: decides what waited."""
        if self._plain or self._passes_all:
            return []
        self._tape.finish()
        self._read()
        return self._take()

    def release(self) -> str:
        """What is held, as plain text. From now on everything is passed on untouched."""
        held = self._tape.held if self._attempt else ""
        self._attempt = None
        self._passes_all = True
        return held

    def _read(self) -> None:
        while self._go_on() if self._attempt else self._walk():
            pass
        if not self._attempt and not self._code.open:
            self._plain = True
            self._passed = self._tape.text[-LOOK_BACK:]

    def _walk(self) -> bool:
        """Passes text on, up to where a call might begin. False: all of it."""
        tape, text = self._tape, self._tape.text
        i = tape.at - tape.base
        while i < len(text):
            if self._code.open:
                stop = self._code.scan(text, i)
            elif not self._begun:
                found = _NOT_BLANK.search(text, i)
                stop = found.start() if found else len(text)
                if stop == i:
                    self._begun = True
                    if text[i] in _WHOLE_BEGINS:
                        return self._try(i, "whole")
            else:
                stop = self._special.find(text, i)
                if stop == i:
                    if text[i] in "`~":
                        stop = self._code.scan(text, i)
                    elif tape.base + i >= self._blind and _may_open(text, i):
                        return self._try(i, "quoted" if _is_quoted(text, i) else "call")
                    else:
                        stop = i + 1
            if stop > i:
                self._out.append(text[i:stop])
            i = stop
        tape.at = tape.start = tape.base + i
        return False

    def _try(self, i: int, kind: Kind) -> bool:
        self._tape.at = self._tape.base + i
        self._tape.hold()
        self._kind = kind
        shapes = self._shapes = self._shapes or Shapes(self._tape, self._tools)
        self._attempt = shapes.whole() if kind == "whole" else shapes.tail() if kind == "tail" else shapes.call()
        return True

    def _go_on(self) -> bool:
        """Reads on in what might be a call. False: it waits for more."""
        assert self._attempt is not None
        tape = self._tape
        try:
            next(self._attempt)
        except NotACall:
            if self._kind in ("call", "quoted"):
                self._blind = tape.at if tape.at - tape.start > _MOST_REREAD else tape.start + 1
            tape.at = tape.start
        except StopIteration as done:
            if self._kind == "quoted":  # one opener may stand right behind another: all of it is quoted
                self._blind, tape.at = tape.at, tape.start
            else:
                self._out += done.value
                if done.value:
                    return self._try(tape.at - tape.base, "tail")
        else:
            return False
        self._attempt = None
        return True

    def _take(self) -> list[str | LeakedCall]:
        """What was made, adjacent text joined."""
        out: list[str | LeakedCall] = []
        texts: list[str] = []
        for made in self._out:
            if isinstance(made, str):
                texts.append(made)
                continue
            if texts:
                out.append("".join(texts))
                texts = []
            out.append(made)
        if texts:
            out.append("".join(texts))
        self._out = []
        return out


def recovered(text: str, tools: Mapping[str, Mapping[str, Any]]) -> list[LeakedCall]:
    """The calls in Groq's `failed_generation`: a whole raw attempt, known to be one, so its form hardly matters.

    Seen besides the shapes of `LeakReader`: `web_search{…}</function>`, and `{"tool_calls": […]}` in any wrapping.
    """
    reader = LeakReader(tools)
    calls = [made for made in [*reader.feed(text), *reader.flush()] if isinstance(made, LeakedCall)]
    return calls or _calls_in_any_form(text, tools)


def _calls_in_any_form(text: str, tools: Mapping[str, Mapping[str, Any]]) -> list[LeakedCall]:
    """Every JSON object that is a call, or stands right behind an offered name."""
    shapes = Shapes(Tape(), tools)
    decoder = json.JSONDecoder(strict=False)
    calls: list[LeakedCall] = []
    at = -1
    for _ in range(_MOST_TRIED):
        at = text.find("{", at + 1)
        if at < 0:
            break
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            continue
        named = _NAME_BEFORE.search(text[max(0, at - 100) : at])
        for entry in (value, {"name": named.group(1) if named else "", "arguments": value}):
            try:
                calls += shapes.calls(entry)
            except NotACall:
                continue
            at = end - 1
            break
    return calls


class _Special:
    """Finds what may begin a call or code: an opener, or an offered name that ends the text or stands before a `[`.
    All text of all answers passes here, so names are looked for only where an opener or the end has been found. There
    may be thousands of them: in their order, those that a word begins stand right behind it."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = sorted(filter(_NAME.fullmatch, names))
        self._letters = frozenset(name[0] for name in self._names)
        letters = "".join(map(re.escape, sorted(self._letters)))
        last_word = rf"(?<![\w.-])[{letters}][\w.-]{{0,{_LONGEST_NAME - 1}}}\Z" if letters else "(?!)"
        self._last_word = re.compile(last_word).search

    def lacks(self, text: str) -> bool:
        """Is nothing of it in there?"""
        piece = text[1:] if text[:1] == " " else text
        if piece.isalnum() and piece[0] not in self._letters:  # one word, as most pieces are, that begins no name
            return True
        if "<" in text or "[" in text or "`" in text or "~" in text:  # a tenth of the time that the pattern takes
            return False
        word = self._last_word(text, max(text.rfind(" ") + 1, len(text) - _LONGEST_NAME))  # no name holds a blank
        return not word or not self._is_name(word[0], begun=True)

    def find(self, text: str, i: int) -> int:
        """The next place of it, or the end of the text."""
        opener = _OPENER.search(text, i)
        place = opener.start() if opener else len(text)
        if opener and opener[0] != "[":
            return place
        word = self._last_word(text, max(i, place - _LONGEST_NAME), place)
        if word and self._is_name(word[0], begun=not opener):
            return word.start()
        return place

    def _is_name(self, word: str, *, begun: bool) -> bool:
        """Is it an offered name, or at least the beginning of one?"""
        at = bisect_left(self._names, word)
        if at == len(self._names):
            return False
        return self._names[at].startswith(word) if begun else self._names[at] == word


_special = lru_cache(maxsize=64)(_Special)


def _special_of(names: tuple[str, ...]) -> _Special:
    """Remembered, unless there is much of it: clients choose the names, and nothing bounds them but their request."""
    return _special(names) if sum(map(len, names)) <= _MOST_REMEMBERED else _Special(names)


def _is_quoted(text: str, i: int) -> bool:
    before = text[max(0, i - LOOK_BACK) : i]
    return before[-1:] in _QUOTES or is_escaped(before) or bool(_LISTED.search(before))


def _may_open(text: str, i: int) -> bool:
    if text[i] not in "<[" or text.startswith(OPENERS, i):
        return True
    return len(text) - i < _LONGEST_OPENER and any(opener.startswith(text[i:]) for opener in OPENERS)
