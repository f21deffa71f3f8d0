"""JSON as models' servers write it. Handed their bytes, hands on values that can be written again: whatever passes on
to a client goes through an encoder that knows no half characters, no endless numbers and no nest without end.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import orjson

from providers.apart import apart

from ..values import patient_json

_MOST_DEPTH = 64  # the encoder takes four times that, with what of ours is around it
_MOST_COUNT = 10**15  # a server that counts more has not counted
_LONGEST_INTEGER = 18  # digits that surely fit 64 bits
# Events are read on the event loop, where everybody waits: these take some ten milliseconds.
_LARGE = 100_000  # bytes: what is shorter cannot hold too much
_MOST_PARTS = 60_000  # objects and lists of one event: 480 tokens with 20 log probabilities each are 20,000
_MOST_MENDED = 100_000  # bytes of one event
_MOST_MENDED_APART = 2_000_000  # of a whole answer, in a thread
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)', re.DOTALL)  # never in vain: each byte is read once


def parse(payload: bytes) -> Any:
    """The value, or None if it is no JSON, or more of it than an event can be. Bytes that are no UTF-8 and half
    characters are replaced, numbers without end are null: one such field must not cost the answer."""
    if len(payload) > _LARGE and has_too_many_parts(payload):
        return None
    return _parsed(payload, _MOST_MENDED)


async def parse_whole(answer: bytes) -> Any:
    """The same of a whole answer, which may be long: apart from the loop."""
    return await apart(len(answer), _parse_patiently, answer)


def has_too_many_parts(payload: bytes) -> bool:
    """For an event? Brackets in texts are none of its parts."""
    if len(payload) <= _LARGE or payload.count(b"[") + payload.count(b"{") <= _MOST_PARTS:
        return False
    bare = _STRING.sub(b"", payload)
    return bare.count(b"[") + bare.count(b"{") > _MOST_PARTS


def _parse_patiently(answer: bytes) -> Any:
    if not patient_json.is_of_many_parts(answer):
        return _parsed(answer, _MOST_MENDED_APART)
    try:
        return patient_json.read(answer)
    except ValueError:
        return None


def _parsed(payload: bytes, most_mended: int) -> Any:
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        pass
    if len(payload) > most_mended:
        return None
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
