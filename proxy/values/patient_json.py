"""JSON that is made of very many parts, read in Python, so that other threads have their turns meanwhile. Handed bytes;
hands on what orjson would, or raises ValueError as it does. And how many parts a body has, counted before it is read.

orjson is twenty times as fast, and lets nobody go on until it is done: a tenth of a second for 400,000 lists.

A part is a JSON value: an object, a list, a string, a number, true, false or null. Keys are none.
"""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any

import orjson

MOST_PARTS = 400_000  # that a body may have: more are no conversation
_MANY = 60_000  # parts that orjson reads in some 20 ms
_SLICE = 64 * 1024  # bytes that are counted at once: other threads have their turns in between
_MOST_PAIRS = 10_000  # that are put into an object at once
_BLANKS = b" \t\r\n"
_IS_NO_START = bytes(set(range(256)) - set(b"[{,"))  # an opening bracket or a comma stands before every part but one
_IS_NO_MARK = bytes(set(range(256)) - set(b"[{:"))
_BEGINS = re.compile(rb"[ \t\r\n]*+[\[{]")


def has_too_many_parts(raw: bytes) -> bool:
    """Has a body more parts than are read? Brackets and commas inside strings are none."""
    if len(raw) <= MOST_PARTS or not _BEGINS.match(raw):  # it is no JSON: a form, or nothing that anybody reads
        return False
    return _holds_more(raw, _IS_NO_START, MOST_PARTS) and _counts_more(raw, MOST_PARTS)


def is_of_many_parts(raw: bytes) -> bool:
    """As far as can be told at a glance. Brackets inside texts count too: to be read like this costs those little."""
    return len(raw) > _MANY and _holds_more(raw, _IS_NO_MARK, _MANY)


def _holds_more(raw: bytes, others: bytes, most: int) -> bool:
    """Are there more bytes than that which are none of the others, wherever they stand?"""
    count = 0
    for start in range(0, len(raw), _SLICE):
        count += len(raw[start : start + _SLICE].translate(None, others))
        if count > most:
            return True
    return False


def _counts_more(raw: bytes, most: int) -> bool:
    """Are there more parts than that? Counted outside of strings: what opens an empty list or object is followed by
    none. What stands in no string behind a backslash is no JSON, and is read no further."""
    count, in_string, torn = 1, False, b""
    for start in range(0, len(raw), _SLICE):
        piece = torn + raw[start : start + _SLICE]
        torn = b"\\" if (len(piece) - len(piece.rstrip(b"\\"))) % 2 else b""  # the other half comes with the next piece
        piece = piece[: len(piece) - len(torn)].replace(b"\\\\", b"").replace(b'\\"', b"")
        runs = piece.split(b'"')
        outside = b'"'.join(runs[in_string::2]).translate(None, _BLANKS)
        in_string ^= len(runs) % 2 == 0
        count += len(outside.translate(None, _IS_NO_START)) - outside.count(b"[]") - outside.count(b"{}")
        if count > most:
            return True
    return False


def loads(raw: bytes) -> Any:
    """As orjson, in the way that suits the body."""
    return read(raw) if is_of_many_parts(raw) else orjson.loads(raw)


def read(raw: bytes) -> Any:
    try:
        return _Patient().decode(raw.decode())
    except RecursionError:
        raise ValueError("it is too deep") from None


class _Patient(json.JSONDecoder):
    def __init__(self) -> None:
        super().__init__(
            object_pairs_hook=_object, parse_int=_whole_number, parse_float=_number, parse_constant=_no_constant
        )
        self.parse_string = _text
        self.scan_once = py_make_scanner(self)


def _text(source: str, start: int, strict: bool) -> tuple[str, int]:
    found, end = scanstring(source, start, strict)
    _check(found)
    return found, end


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for start in range(0, len(pairs), _MOST_PAIRS):
        some = dict(pairs[start : start + _MOST_PAIRS])
        _check("".join(some))
        made |= some
    return made


def _check(text: str) -> None:
    """Half a character is none."""
    if not text.isascii():
        text.encode()


def _whole_number(digits: str) -> int | float:
    return int(digits) if len(digits) < 19 else _number(digits)


def _number(written: str) -> Any:
    return orjson.loads(written)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")
