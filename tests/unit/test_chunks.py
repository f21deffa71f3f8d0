"""Chunks → events, as servers really send them (each odd shape names who sends it)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.upstreams.chunks import ChunkReader
from proxy.values.events import Begun, Event, Failed, Finished, ReasoningDelta, TextDelta, ToolCallDelta, UsageSeen
from proxy.values.sse import SSEDecoder
from tests.fakes.model import Turn, chunks, whole


def payload(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    return json.dumps(
        {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}
    ).encode()


def read(*payloads: bytes) -> list[Event]:
    reader = ChunkReader()
    return reader.feed(payloads) + ([] if reader.over else reader.flush())


def calls(*entries: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(id, name, arguments) of every call that these fragments mean."""
    events = read(*(payload({"tool_calls": [entry]}) for entry in entries), payload({}, "tool_calls"))
    return assemble(events)


def assemble(events: list[Event]) -> list[tuple[str, str, str]]:
    found: list[list[str]] = []
    for event in events:
        if isinstance(event, ToolCallDelta):
            if event.index == len(found):
                assert event.id, "the first piece has an id"
                assert event.name, "the first piece has a name"
                found.append([event.id, event.name, ""])
            else:
                assert not event.id
                assert not event.name
            found[event.index][2] += event.arguments
    return [(a, b, c) for a, b, c in found]


def test_an_ordinary_stream() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    events = read(
        payload({"role": "assistant", "content": ""}, system_fingerprint="fp"),
        payload({"reasoning_content": "hm"}),
        payload({"content": "Hi"}),
        payload({}, "stop"),
        json.dumps({"choices": [], "usage": usage}).encode(),
        b"[DONE]",
        payload({"content": "after the end"}),
    )
    assert events == [
        Begun("m", {"system_fingerprint": "fp"}),
        ReasoningDelta({"reasoning_content": "hm"}),
        TextDelta("Hi"),
        UsageSeen(usage),
        Finished("stop"),
    ]


def test_a_whole_answer_gives_the_same_events() -> None:
    turn = Turn(text=["Hel", "lo"], calls=[("a", "f", {"x": 1}), ("b", "g", "{}")], reasoning=["hm"])
    streamed, at_once = ChunkReader(), ChunkReader()
    one = streamed.feed([json.dumps(c).encode() for c in chunks(turn)]) + streamed.flush()
    other = at_once.feed_answer(whole(turn))
    assert assemble(one) == assemble(other) == [("a", "f", '{"x": 1}'), ("b", "g", "{}")]
    for events in (one, other):
        assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "Hello"
        assert events[-2:] == [UsageSeen(turn.usage or {}), Finished("tool_calls")]


def test_bytes_cut_at_every_place_give_the_same_events() -> None:
    turn = Turn(text=["Grüße 😀", "首都"], calls=[("a", "f", {"x": "é"})])
    stream = b"".join(b"data: " + json.dumps(c, ensure_ascii=False).encode() + b"\n\n" for c in chunks(turn))

    def events(pieces: list[bytes]) -> list[Event]:
        decoder, reader = SSEDecoder(), ChunkReader()
        out = [event for piece in pieces for event in reader.feed(decoder.feed(piece))]
        return out + reader.flush(decoder.flush())

    expected = events([stream])
    assert events([stream[i : i + 1] for i in range(len(stream))]) == expected
    for cut in range(len(stream)):
        assert events([stream[:cut], stream[cut:]]) == expected


def first(index: int | None, call_id: str, name: str, arguments: object = "") -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return entry | ({} if index is None else {"index": index}) | ({"id": call_id} if call_id else {})


