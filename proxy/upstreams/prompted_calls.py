"""Calls that a model meant to write in the form it was told, `<tool_call>{…}</tool_call>`, and got wrong: an unknown
name, Python's quotes, a fence around it, no end. Handed what `leaks` left as text; hands on such calls as well as they
can be read, so that the model hears what was wrong with them, and the text without them.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from .leak_shapes import LeakedCall

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_MOST_HELD = 65_536
_MOST_PYTHON = 16_384  # characters that are read as Python's literals: its parser takes microseconds for each
# A fence that was opened for the call goes with it.
_FENCE_BEFORE = re.compile(r"\n?[ \t]*(?:```|~~~)[\w-]{0,20}[ \t]*\n?[ \t]*\Z")
_MAY_BEGIN = re.compile(r"\n?[ \t]*(?:[`~]{1,3}[\w-]{0,20}[ \t]*\n?[ \t]*)?\Z")
_LONGEST_FENCE = 40
_ONE_TICK = re.compile(r"(?<!`)`\Z")
_NAME = re.compile(r"""["']?name["']?\s*[:=]\s*["']?([\w.-]{1,100})""")


class PromptedCallReader:
    """`feed(text)` per piece, `settle()` before something else comes, `flush()` at the end of the answer."""

    def __init__(self) -> None:
        self._held = ""  # outside of a call
        self._written: list[str] | None = None  # the pieces of a call that is open
        self._size = 0  # of these
        self._end = ""  # the last characters of these: the closing tag may have begun in them

    def feed(self, text: str) -> list[str | LeakedCall]:
        out: list[str | LeakedCall] = []
        rest = self._held + text
        self._held = ""
        while rest:
            rest = self._outside(rest, out) if self._written is None else self._inside(self._written, rest, out)
        return out

    def _inside(self, written: list[str], text: str, out: list[str | LeakedCall]) -> str:
        """Reads on in a call: only what is new is searched for its end. Says what stands behind it."""
        written.append(text)
        self._size += len(text)
        closed = _CLOSE in self._end + text
        self._end = (self._end + text)[-len(_CLOSE) + 1 :]
        if not closed and self._size <= _MOST_HELD:
            return ""
        said, _, rest = "".join(written).partition(_CLOSE)
        self._written = None
        out.append(_call(said) if closed else said)
        return rest

    def _outside(self, text: str, out: list[str | LeakedCall]) -> str:
        """Passes text on up to where a call opens, and says what stands behind that."""
        before, opened, rest = text.partition(_OPEN)
        if not opened:
            keep = _waiting(text)
            if len(text) > keep:
                out.append(text[: len(text) - keep])
            self._held = text[len(text) - keep :]
            return ""
        if _ONE_TICK.search(before[-2:]):  # it speaks of the tag
            out.append(before + _OPEN)
            return rest
        before = _without_fence(before)
        out += [before] if before else []
        self._written, self._size, self._end = [], 0, ""
        return rest

    def settle(self) -> list[str | LeakedCall]:
        """A call follows that was written well: a fence that waits was opened for it."""
        held, self._held = _without_fence(self._held), ""
        if self._written is not None:
            self._written, self._size, self._end = [], 0, ""
        return [held] if held else []

    def flush(self) -> list[str | LeakedCall]:
        written, self._written = self._written, None
        held, self._held = self._held, ""
        if written is not None:
            return [_call("".join(written))]
        return [held] if held else []


def _without_fence(text: str) -> str:
    """As far as it is held back while text streams: in more blanks the pattern would look for ever longer."""
    return text[:-_LONGEST_FENCE] + _FENCE_BEFORE.sub("", text[-_LONGEST_FENCE:])


def _call(written: str) -> LeakedCall:
    """What was meant, as far as it can be read; what cannot is handed on for the model to be told so."""
    said = written.strip().strip("`")
    value: Any = None
    for read in (json.loads, ast.literal_eval)[: 2 if len(said) <= _MOST_PYTHON else 1]:
        try:
            value = read(said)
            break
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        given = value.get("arguments", value.get("parameters", {}))
        return LeakedCall(value["name"], given if isinstance(given, str) else json.dumps(given, default=str))
    named = _NAME.search(said)
    return LeakedCall(named[1] if named else "unknown", said)


def _waiting(text: str) -> int:
    """How many characters at the end may belong to a call that is still to come."""
    tag = next((size for size in range(len(_OPEN) - 1, 0, -1) if text.endswith(_OPEN[:size])), 0)
    end = len(text) - tag
    fence = _MAY_BEGIN.search(text[max(0, end - _LONGEST_FENCE) : end])
    return tag + (len(fence[0]) if fence else 0)
