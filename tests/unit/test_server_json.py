"""JSON as models' servers write it: whatever comes, what is handed on can be written again."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.upstreams.chunks import ChunkReader
from proxy.upstreams.server_json import is_plain, parse, plain_usage
from proxy.values.errors import as_error
from proxy.values.events import (
    Begun,
    Failed,
    GatheredFields,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageSeen,
    merge_fields,
)
from proxy.values.usage import add_usage


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"x": value}
    return value


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{"a": 1e999, "b": 1}', {"a": None, "b": 1}),
        (b'{"a": -1e999}', {"a": None}),
        (b'{"a": NaN, "b": Infinity}', {"a": None, "b": None}),
        (b'{"a": "\\ud83d"}', {"a": "�"}),
        (b'{"a": "\xff"}', {"a": "�"}),
        (b'{"a": "\\ud83d", "b": 12, "c": -3, "d": 1.5}', {"a": "�", "b": 12, "c": -3, "d": 1.5}),
        (b'{"a": "\\ud83d", "b": %s}' % (b"9" * 30), {"a": "�", "b": 1e30}),
        (b'{"a": "\\ud83d", "b": %s}' % (b"9" * 5000), {"a": "�", "b": None}),
        (b"{oops", None),
        (b"[" * 100_000, None),
        (b"", None),
    ],
)
def test_what_the_fast_reader_does_not_take(raw: bytes, value: object) -> None:
    assert parse(raw) == value


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_whatever_is_read_can_be_written(value: Any) -> None:
    read = parse(json.dumps({"value": value}).encode())
    assert is_plain(read)
    orjson.dumps(read)


@given(st.binary(max_size=60))
def test_no_bytes_break_it(raw: bytes) -> None:
    parse(raw)


@pytest.mark.parametrize("depth", [10, 64, 65, 300, 900])
def test_a_nest_is_passed_on_only_if_it_can_be_written_anywhere(depth: int) -> None:
    assert is_plain(nested(depth)) == (depth <= 64)
    if depth <= 64:
        orjson.dumps([[[[[[[[nested(depth)]]]]]]]])


def test_counts_that_are_none_are_dropped() -> None:
    usage = {"prompt_tokens": 2**80, "completion_tokens": -1, "total_tokens": 7, "cost": 0.25, "x": float("inf")}
    details = {"cached_tokens": 10**30, "audio": None, "tier": "a", "deep": nested(500), "n": [1]}
    assert plain_usage({**usage, "details": details}) == {
        "total_tokens": 7,
        "cost": 0.25,
        "details": {"audio": None, "tier": "a", "n": [1]},
    }


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=4), st.dictionaries(st.text(max_size=4), JSON, max_size=4))
def test_counts_can_be_added_up_and_written(one: dict[str, Any], other: dict[str, Any]) -> None:
    total: dict[str, Any] = {}
    for usage in (one, other, other):
        add_usage(total, plain_usage(parse(json.dumps(usage).encode())))
    orjson.dumps(total)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), JSON, max_size=3), max_size=6))
def test_fields_gathered_are_fields_merged(deltas: list[dict[str, Any]]) -> None:
    merged: dict[str, Any] = {}
    gathered = GatheredFields()
    for delta in deltas:
        before = json.dumps(delta)
        merge_fields(merged, delta)
        gathered.add(delta)
        assert json.dumps(delta) == before
        assert json.dumps(gathered.whole()) == json.dumps(merged)


def read(raw: str) -> list[Any]:
    return ChunkReader().feed_answer(parse(raw.encode()))


@pytest.mark.parametrize("depth", [100, 300, 900])
def test_no_field_of_an_answer_is_deeper_than_can_be_written(depth: int) -> None:
    deep = json.dumps(nested(depth))
    call = f'{{"id": {deep}, "signature": {deep}, "function": {{"name": "f", "arguments": {deep}}}}}'
    message = f'{{"content": "x", "thoughts": {deep}, "reasoning": "hm", "tool_calls": [{call}]}}'
    answer = f'{{"model": {deep}, "system_fingerprint": {deep}, "usage": {{"a": {deep}, "total_tokens": 3}}, '
    events = read(answer + f'"choices": [{{"message": {message}, "finish_reason": {deep}}}]}}')
    called = [event for event in events if isinstance(event, ToolCallDelta)]
    (used,) = [event for event in events if isinstance(event, UsageSeen)]
    assert [(piece.name, piece.arguments, piece.extra) for piece in called] == [("f", "", None), ("", "[]", None)]
    assert events[:3] == [Begun(""), ReasoningDelta({"reasoning": "hm"}), TextDelta("x")]
    assert used.usage["total_tokens"] == 3
    orjson.dumps(used.usage)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        ({"message": "no", "code": "²"}, 502, "²"),
        ({"message": "no", "code": "٤٠٠"}, 502, "٤٠٠"),
        ({"message": "no", "code": "9" * 5000}, 502, "9" * 5000),
        ({"message": "no", "code": 10**30}, 502, None),
        ({"message": "no", "code": True}, 502, None),
        ({"message": "no", "code": 4e2}, 502, None),
        ({"message": "no", "code": "404"}, 404, "404"),
        ({"message": "no", "code": nested(900), "param": nested(900), "type": nested(900)}, 502, None),
        ({"message": nested(900), "code": 429}, 429, 429),
        ({"message": "no", "type": "not_found_error"}, 404, None),
    ],
)
def test_errors_that_servers_make_up(error: dict[str, Any], status: int, code: object) -> None:
    failed = as_error({"error": error})
    assert isinstance(failed, Failed)
    assert (failed.status, failed.error["code"]) == (status, code)
    orjson.dumps(failed.error)