def more(index: int | None, arguments: str, **fields: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {"function": {"arguments": arguments, **fields}}
    return entry if index is None else entry | {"index": index}


def test_interleaved_calls() -> None:
    fragments = [first(0, "a", "f"), first(1, "b", "g"), more(1, "{}"), more(0, '{"x"'), more(0, ":1}")]
    assert calls(*fragments) == [("a", "f", '{"x":1}'), ("b", "g", "{}")]


def test_index_missing_gemini_ollama() -> None:
    fragments = [first(None, "a", "f", "{}"), first(None, "b", "g", '{"y"'), more(None, ":2}")]
    assert calls(*fragments) == [("a", "f", "{}"), ("b", "g", '{"y":2}')]


def test_every_index_zero_ollama() -> None:
    assert calls(first(0, "a", "f", "{}"), first(0, "b", "g", "{}")) == [("a", "f", "{}"), ("b", "g", "{}")]


def test_every_index_zero_without_ids() -> None:
    made = calls(first(0, "", "f", '{"x":1}'), first(0, "", "g", '{"y":2}'))
    assert [(name, arguments) for _, name, arguments in made] == [("f", '{"x":1}'), ("g", '{"y":2}')]


def test_two_fragments_of_one_call_in_one_chunk_vllm() -> None:
    events = read(payload({"tool_calls": [first(0, "a", "f", '{"x"'), more(0, ":1}")]}), payload({}, "tool_calls"))
    assert assemble(events) == [("a", "f", '{"x":1}')]


def test_index_that_starts_at_one_or_jumps() -> None:
    assert calls(first(1, "a", "f", "{}"), first(7, "b", "g", "{}")) == [("a", "f", "{}"), ("b", "g", "{}")]


@pytest.mark.parametrize("missing", ["", None])
def test_missing_ids_are_made(missing: str | None) -> None:
    (made, name, arguments), (other, _, _) = calls(
        first(0, missing or "", "f", "{}"), first(1, missing or "", "g", "{}")
    )
    assert (name, arguments) == ("f", "{}")
    assert made.isalnum()
    assert len(made) == 9
    assert made != other


def test_repeated_ids_are_told_apart() -> None:
    (a, _, _), (b, _, _) = calls(first(0, "same", "f", "{}"), first(1, "same", "g", "{}"))
    assert a == "same"
    assert b != "same"


def test_name_after_the_arguments_or_repeated_or_blank() -> None:
    late = [
        {"index": 0, "id": "a", "function": {"arguments": '{"x"'}},
        {"index": 0, "function": {"name": "f", "arguments": ":1}"}},
    ]
    assert calls(*late) == [("a", "f", '{"x":1}')]
    assert calls(first(0, "a", "f"), more(0, "{", name="f"), more(0, "}", name="")) == [("a", "f", "{}")]


@pytest.mark.parametrize("name", ["functions.f", "f<|channel|>commentary", " f "])
def test_names_with_control_tokens_gpt_oss(name: str) -> None:
    assert calls(first(0, "a", name, "{}")) == [("a", "f", "{}")]


def test_arguments_as_an_object_or_null() -> None:
    assert calls(first(0, "a", "f", {"x": 1}), first(1, "b", "g", None)) == [("a", "f", '{"x":1}'), ("b", "g", "")]


def test_vendor_fields_of_a_call_are_kept() -> None:
    signature = {"extra_content": {"google": {"thought_signature": "s"}}}
    events = read(payload({"tool_calls": [first(0, "a", "f", "{}") | signature]}), payload({}, "tool_calls"))
    assert [e.extra for e in events if isinstance(e, ToolCallDelta)] == [signature]


def test_content_as_parts_mistral() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "Hi"}]
    events = read(payload({"content": parts}), payload({}, "stop"))
    assert events[1:3] == [ReasoningDelta({"reasoning_content": "hm"}), TextDelta("Hi")]


def test_upstream_annotations_are_not_ours() -> None:
    events = read(payload({"content": "x", "annotations": [{"type": "url_citation"}]}), payload({}, "stop"))
    assert events == [Begun("m"), TextDelta("x"), Finished("stop")]


@pytest.mark.parametrize("reason", ["end_turn", "eos_token", "error_unknown"])
def test_unknown_finish_reasons_are_stop(reason: str) -> None:
    assert read(payload({"content": "x"}, reason))[-1] == Finished("stop")


def test_finish_reason_repeated_beside_usage_vllm() -> None:
    events = read(payload({"content": "x"}, "length"), payload({}, "stop", usage={"total_tokens": 1}))
    assert events[-2:] == [UsageSeen({"total_tokens": 1}), Finished("length")]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"error": {"message": "m", "type": "t", "param": None, "code": "c"}}, 502, "m"),
        ({"error": {"message": "m", "code": 429}}, 429, "m"),
        ({"error": {"message": "m", "status_code": 400, "failed_generation": "…"}}, 400, "m"),
        ({"error": "plain text"}, 502, "plain text"),
        ({"object": "error", "message": "m", "code": 404}, 404, "m"),
        ([{"error": {"message": "m", "code": 503, "status": "UNAVAILABLE"}}], 503, "m"),
        (
            {"error": {"message": "m", "code": 502}, "choices": [{"delta": {"content": ""}, "finish_reason": "error"}]},
            502,
            "m",
        ),
    ],
)
def test_errors_in_every_shape(body: object, status: int, message: str) -> None:
    events = read(payload({"content": "Hi"}), json.dumps(body).encode(), payload({"content": "no more"}))
    last = events[-1]
    assert isinstance(last, Failed)
    assert (last.status, last.error["message"]) == (status, message)
    assert set(last.error) == {"message", "type", "param", "code"}
    assert TextDelta("no more") not in events


