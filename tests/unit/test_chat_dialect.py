"""Events → Chat Completions, streamed and folded. The rules that real clients break on are each a test here."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.dialects.chat import ChatWriter
from proxy.values.events import (
    Begun,
    Citation,
    Event,
    Failed,
    Finished,
    Proof,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    ToolStarted,
    UsageSeen,
)
from proxy.values.request import ChatRequest
from proxy.values.sse import SSEDecoder
from tools.ledger import Source

SKY = Source(1, "https://sky.example/a", "Sky", "Why it is blue", "2026-05-01")
SEA = Source(2, "https://sea.example/b", "Sea")
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
SKY_FOUND = {"title": "Sky", "url": "https://sky.example/a", "date": "2026-05-01", "snippet": "Why it is blue"}
ANSWER: list[Event] = [
    Begun("up-model", {"system_fingerprint": "fp"}),
    ReasoningDelta({"reasoning_content": "Let me "}),
    ReasoningDelta({"reasoning_content": "think"}),
    ToolStarted("x", "web_search", {"query": "sky"}),
    ToolFinished("x", "web_search", True, "p", (SKY, SEA)),
    TextDelta("Blue 😀 "),
    TextDelta("[[1]](https://sky.example/a)"),
    Citation(7, 35, SKY),
    TextDelta("."),
    UsageSeen(USAGE),
    Finished("stop"),
]


def request(*, usage: bool = False) -> ChatRequest:
    return ChatRequest({}, b"", "asked-model", stream=True, include_usage=usage)


def stream(events: list[Event], *, usage: bool = False, progress: bool = False, pieces: bool = False) -> list[Any]:
    encoder = ChatWriter(request(usage=usage), progress=progress)
    data = b"".join(encoder.feed([e]) for e in events) if pieces else encoder.feed(events)
    decoder = SSEDecoder()
    payloads = decoder.feed(data)
    assert decoder.flush() == [], "every event ends with a blank line"
    return [p.decode() if p == b"[DONE]" else json.loads(p) for p in payloads]


def deltas(chunks: list[Any]) -> list[dict[str, Any]]:
    return [chunk["choices"][0]["delta"] for chunk in chunks if chunk != "[DONE]" and chunk["choices"]]


def test_one_id_one_role_one_finish_one_done() -> None:
    chunks = stream(ANSWER)
    assert chunks[-1] == "[DONE]"
    assert chunks.count("[DONE]") == 1
    bodies = chunks[:-1]
    for key in ("id", "created", "model", "object", "system_fingerprint"):
        assert len({str(chunk[key]) for chunk in bodies}) == 1
    assert bodies[0]["model"] == "up-model"
    assert bodies[0]["object"] == "chat.completion.chunk"
    assert deltas(chunks)[0] == {"role": "assistant", "content": "", "refusal": None}
    assert [d for d in deltas(chunks) if "role" in d] == [deltas(chunks)[0]]
    assert [c["choices"][0]["finish_reason"] for c in bodies] == [None] * (len(bodies) - 1) + ["stop"]


def test_all_annotations_once_on_the_finishing_chunk() -> None:
    chunks = stream(ANSWER)
    assert [d for d in deltas(chunks) if "annotations" in d] == [deltas(chunks)[-1]]
    assert deltas(chunks)[-1]["annotations"] == [
        {
            "type": "url_citation",
            "url_citation": {"start_index": 7, "end_index": 35, "url": "https://sky.example/a", "title": "Sky"},
        }
    ]
    text = "".join(d.get("content", "") for d in deltas(chunks))
    assert text[7:35] == "[[1]](https://sky.example/a)"
    assert chunks[-2]["search_results"] == [
        {**SKY_FOUND, "basis": "snippet"},
        {"title": "Sea", "url": "https://sea.example/b", "date": None, "snippet": "", "basis": "snippet"},
    ]


PROVED = Citation(7, 35, SKY, Proof("Air makes it blue.", "page", ("1871",)), auto=True)
PROOF = {"cited_text": "Air makes it blue.", "basis": "page"}


def test_the_proof_of_a_citation() -> None:
    events = [PROVED if isinstance(event, Citation) else event for event in ANSWER]
    for whole in (stream(events)[-2], json.loads(ChatWriter(request()).fold(events))):
        said = whole["choices"][0].get("delta") or whole["choices"][0]["message"]
        place = said["annotations"][0]["url_citation"]
        assert {key: place[key] for key in place if key not in ("start_index", "end_index", "url", "title")} == {
            **PROOF,
            "auto": True,
            "unmatched": ["1871"],
        }
        assert whole["search_results"][0] == {**SKY_FOUND, **PROOF, "basis": "snippet"}, "as it was last given"


def test_nothing_about_our_tools_leaks() -> None:
    assert "web_search" not in json.dumps(stream(ANSWER))


def test_the_usage_chunk_only_if_asked() -> None:
    assert not any("usage" in chunk for chunk in stream(ANSWER)[:-1])
    chunks = stream(ANSWER, usage=True)
    assert [c["usage"] for c in chunks[:-1]] == [None] * (len(chunks) - 2) + [USAGE]
    assert chunks[-2]["choices"] == []


def test_fed_in_pieces_it_is_the_same() -> None:
    def plain(chunks: list[Any]) -> list[Any]:
        return [c if c == "[DONE]" else {k: v for k, v in c.items() if k not in ("id", "created")} for c in chunks]

    assert plain(stream(ANSWER, usage=True)) == plain(stream(ANSWER, usage=True, pieces=True))


@given(
    st.lists(
        st.text(st.sampled_from([",", '"', "\\", "a", "\n", "😀"]), min_size=1, max_size=4), min_size=2, max_size=6
    )
)
@example([",", "a"])
@example(["a", ",", ","])
def test_pieces_that_came_together_stay_apart(pieces: list[str]) -> None:
    events: list[Event] = [Begun("m"), TextDelta("".join(pieces), tuple(pieces)), Finished("stop")]
    assert [d["content"] for d in deltas(stream(events)) if d.get("content")] == pieces


def test_one_content_event_in_is_one_out() -> None:
    contents = [d["content"] for d in deltas(stream(ANSWER)) if d.get("content")]
    assert contents == [e.text for e in ANSWER if isinstance(e, TextDelta)]


def test_progress_as_reasoning_if_wanted() -> None:
    assert {"reasoning_content": "Searching the web: sky\n"} in deltas(stream(ANSWER, progress=True))
    assert len(stream(ANSWER, progress=True)) == len(stream(ANSWER)) + 1


def test_client_calls() -> None:
    signature = {"extra_content": {"google": {"thought_signature": "s"}}}
    events: list[Event] = [
        Begun("m"),
        ToolCallDelta(0, "a", "f", '{"x"', signature),
        ToolCallDelta(0, arguments=":1}"),
        ToolCallDelta(1, "b", "g", "{}"),
        UsageSeen({}),
        Finished("tool_calls"),
    ]
    parts = [d["tool_calls"][0] for d in deltas(stream(events)) if "tool_calls" in d]
    assert parts == [
        {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x"'}, **signature},
        {"index": 0, "function": {"arguments": ":1}"}},
        {"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]
    message = json.loads(ChatWriter(request()).fold(events))["choices"][0]["message"]
    assert message["content"] is None
    assert message["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}, **signature},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]


def test_a_later_failure_is_one_bare_error_event() -> None:
    error = {"message": "gone", "type": "server_error", "param": None, "code": "upstream_truncated"}
    chunks = stream([Begun("m"), TextDelta("Hal"), Failed(502, error)])
    assert chunks[-1] == {"error": error}
    assert "[DONE]" not in chunks


def test_fold_says_the_same_as_the_stream() -> None:
    body = json.loads(ChatWriter(request()).fold(ANSWER))
    chunks = stream(ANSWER, usage=True)
    choice = body["choices"][0]
    assert body["object"] == "chat.completion"
    assert (body["model"], body["system_fingerprint"]) == ("up-model", "fp")
    assert choice["message"] == {
        "role": "assistant",
        "content": "".join(d.get("content", "") for d in deltas(chunks)),
        "refusal": None,
        "reasoning_content": "Let me think",
        "annotations": deltas(chunks)[-1]["annotations"],
    }
    assert choice["finish_reason"] == "stop"
    assert body["usage"] == USAGE
    assert body["search_results"] == chunks[-3]["search_results"]


@pytest.mark.parametrize("text", ["", "x\u2028y", 'quote " \\ \n', "\x7f\x00"])
def test_any_text_survives(text: str) -> None:
    events: list[Event] = [Begun("m"), TextDelta(text), UsageSeen({}), Finished("stop")]
    assert "".join(d.get("content", "") for d in deltas(stream(events))) == text
    assert json.loads(ChatWriter(request()).fold(events))["choices"][0]["message"]["content"] == text


def test_an_empty_answer_has_empty_content_and_no_annotations() -> None:
    body = ChatWriter(request()).fold([Begun("m"), UsageSeen({}), Finished("stop")])
    message = json.loads(body)["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "", "refusal": None}
