"""Answers of a server that speaks Messages itself, on their way out as bytes: frames stay whole, pings stand between
them, nothing is cut off silently, and what it cost is counted. The clock leaps, so the seconds are exact.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.messages.dialect import MessagesDialect
from proxy.serving.message_frames import LONGEST_EVENT, MessageFrames
from proxy.store.store import MemoryStore
from proxy.upstreams.transport import Broken
from proxy.values.errors import truncated
from proxy.values.sse import PING_EVENT
from proxy.watching.steps import FirstContent, Forwarded, ModelFailed, Tokens
from tests.fakes.forwarding import DOWN, KEY, Scripted, cancelled, forwarded, reply
from tests.unit.messages_scripts import gathered, payloads, text_of


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "stop_reason": None}
COUNTED = {"input_tokens": 3, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 5, "output_tokens": 1}
START = event("message_start", message={**MESSAGE, "usage": COUNTED})
BLOCK = event("content_block_start", index=0, content_block={"type": "text", "text": ""})
TEXT = 'He said "message_stop", "error" and\n\nevent: error\n\n'
HELLO = event("content_block_delta", index=0, delta={"type": "text_delta", "text": TEXT})
CLOSE = event("content_block_stop", index=0)
DELTA = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 7})
STOP = event("message_stop")
ANSWER = START + BLOCK + HELLO + CLOSE + DELTA + STOP
ERROR = event("error", error={"type": "overloaded_error", "message": "busy"})
WHOLE = json.dumps({**MESSAGE, "content": [{"type": "text", "text": "Hi"}], "usage": COUNTED}).encode()
CUT = Broken(truncated())


def passed(*replies: Scripted, **more: Any) -> Any:
    return forwarded(*replies, path="/messages?beta=true", dialect=MessagesDialect(MemoryStore()), **more)


def sent(made: Any) -> list[bytes]:
    return [data for _, data in made.wire.frames]


def error_of(data: bytes) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(data.removeprefix(b"event: error\ndata: "))
    assert said["type"] == "error"
    error: dict[str, Any] = said["error"]
    return error


# As it should be


def test_a_stream_goes_out_as_it_comes() -> None:
    made = passed(reply(1.0, START, 2.0, BLOCK + HELLO, 3.0, CLOSE + DELTA, STOP))
    assert made.wire.frames == [(1.0, START), (3.0, BLOCK + HELLO), (6.0, CLOSE + DELTA), (6.0, STOP)]
    assert made.wire.headers == {
        "content-type": "text/event-stream",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
        **DOWN,
    }
    assert made.observer.outcome == "ok"
    (step,) = made.steps(Forwarded)
    assert (step.status, step.operation, step.tokens) == (200, "chat", Tokens(48, 7, 40))
    assert len(made.steps(FirstContent)) == 1


@given(st.lists(st.integers(1, len(ANSWER) - 1), max_size=8), st.sampled_from([b"\n", b"\r\n"]))
def test_however_it_is_cut_only_whole_events_leave(cuts: list[int], line_end: bytes) -> None:
    answer = ANSWER.replace(b"\n", line_end)
    places = sorted({0, *cuts, len(answer)})
    frames = MessageFrames()
    out = [frames.feed(answer[a:b]) for a, b in pairwise(places)]
    assert b"".join(out) == answer
    assert all(piece.endswith(line_end + line_end) for piece in out if piece)
    assert (frames.done, frames.failed, frames.usage) == (True, None, {**COUNTED, "output_tokens": 7})


@pytest.mark.parametrize("last", [STOP[:-1], STOP[:-2], STOP[:-2] + b"\r\r", STOP[:-2] + b"\r\n\r"])
def test_a_last_event_without_its_blank_line(last: bytes) -> None:
    made = passed(reply(ANSWER.removesuffix(STOP), last))
    assert b"".join(sent(made)) == ANSWER
    assert made.observer.outcome == "ok"


def test_many_empty_lines_before_an_event_cost_nothing() -> None:
    frames = MessageFrames()
    frames.feed(b"\n" * 100_001 + b"x: y\n\n")
    assert frames.begun


def test_a_long_answer_is_counted_whole() -> None:
    made = passed(reply(START, BLOCK, *[HELLO] * 300, CLOSE, DELTA, STOP))
    assert made.steps(Forwarded)[0].tokens == Tokens(48, 7, 40)


def test_a_whole_answer_is_counted_too() -> None:
    made = passed(reply(WHOLE, kind="application/json"), stream=False)
    assert b"".join(made.wire.bodies) == WHOLE
    assert made.steps(Forwarded)[0].tokens == Tokens(48, 1, 40)


# Pings


def test_silence_is_filled_with_pings() -> None:
    made = passed(reply(7.0, START, 25.0, BLOCK + HELLO, 5.0, CLOSE + DELTA + STOP, awaited=40.0))
    assert [at for at, data in made.wire.frames if data == PING_EVENT] == [15.0, 25.0, 35.0, 45.0, 57.0, 67.0]
    assert text_of(gathered(payloads(b"".join(sent(made))))) == TEXT


def test_pings_stand_between_events() -> None:
    made = passed(reply(START + BLOCK[:30], 25.0, BLOCK[30:] + HELLO, 25.0, CLOSE + DELTA + STOP))
    assert sent(made) == [START, *[PING_EVENT] * 2, BLOCK + HELLO, *[PING_EVENT] * 2, CLOSE + DELTA + STOP]


def test_who_keeps_its_own_stream_alive_needs_none_of_ours() -> None:
    theirs = event("ping")
    made = passed(reply(START, 9.0, theirs, 9.0, theirs, 9.0, BLOCK + HELLO + CLOSE + DELTA + STOP))
    assert sent(made).count(PING_EVENT) == 0
    assert sent(made).count(theirs) == 2


# What is no answer


def test_an_error_as_the_first_event_has_its_own_status() -> None:
    made = passed(reply(event("ping"), 1.0, ERROR))
    assert (made.wire.status, json.loads(made.wire.body)["error"]["type"]) == (529, "overloaded_error")
    assert [step.status for step in made.steps(ModelFailed)] == [503]


def test_behind_a_ping_and_behind_content_it_is_an_event() -> None:
    assert error_of(sent(passed(reply(ERROR, awaited=16.0)))[1])["type"] == "overloaded_error"
    made = passed(reply(START, BLOCK + HELLO, 1.0, ERROR, HELLO))
    assert sent(made) == [START, BLOCK + HELLO, ERROR]
    assert made.observer.outcome != "ok"


def test_in_one_read_with_content_it_comes_behind_it() -> None:
    assert b"".join(sent(passed(reply(START + BLOCK + HELLO + ERROR + HELLO)))) == START + BLOCK + HELLO + ERROR


def test_a_key_that_an_error_repeats_is_not_passed_on() -> None:
    made = passed(reply(START, ERROR.replace(b"busy", b"busy " + KEY.encode())))
    assert sent(made)[-1] == ERROR.replace(b"busy", b"busy ***")


@pytest.mark.parametrize("steps", [[START, BLOCK, HELLO], [START, BLOCK, HELLO, CUT], [START, BLOCK, HELLO[:30], CUT]])
def test_what_breaks_off_says_so(steps: list[Any]) -> None:
    made = passed(reply(*steps))
    *frames, last = sent(made)
    assert b"".join(frames) == START + BLOCK + (HELLO if HELLO in steps else b"")
    assert error_of(last)["code"] == "upstream_truncated"
    assert made.observer.outcome == "upstream_truncated"


@pytest.mark.parametrize("steps", [[], [CUT], [b": hm\n\n"], [event("ping")], [START[:20]]])
def test_what_never_began_has_a_status(steps: list[Any]) -> None:
    made = passed(reply(*steps))
    assert made.wire.status == 502
    assert json.loads(made.wire.body)["type"] == "error"


def test_an_event_without_end() -> None:
    made = passed(reply(START, b"event: content_block_delta\ndata: " + b"x" * LONGEST_EVENT, b"x"))
    assert error_of(sent(made)[-1])["code"] == "upstream_bad_response"


def test_one_body_where_a_stream_was_asked_for() -> None:
    made = passed(reply(WHOLE, kind="application/json"))
    assert b"".join(made.wire.bodies) == WHOLE
    late = passed(reply(WHOLE, kind="application/json", awaited=20.0))
    assert error_of(sent(late)[-1])["code"] == "upstream_bad_response"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "said", [{"error": {"message": "no", "type": "x", "code": None}}, {"detail": "Not Found"}, ["no"], "no"]
)
def test_refusals_of_another_shape_are_dressed(said: Any, stream: bool) -> None:
    made = passed(Scripted([json.dumps(said).encode()], 404, {"content-type": "application/json"}), stream=stream)
    body = json.loads(made.wire.body)
    assert (made.wire.status, body["type"], body["error"]["type"]) == (404, "error", "not_found_error")


@pytest.mark.parametrize("stream", [True, False])
def test_refusals_in_its_own_words_pass(stream: bool) -> None:
    said = b'{"type": "error", "error": {"type": "invalid_request_error", "message": "too long"}, "request_id": "r"}'
    made = passed(Scripted([said], 400, {"content-type": "application/json"}), stream=stream)
    assert (made.wire.status, made.wire.body) == (400, said)


def test_who_leaves_ends_it() -> None:
    made = cancelled(reply(START, 100.0, STOP), after=50.0, path="/messages", dialect=MessagesDialect(MemoryStore()))
    assert made.wire.bodies[0] == START
    assert STOP not in made.wire.bodies