def test_error_null_is_no_error() -> None:
    assert read(payload({"content": "x"}, "stop", error=None))[-1] == Finished("stop")


def code(events: list[Event]) -> object:
    return events[-1].error["code"] if isinstance(events[-1], Failed) else events[-1]


def test_ends() -> None:
    text = payload({"content": "x"})
    assert code(read(text)) == "upstream_truncated"
    assert code(read()) == "upstream_truncated"
    assert read(text, payload({}, "stop"))[-1] == Finished("stop")  # no [DONE], but the model had finished
    assert code(read(text, b"<html>")) == "upstream_bad_response"


def test_an_unterminated_last_event_counts_if_it_is_whole() -> None:
    reader = ChunkReader()
    assert reader.feed([payload({"content": "x"})]) == [Begun("m"), TextDelta("x")]
    assert reader.flush([payload({}, "stop")]) == [Finished("stop")]
    cut = ChunkReader()
    cut.feed([payload({"content": "x"})])
    assert code(cut.flush([b'{"choices":[{"del'])) == "upstream_truncated"


def test_bytes_that_are_no_text_are_replaced() -> None:
    events = read(b'{"choices":[{"delta":{"content":"a\xffb"}}]}', rb'{"choices":[{"delta":{"content":"c\ud83dd"}}]}')
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["a�b", "c�d"]


ODD: list[dict[str, Any]] = [
    {"choices": None},
    {"choices": []},
    {"choices": "x"},
    {"choices": [None]},
    {"choices": ["x"]},
    {"choices": [{}]},
    {"choices": [{"delta": None}]},
    {"choices": [{"delta": []}]},
    {"choices": [{"delta": "x"}]},
    {"choices": [{"message": "x"}]},
]


@pytest.mark.parametrize("odd", ODD, ids=json.dumps)
def test_odd_shapes_are_skipped(odd: dict[str, Any]) -> None:
    events = read(json.dumps(odd).encode(), payload({"content": "x"}, "stop"))
    assert events == [Begun(""), TextDelta("x"), Finished("stop")]


@pytest.mark.parametrize("odd", ODD, ids=json.dumps)
def test_odd_shapes_alone_are_no_answer(odd: dict[str, Any]) -> None:
    raw = json.dumps(odd).encode()
    assert code(read(raw)) == "upstream_truncated"
    assert code(ChunkReader().feed_answer(odd)) == "upstream_truncated"
    assert read(raw, b"[DONE]") == [Begun(""), Finished("stop")], "the server says that this is all"


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ({"stop_reason": "END"}, "END"),  # vLLM
        ({"stop_reason": 2}, ""),  # vLLM: a token
        ({"stop_reason": None}, ""),
        ({"matched_stop": "END"}, "END"),  # SGLang
        ({"matched_stop": 151645}, ""),  # SGLang: a token
        ({}, ""),
    ],
)
def test_the_word_at_which_a_server_stopped(said: dict[str, Any], word: str) -> None:
    streamed = {"model": "m", "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop", **said}]}
    assert read(json.dumps(streamed).encode())[-1] == Finished("stop", word)
    whole = {"model": "m", "choices": [{"message": {"content": "x"}, "finish_reason": "stop", **said}]}
    assert ChunkReader().feed_answer(whole)[-1] == Finished("stop", word)


@pytest.mark.parametrize("verbose", [{"stopping_word": "END"}, {"stopping_word": ""}, "x", None])
def test_the_word_that_llama_cpp_tells_when_it_is_verbose(verbose: Any) -> None:
    last = payload({}, "stop", __verbose=verbose)
    word = "END" if isinstance(verbose, dict) and verbose["stopping_word"] else ""
    assert read(payload({"content": "x"}), last)[-1] == Finished("stop", word)
