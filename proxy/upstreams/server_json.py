"""JSON as models' servers write it. Handed their bytes, hands on values that can be written again: whatever passes on
to a client goes through an encoder that knows no half characters, no endless numbers and no nest without end.
"""

from __future__ import annotations

import json
import math
from typing import Any

import orjson

_MOST_DEPTH = 64  # the encoder takes four times that, with what of ours is around it
_MOST_COUNT = 10**15  # a server that counts more has not counted
_LONGEST_INTEGER = 18  # digits that surely fit 64 bits


def parse(payload: bytes) -> Any:
    """The value, or None if it is no JSON. Bytes that are no UTF-8 and half characters are replaced, numbers without
    end are null: one such field must not cost the answer."""
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        pass
    try:
        text = payload.decode("utf-8", "replace")
        value = json.loads(text, parse_int=_number, parse_float=_number, parse_constant=_nothing)
        whole = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    except (ValueError, RecursionError):
        return None
    return json.loads(whole)


def is_plain(value: object, depth: int = 0) -> bool:
    """Can it be written again, wherever in an answer it may stand?"""
    if isinstance(value, str):
        return True
    if isinstance(value, dict):
        return depth < _MOST_DEPTH and all(is_plain(inner, depth + 1) for inner in value.values())
    if isinstance(value, list):
        return depth < _MOST_DEPTH and all(is_plain(inner, depth + 1) for inner in value)
    return not isinstance(value, float) or math.isfinite(value)


def plain_usage(usage: dict[str, Any], depth: int = 0) -> dict[str, Any]:
    """What a server counted, without numbers that are no counts. The rounds of an answer are added up from these."""
    counted: dict[str, Any] = {}
    for key, value in usage.items():
        if type(value) is int or type(value) is float:
            if 0 <= value <= _MOST_COUNT:
                counted[key] = value
        elif type(value) is dict:
            if depth < _MOST_DEPTH:
                counted[key] = plain_usage(value, depth + 1)
        elif is_plain(value, depth):
            counted[key] = value
    return counted


def _number(text: str) -> float | None:
    if len(text) <= _LONGEST_INTEGER and text.removeprefix("-").isdigit():
        return int(text)
    value = float(text)
    return value if math.isfinite(value) else None


def _nothing(_constant: str) -> None:
    """`NaN` and the like."""
