"""Bodies of very many parts are read in Python, so that threads take turns, and give the same as orjson gives."""

from __future__ import annotations

import json
import sys
from types import FrameType
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.values import patient_json
from proxy.values.request import json_object

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
ODD = [
    '"\\ud800"', '{"\\ud800": 1}', '["\\ud83d\\ude00"]', "123456789012345678901234567890", "18446744073709551615",
    "1e999", "[1,]", '{"a":1,"a":2}', "NaN", "-Infinity", "-0", "1.0", "01", '"\x01"', " 1 ", "", "{", '{"a" 1}',
    "[1 2]", "1 2", "\ufeff1", "[" * 5000 + "]" * 5000,
]  # fmt: skip


def outcome(read: Any, raw: bytes) -> object:
    try:
        return repr(read(raw))
    except ValueError:
        return ValueError


@given(VALUES, st.booleans())
def test_it_reads_what_orjson_reads(value: object, ascii_only: bool) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert outcome(patient_json.read, raw) == outcome(orjson.loads, raw)


@pytest.mark.parametrize("text", ODD, ids=lambda text: text[:20])
def test_it_refuses_what_orjson_refuses(text: str) -> None:
    raw = text.encode()
    assert outcome(patient_json.read, raw) == outcome(orjson.loads, raw)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(ValueError, match="utf-8"):
        patient_json.read(b'"\xff"')


@pytest.mark.parametrize(
    "body", [{"x": [[]] * 100_000}, {"x": {f"k{n}": n for n in range(130_000)}}, {"x": [{"a": "b"}] * 100_000}]
)
def test_very_many_parts_are_read_in_small_steps(body: dict[str, Any]) -> None:
    steps = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal steps
        steps += event == "call"

    raw = orjson.dumps(body)
    sys.setprofile(count)
    try:
        read = json_object(raw)
    finally:
        sys.setprofile(None)
    assert read == body
    assert steps > 100_000  # each is a place where others may go on


def test_an_ordinary_body_is_read_at_once() -> None:
    raw = orjson.dumps({"messages": [{"role": "user", "content": "word " * 100}] * 15_000})
    assert not patient_json.is_of_many_parts(raw)
