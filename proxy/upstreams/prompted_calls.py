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
# A fence that was opened for the call goes with it.
_FENCE_BEFORE = re.compile(r"\n?[ \t]*(?:```|~~~)[\w-]{0,20}[ \t]*\n?[ \t]*\Z")
_MAY_BEGIN = re.compile(r"\n?[ \t]*(?:[`~]{1,3}[\w-]{0,20}[ \t]*\n?[ \t]*)?\Z")
_LONGEST_FENCE = 40
_ONE_TICK = re.compile(r"(?<!`)`\Z")
_NAME = re.compile(r"""["']?name["']?\s*[:=]\s*["']?([\w.-]{1,100})""")


class PromptedCallReader:
    """`feed(text)` per piece, `settle()` before something else comes, `flush()` at the end of the answer."""

    def __init__(self) -> None:
        self._held = ""
        self._inside = False

    def feed(self, text: str) -> list[str | LeakedCall]:
        self._held += text
        out: list[str | LeakedCall] = []
        while self._held:
            if self._inside:
                written, closed, rest = self._held.partition(_CLOSE)
                if not closed and len(self._held) <= _MOST_HELD:
                    break
                self._inside, self._held = False, rest
                out.append(_call(written) if closed else written)
                continue
            at = self._held.find(_OPEN)
            if at < 0:
                keep = _waiting(self._held)
                if len(self._held) > keep:
                    out.append(self._held[: len(self._held) - keep])
                self._held = self._held[len(self._held) - keep :]
                break
            before, self._held = self._held[:at], self._held[at + len(_OPEN) :]
            if _ONE_TICK.search(before):  # it speaks of the tag
                out.append(before + _OPEN)
                continue
            before = _FENCE_BEFORE.sub("", before)
            out += [before] if before else []
            self._inside = True
        return out

    def settle(self) -> list[str | LeakedCall]:
        """A call follows that was written well: a fence that waits was opened for it."""
        held, self._held = _FENCE_BEFORE.sub("", self._held), ""
        return [held] if held and not self._inside else []

    def flush(self) -> list[str | LeakedCall]:
        held, self._held = self._held, ""
        if self._inside:
            return [_call(held)]
        return [held] if held else []


def _call(written: str) -> LeakedCall:
    """What was meant, as far as it can be read; what cannot is handed on for the model to be told so."""
    said = written.strip().strip("`")
    value: Any = None
    for read in (json.loads, ast.literal_eval):
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
