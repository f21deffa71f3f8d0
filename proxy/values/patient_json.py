"""JSON that is made of very many parts, read in Python, so that other threads have their turns meanwhile. Handed bytes;
hands on what orjson would, or raises ValueError as it does.

orjson is twenty times as fast, and lets nobody go on until it is done: a tenth of a second for 400,000 lists.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from json.decoder import JSONArray, JSONObject, scanstring  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any

import orjson

MOST_PARTS = 400_000  # objects and lists that a body may be made of: more are no conversation
_MANY = 60_000  # parts that orjson reads in some 20 ms


class TooManyParts(ValueError):
    """There must be an end to what is looked through for one request."""


def is_of_many_parts(raw: bytes) -> bool:
    """As far as can be told at a glance. Brackets inside texts count too: to be read like this costs those little."""
    return len(raw) > _MANY and raw.count(b"[") + raw.count(b"{") + raw.count(b":") // 2 > _MANY


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
        self.parse_object, self.parse_array = self._counted(JSONObject), self._counted(JSONArray)
        self._left = MOST_PARTS
        self.parse_string = _text
        self.scan_once = py_make_scanner(self)

    def _counted(self, read: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*place: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                raise TooManyParts
            return read(*place)

        return counted


def _text(source: str, start: int, strict: bool) -> tuple[str, int]:
    found, end = scanstring(source, start, strict)
    _check(found)
    return found, end


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    _check("".join(made))
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
