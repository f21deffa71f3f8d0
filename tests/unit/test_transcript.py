"""What was asked and answered, read from what went by: of every API, whole and in pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.watching.transcript import MOST_BYTES, MOST_TEXT, Transcript

STREAM, JSON = b"text/event-stream; charset=utf-8", b"application/json"


def heard(kind: bytes, *bodies: bytes) -> str | None:
    transcript = Transcript()
    transcript.send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
    for body in bodies:
        transcript.send({"type": "http.response.body", "body": body, "more_body": True})
    transcript.send({"type": "http.response.body"})
    return transcript.answer()


def events(*said: Any) -> bytes:
    return (
        b": ping\n\n" + b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in said) + b"data: [DONE]\n\n"
    )


def chunk(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


STREAMS = {
    "chat": events(chunk(role="assistant"), chunk(content="It is "), chunk(reasoning="hm"), chunk(content="blue.")),
    "completions": events({"choices": [{"text": "It is "}]}, {"choices": [{"text": "blue."}]}),
    "responses": events(
        {"type": "response.created"},
        {"type": "response.output_text.delta", "delta": "It is "},
        {"type": "response.function_call_arguments.delta", "delta": "{}"},
        {"type": "response.output_text.delta", "delta": "blue."},
        {"type": "response.output_text.done", "text": "It is blue."},
        {"type": "groundwire.step", "step": {}},
    ),
    "messages": events(
        {"type": "message_start", "message": {"content": []}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "It is "}},
        {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "blue."}},
    ),
}
WHOLE: dict[str, Any] = {
    "chat": {"choices": [{"message": {"role": "assistant", "content": "It is blue."}}]},
    "completions": {"choices": [{"text": "It is blue."}]},
    "responses": {
        "object": "response",
        "output": [
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "message", "content": [{"type": "output_text", "text": "It is blue."}]},
        ],
    },
    "messages": {
        "type": "message",
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "It is blue."}],
    },
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream(name: str) -> None:
    raw = STREAMS[name]
    assert heard(STREAM, raw) == "It is blue."
    assert heard(STREAM, *(raw[at : at + 1] for at in range(len(raw)))) == "It is blue."


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_answer(name: str) -> None:
    assert heard(JSON, json.dumps(WHOLE[name]).encode()) == "It is blue."


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"error": {"message": "no"}}',
        b'{"choices": []}',
        b'{"choices": [{"message": null}]}',
    ],
)
def test_what_is_no_answer(body: bytes) -> None:
    assert heard(JSON, body) is None
    assert heard(STREAM, b"data: " + body + b"\n\n") is None


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["message", "text", "response.output_text.delta"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "choices", "delta", "message", "content", "output", "text"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(JSONS)
def test_anything(said: Any) -> None:
    raw = json.dumps(said).encode()
    assert isinstance(heard(JSON, raw), str | None)
    assert isinstance(heard(STREAM, b"data: " + raw + b"\n\n"), str | None)


def test_the_question_is_what_the_user_said_last() -> None:
    transcript = Transcript()
    assert transcript.question() is None
    said = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Old."},
        {"role": "assistant", "content": "So."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "New,"}, {"type": "image_url"}, {"type": "text", "text": "really?"}],
        },
        {"role": "tool", "content": "a result"},
    ]
    transcript.ask(said, ())
    assert transcript.question() == "New,\nreally?"


def test_the_callers_own_key_is_in_neither() -> None:
    transcript, key = Transcript(), "sk-1234567890abcdef"
    transcript.ask([{"role": "user", "content": f"Is {key} a key?"}], (key,))
    transcript.send({"type": "http.response.start", "headers": []})
    transcript.send(
        {"type": "http.response.body", "body": json.dumps({"choices": [{"text": f"Yes, {key}."}]}).encode()}
    )
    assert (transcript.question(), transcript.answer()) == ("Is *** a key?", "Yes, ***.")


def test_there_is_an_end_to_it() -> None:
    transcript = Transcript()
    transcript.ask([{"role": "user", "content": "x" * (MOST_TEXT + 1)}], ())
    assert transcript.question() == "x" * MOST_TEXT + "…"
    for _ in range(20):
        transcript.send({"type": "http.response.body", "body": b"x" * (1 << 20)})
    assert MOST_BYTES <= transcript.size <= MOST_BYTES + (1 << 20), "an answer is cut at a piece of it"


def test_an_event_without_an_end_is_no_answer_and_no_fault() -> None:
    """Whoever passes on bytes passes on this too."""
    assert heard(STREAM, *[b"x" * 99_999] * (MOST_BYTES // 99_999 + 2)) is None
