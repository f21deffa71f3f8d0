"""What a model hands a custom tool, read while it is written. Handed the arguments of a call piece by piece, in the
form that the model was asked for, `{"input": "…"}`; hands on the text inside, as far as it is sure. Pure: however the
pieces are cut, the text is the same.

Models that were told of a function do not always call it as one. Bare text is the input itself; of an object with other
keys the one that is text is taken, once all of it is there.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import orjson

_HEAD = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_PLAIN = re.compile(r'[^"\\]+')
_CODE = re.compile(r"\\u([0-9A-Fa-f]{4})")
_HALF_CODE = re.compile(r"\\(?:u[0-9A-Fa-f]{0,3})?")
_HEAD_PARTS = ("{", '"input"', ":", '"')
_LONGEST_HEAD = 256  # white space and all
_LOST = "\ufffd"  # for half a character


class CustomInput:
    """`feed(piece)` per piece and `close()` at the end hand on more of the text; `text` is all of it so far."""

    def __init__(self) -> None:
        self._state: Literal["head", "string", "bare", "held", "over"] = "head"
        self._held = ""  # what was not understood yet
        self._object: list[str] = []  # what can be understood only at the end
        self._said: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._said)

    def feed(self, piece: str) -> str:
        if self._state == "over" or not piece:
            return ""
        if self._state == "held":
            self._object.append(piece)
            return ""
        self._held += piece
        if self._state == "head":
            self._read_head()
        if self._state == "string":
            return self._say(self._read_string())
        if self._state == "bare":
            text, self._held = self._held, ""
            return self._say(text)
        return ""

    def close(self) -> str:
        """The arguments are complete, or cut short."""
        state, held = self._state, "".join((self._held, *self._object))
        self._state, self._held = "over", ""
        if state in ("head", "held"):
            return self._say(_meant(held))
        return self._say(_LOST if _first_half(held) else "")

    def _say(self, text: str) -> str:
        if text:
            self._said.append(text)
        return text

    def _read_head(self) -> None:
        head = self._held[:_LONGEST_HEAD]
        if found := _HEAD.match(head):
            self._state, self._held = "string", self._held[found.end() :]
        elif len(head) == _LONGEST_HEAD or not _may_be_head(head):
            # An object or a string may still turn out to hold the text; all else is the text.
            self._state = "held" if head.lstrip()[:1] in ("", "{", '"') else "bare"

    def _read_string(self) -> str:
        """As much of a JSON string as is sure. What JSON would not allow in one stays as the model wrote it."""
        held, at, out = self._held, 0, list[str]()
        while at < len(held):
            if plain := _PLAIN.match(held, at):
                out.append(plain[0])
                at = plain.end()
            elif held[at] == '"':
                self._state, at = "over", len(held)
            else:
                read = _escape(held, at)
                if read is None:
                    break
                text, at = read
                out.append(text)
        self._held = held[at:]
        return "".join(out)


def _may_be_head(held: str) -> bool:
    """Is it the beginning of `{"input": "`, however that is spaced?"""
    rest = held.lstrip()
    for part in _HEAD_PARTS:
        if len(rest) < len(part):
            return part.startswith(rest)
        if not rest.startswith(part):
            return False
        rest = rest[len(part) :].lstrip()
    return True


def _escape(held: str, at: int) -> tuple[str, int] | None:
    """What stands for the escape at a place, and where that ends; nothing while it is not all there."""
    code = _CODE.match(held, at)
    if code is None:
        if _HALF_CODE.fullmatch(held, at):
            return None
        return _ESCAPES.get(held[at + 1], held[at : at + 2]), at + 2
    number = int(code[1], 16)
    if not 0xD800 <= number <= 0xDFFF:
        return chr(number), code.end()
    if number >= 0xDC00:
        return _LOST, code.end()
    other = _CODE.match(held, code.end())
    if other and 0xDC00 <= int(other[1], 16) <= 0xDFFF:
        return chr(0x10000 + ((number - 0xD800) << 10) + int(other[1], 16) - 0xDC00), other.end()
    if other is None and (code.end() == len(held) or _HALF_CODE.fullmatch(held, code.end())):
        return None
    return _LOST, code.end()


def _first_half(held: str) -> bool:
    """Was the answer cut between the halves of a character?"""
    code = _CODE.match(held)
    return code is not None and 0xD800 <= int(code[1], 16) <= 0xDBFF


def as_arguments(text: str) -> str:
    """The arguments with which a custom tool is called, in a history that the model reads."""
    return orjson.dumps({"input": text}).decode()


def sound_arguments(written: str, text: str) -> str:
    """What a model wrote as arguments, if it wrote the text as it was asked to: so the prompt stays as it was. Else
    what it should have written, for servers refuse arguments that are no object."""
    try:
        value = orjson.loads(written)
    except orjson.JSONDecodeError:
        value = None
    return written if isinstance(value, dict) and value.get("input") == text else as_arguments(text)


def _meant(arguments: str) -> str:
    """What arguments of another form are about."""
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return arguments
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        return arguments
    if not value:
        return ""
    return _text_in(value, arguments)


def _text_in(value: dict[str, Any], arguments: str) -> str:
    wanted = value.get("input", value)
    if isinstance(wanted, str):
        return wanted
    if wanted is not value:
        return orjson.dumps(wanted).decode()
    texts = [inner for inner in value.values() if isinstance(inner, str)]
    return texts[0] if len(texts) == 1 else arguments
