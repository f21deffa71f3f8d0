"""How forwarded answers leave: what is sent and when, whatever the upstream and the client do. The clock leaps, so the
seconds are exact.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.upstreams.failures import timed_out
from proxy.upstreams.transport import Broken
from proxy.values.sse import DONE, PING
from proxy.watching.steps import FirstContent, Forwarded, ModelFailed, Tokens
from tests.fakes.forwarding import (
    ANSWER,
    CUT,
    DOWN,
    ERROR,
    FINISH,
    HELLO,
    JSON,
    KEY,
    ROLE,
    USAGE,
    WHOLE,
    ScriptedUpstream,
    body,
    cancelled,
    error,
    forwarded,
    forwarded_by,
    reply,
)

# As it should be


def test_a_stream_goes_out_as_it_comes() -> None:
    made = forwarded(reply(1.0, ROLE, 2.0, HELLO, 3.0, FINISH + USAGE, DONE))
    assert made.wire.frames == [(1.0, ROLE), (3.0, HELLO), (6.0, FINISH + USAGE), (6.0, DONE)]
    assert made.wire.headers == {
        "content-type": "text/event-stream",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
        **DOWN,
    }
    assert made.observer.outcome == "ok"
    (step,) = made.steps(Forwarded)
    assert (step.status, step.operation, step.tokens) == (200, "chat", Tokens(3, 2))
    assert len(made.steps(FirstContent)) == 1


def test_one_send_for_each_network_read() -> None:
    assert forwarded(reply(ANSWER)).wire.bodies == [ANSWER, b""]


def test_half_an_event_waits_for_the_rest() -> None:
    made = forwarded(reply(ROLE + HELLO[:20], 5.0, HELLO[20:] + FINISH[:3], 5.0, FINISH[3:] + DONE))
    assert made.wire.frames == [(0.0, ROLE), (5.0, HELLO), (10.0, FINISH + DONE)]


def test_a_whole_answer_goes_out_as_it_is() -> None:
    made = forwarded(reply(1.0, JSON[:20], 1.0, JSON[20:], kind="application/json"), stream=False)
    assert (made.wire.status, made.wire.body) == (200, JSON)
    (step,) = made.steps(Forwarded)
    assert step.tokens == Tokens(3, 2)


def test_a_long_one_goes_out_in_pieces_and_only_as_fast_as_it_is_taken() -> None:
    long = json.dumps({**WHOLE, "padding": "x" * 10_000_000}).encode()
    pieces = [long[at : at + 65_536] for at in range(0, len(long), 65_536)]
    upstream = ScriptedUpstream(reply(*pieces, kind="application/json"))
    made = forwarded_by(upstream, stream=False, slow=1.0)
    assert body(made) == long
    assert max(map(len, made.wire.bodies)) < 200_000
    half = cancelled(reply(*pieces, kind="application/json"), after=10.0, stream=False, slow=1.0)
    assert half.upstreams[0].read < 1_000_000


# Pings


def test_silence_is_filled_with_pings() -> None:
    made = forwarded(reply(7.0, ROLE, 25.0, HELLO, 5.0, FINISH + DONE, awaited=40.0))
    assert [at for at, sent in made.wire.frames if sent == PING] == [15.0, 25.0, 35.0, 45.0, 57.0, 67.0]
    assert [at for at, sent in made.wire.frames if sent != PING] == [47.0, 72.0, 77.0]
    assert body(made).replace(PING, b"") == ROLE + HELLO + FINISH + DONE


def test_pings_stand_between_events() -> None:
    made = forwarded(reply(ROLE + HELLO[:20], 25.0, HELLO[20:], 25.0, FINISH + DONE))
    assert [sent for _, sent in made.wire.frames] == [ROLE, PING, PING, HELLO, PING, PING, FINISH + DONE]


def test_no_ping_into_a_whole_answer_or_other_bytes() -> None:
    assert forwarded(reply(100.0, JSON, kind="application/json"), stream=False).wire.body == JSON
    other = forwarded(reply(b"RIFF", 100.0, b"sound", kind="audio/wav"), stream=False, path="/audio/speech")
    assert other.wire.bodies == [b"RIFF", b"sound", b""]


# What is no answer


def test_an_error_as_the_first_event_has_its_own_status() -> None:
    made = forwarded(reply(b": hm\n\n", 1.0, b'data: {"error":{"message":"no","code":400}}\n\n'))
    assert (made.wire.status, made.wire.headers["content-type"]) == (400, "application/json")
    assert json.loads(made.wire.body)["error"]["message"] == "no"
    assert [step.status for step in made.steps(ModelFailed)] == [400]
    assert made.observer.outcome == "http_400"


def test_behind_a_ping_it_is_an_event() -> None:
    made = forwarded(reply(ERROR, awaited=16.0))
    assert [at for at, _ in made.wire.frames] == [15.0, 16.0]
    assert error(made.wire.bodies[1])["code"] == "overloaded"
    assert made.observer.outcome == "overloaded"


def test_so_it_is_behind_content() -> None:
    made = forwarded(reply(ROLE, 1.0, HELLO, 1.0, ERROR, HELLO, DONE))
    assert [sent for _, sent in made.wire.frames] == [ROLE, HELLO, ERROR]
    assert made.observer.outcome == "overloaded"
    assert [step.status for step in made.steps(ModelFailed)] == [502]


def test_even_in_one_read_with_it() -> None:
    assert [sent for _, sent in forwarded(reply(ROLE + HELLO + ERROR)).wire.frames] == [ROLE + HELLO, ERROR]


def test_a_key_that_an_event_repeats_is_not_passed_on() -> None:
    leaky = ERROR.replace(b"busy", b"busy " + KEY.encode())
    made = forwarded(reply(ROLE, HELLO, leaky))
    assert made.wire.bodies[-2] == ERROR.replace(b"busy", b"busy ***")


def test_an_error_of_another_shape_is_dressed() -> None:
    made = forwarded(reply(ROLE, HELLO, b'data: {"object":"error","message":"no"}\n\n'))
    assert error(made.wire.bodies[-2]) == {"message": "no", "type": "server_error", "param": None, "code": None}
    assert made.observer.outcome == "upstream_error"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"<html>", "upstream_bad_response"),
        (b"\n <?xml", "upstream_bad_response"),
        (b"{oops", "upstream_bad_response"),
        (b"", "upstream_truncated"),
        (b"  \n", "upstream_truncated"),
        (b"Bad gateway", "upstream_truncated"),
        (b": hm\n\n", "upstream_truncated"),
        (DONE, "upstream_truncated"),
        (b"data: oops\n\n", "upstream_bad_response"),
    ],
)
def test_answers_that_are_none(sent: bytes, code: str, stream: bool) -> None:
    made = forwarded(reply(*([sent] if sent else [])), stream=stream)
    assert made.wire.status == 502
    assert json.loads(made.wire.body)["error"]["code"] == code
    assert made.observer.outcome == code


def test_bytes_that_drip_are_put_together_before_they_are_judged() -> None:
    drops = [b" ", b"\n", *(JSON[at : at + 1] for at in range(len(JSON)))]
    assert forwarded(reply(*drops, kind="text/plain"), stream=False).wire.body == b" \n" + JSON


# Another form than was asked for


def test_one_body_where_a_stream_was_asked_for() -> None:
    made = forwarded(reply(JSON, kind="application/json"))
    sent = body(made)
    assert sent.endswith(b"\n\n" + DONE)
    chunk = json.loads(sent.removesuffix(DONE).removeprefix(b"data: "))
    assert chunk["object"] == "chat.completion.chunk"
    choice = {"index": 0, "delta": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}
    assert chunk["choices"] == [choice]
    assert made.wire.headers["content-type"].startswith("text/event-stream")
    assert made.steps(Forwarded)[0].tokens == Tokens(3, 2)


def test_its_calls_are_numbered_and_nothing_is_lost() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = {"role": "assistant", "content": None, "tool_calls": [call, call]}
    choices = [
        {"index": n, "message": said, "logprobs": {"content": []}, "finish_reason": "tool_calls"} for n in range(2)
    ]
    made = forwarded(reply(json.dumps({"id": "x", "choices": choices}).encode()))
    chunk = json.loads(body(made).removesuffix(DONE).removeprefix(b"data: "))
    assert [choice["index"] for choice in chunk["choices"]] == [0, 1]
    assert [c["index"] for c in chunk["choices"][1]["delta"]["tool_calls"]] == [0, 1]
    assert chunk["choices"][0]["logprobs"] == {"content": []}
    assert chunk["id"] == "x"


def test_one_of_plain_completions_too() -> None:
    whole = {"object": "text_completion", "choices": [{"index": 0, "text": "Hi", "finish_reason": "stop"}]}
    made = forwarded(reply(json.dumps(whole).encode()), path="/completions")
    assert json.loads(body(made).removesuffix(DONE).removeprefix(b"data: ")) == whole


@pytest.mark.parametrize("odd", [b"[]", b'"x"', b"{}", b'{"choices":[{}]}', b'{"choices":"x"}'])
def test_one_that_is_no_answer_is_no_stream(odd: bytes) -> None:
    made = forwarded(reply(odd, kind="application/json"))
    assert (made.wire.status, json.loads(made.wire.body)["error"]["code"]) == (502, "upstream_truncated")


def test_a_stream_where_one_body_was_asked_for() -> None:
    made = forwarded(reply(ROLE + HELLO[:30], HELLO[30:], FINISH + USAGE, DONE, HELLO), stream=False)
    answer = json.loads(made.wire.body)
    assert answer["choices"][0]["message"]["content"] == "Hello"
    assert answer["usage"]["completion_tokens"] == 2
    assert made.steps(Forwarded)[0].tokens == Tokens(3, 2)


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ((ROLE, HELLO), "upstream_truncated"),
        ((ROLE, HELLO, CUT), "upstream_truncated"),
        ((ROLE, HELLO, ERROR), "overloaded"),
        ((ROLE, b"data: " + b"x" * 2_000_000), "upstream_bad_response"),
        ((ROLE, *[HELLO * 10_000] * 50), "upstream_bad_response"),
    ],
)
def test_one_that_fails_has_its_status(steps: Any, code: str) -> None:
    made = forwarded(reply(*steps), stream=False)
    assert (made.wire.status, json.loads(made.wire.body)["error"]["code"]) == (502, code)
    assert made.upstreams[0].read < 40_000_000


def test_one_that_events_cannot_tell_is_refused() -> None:
    made = forwarded(reply(ANSWER), stream=False, writer=False)
    assert (made.wire.status, json.loads(made.wire.body)["error"]["code"]) == (502, "upstream_bad_response")


# The end


def test_done_is_added() -> None:
    made = forwarded(reply(ROLE, HELLO, FINISH))
    assert body(made) == ROLE + HELLO + FINISH + DONE
    assert made.observer.outcome == "ok"


def test_a_break_behind_the_finish_is_no_loss() -> None:
    made = forwarded(reply(ROLE, HELLO, FINISH, CUT))
    assert body(made) == ROLE + HELLO + FINISH + DONE


@pytest.mark.parametrize(("end", "code"), [((), "upstream_truncated"), ((Broken(timed_out("x")),), "upstream_timeout")])
def test_without_an_end_it_ends_in_an_error(end: Any, code: str) -> None:
    made = forwarded(reply(ROLE, HELLO, *end))
    assert error(made.wire.bodies[-2])["code"] == code
    assert DONE not in body(made)
    assert made.observer.outcome == code
    assert [step.code for step in made.steps(ModelFailed)] == [code]


def test_nothing_leaves_behind_done_and_nobody_waits_for_more() -> None:
    made = forwarded(reply(ANSWER + HELLO, 60.0, HELLO))
    assert body(made) == ANSWER
    assert made.wire.times[-1] == 0.05
    assert made.observer.outcome == "ok"


def test_a_body_that_breaks_off_before_its_first_byte_is_refused() -> None:
    for path in ("/chat/completions", "/embeddings"):
        made = forwarded(reply(CUT, kind="application/json"), stream=False, path=path)
        assert (made.wire.status, json.loads(made.wire.body)["error"]["code"]) == (502, "upstream_truncated")


def test_one_that_breaks_off_later_is_left_without_an_end() -> None:
    made = forwarded(reply(b'{"data":[', CUT, kind="application/json"), stream=False, path="/embeddings")
    assert [message.get("more_body") for message in made.wire.sent[1:]] == [True]
    assert made.observer.outcome == "upstream_truncated"


def test_other_streams_end_in_an_error_event() -> None:
    made = forwarded(reply(b"data: half", CUT), stream=False, path="/audio/speech")
    assert made.wire.bodies[0] == b"data: half"
    assert error(made.wire.bodies[1].removeprefix(b"\n\n"))["code"] == "upstream_truncated"


@pytest.mark.parametrize("body", [b"", b"{}", b"\x00\xff"])
def test_other_bytes_pass_as_they_are(body: bytes) -> None:
    made = forwarded(reply(*([body] if body else []), kind="application/octet-stream"), stream=False, path="/x")
    assert b"".join(made.wire.bodies) == body
    assert made.wire.headers["content-type"] == "application/octet-stream"


# Statuses


def test_an_error_in_openais_shape_passes_as_it_is() -> None:
    said = b'{ "error": {"message": "no", "more": 1} }'
    made = forwarded(reply(said, status=422, kind="application/json"), stream=False)
    assert (made.wire.status, made.wire.body) == (422, said)


@pytest.mark.parametrize("said", [b"<html>busy</html>", b'{"detail":"busy"}', b"x" * 300_000])
def test_any_other_is_dressed(said: bytes) -> None:
    made = forwarded(reply(said, status=503, kind="text/html"))
    assert (made.wire.status, made.wire.headers["content-type"]) == (503, "application/json")
    assert set(json.loads(made.wire.body)["error"]) == {"message", "type", "param", "code"}
    assert made.observer.outcome == "http_503"


def test_not_where_the_answers_are_not_known() -> None:
    made = forwarded(reply(b"<html>busy</html>", status=503, kind="text/html"), stream=False, path="/embeddings")
    assert (made.wire.status, made.wire.bodies, made.wire.headers["content-type"]) == (
        503,
        [b"<html>busy</html>"],
        "text/html",
    )


def test_one_that_breaks_off_keeps_its_status() -> None:
    made = forwarded(reply(b'{"err', CUT, status=429, kind="application/json"))
    assert (made.wire.status, json.loads(made.wire.body)["error"]["type"]) == (429, "invalid_request_error")


def test_an_endless_one_is_read_no_further_than_it_takes() -> None:
    made = forwarded(reply(*[b"x" * 65_536] * 1000, status=500, kind="text/html"))
    assert made.upstreams[0].read < 400_000


# Another upstream


@pytest.mark.parametrize(
    "bad",
    [
        reply(b'{"error":{"message":"busy"}}', status=503),
        reply(b"<html>"),
        reply(ERROR),
        reply(ROLE + ERROR),
        reply(b'{"error":{"message":"busy","code":500}}', kind="application/json"),
        reply(),
        reply(CUT),
        reply(b": hm\n\n", CUT),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_what_has_said_nothing_is_stood_in_for(bad: Any, stream: bool) -> None:
    good = reply(ANSWER) if stream else reply(JSON, kind="application/json")
    made = forwarded_by(ScriptedUpstream(bad), ScriptedUpstream(good), stream=stream)
    assert body(made) == (ANSWER if stream else JSON)
    assert len(made.steps(ModelFailed)) == 1
    assert made.observer.outcome == ("ok" if stream else ""), "nobody calls it a failure"


def test_it_goes_on_in_a_stream_that_has_only_pinged() -> None:
    first = ScriptedUpstream(reply(ERROR, awaited=16.0))
    made = forwarded_by(first, ScriptedUpstream(reply(ANSWER, awaited=16.0)))
    assert made.wire.frames == [(15.0, PING), (25.0, PING), (32.0, ANSWER)]


def test_the_headers_are_those_of_who_answered() -> None:
    limits = {"content-type": "text/event-stream", "x-ratelimit-remaining-requests": "0"}
    first = ScriptedUpstream(type(reply())([ERROR], headers=limits))
    made = forwarded_by(first, ScriptedUpstream(reply(ANSWER)))
    assert "x-ratelimit-remaining-requests" not in made.wire.headers


def test_nobody_stands_in_once_something_was_said() -> None:
    second = ScriptedUpstream(reply(ANSWER))
    made = forwarded_by(ScriptedUpstream(reply(ROLE, HELLO, CUT)), second)
    assert error(made.wire.bodies[-2])["code"] == "upstream_truncated"
    assert second.asked == 0


# A timeout that is not ours


@pytest.mark.parametrize("steps", [[1.0], [1.0, ROLE + HELLO]], ids=["before", "in the middle"])
@pytest.mark.parametrize("path", ["/chat/completions", "/embeddings"])
def test_a_timeout_that_is_not_ours_is_the_edges_affair(steps: list[bytes | float], path: str) -> None:
    with pytest.raises(TimeoutError, match="a socket's"):
        forwarded(reply(*steps, TimeoutError("a socket's")), path=path, stream=path.startswith("/chat"))
