"""A forwarded stream leaves as it came, however the network cut it; what must not leave does not, and what was noticed
does not depend on the cuts either.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.serving.forwarded_stream import LONGEST_EVENT, ForwardedStream
from proxy.values.sse import DONE
from tests.fakes.deviations import FOLDER

HEAD: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
BOM = b"\xef\xbb\xbf"


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta or {}, "logprobs": None, "finish_reason": finish}
    return json.dumps({**HEAD, "choices": [choice], **more}, separators=(",", ":"), ensure_ascii=False).encode()


def data(payload: bytes) -> bytes:
    return b"data: " + payload + b"\n\n"


def text(piece: str) -> bytes:
    return data(chunk({"content": piece}))


ROLE = data(chunk({"role": "assistant", "content": ""}))
FINISH = data(chunk(finish="stop"))
USAGE = data(json.dumps({**HEAD, "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}).encode())
ANSWER = ROLE + text("Hel") + text("lo") + FINISH + USAGE + DONE
ERROR = data(b'{"error":{"message":"overloaded","type":"x","param":null,"code":"busy"}}')


class Passed:
    """What became of a stream: the bytes that left, and what was noticed."""

    def __init__(self, *pieces: bytes) -> None:
        self.stream = ForwardedStream()
        self.out = b"".join(self.stream.feed(piece) for piece in pieces) + self.stream.end()

    @property
    def code(self) -> Any:
        return self.stream.failed and self.stream.failed.error["code"]

    @property
    def facts(self) -> tuple[Any, ...]:
        seen = self.stream
        return self.out, seen.begun, seen.content_began, seen.finished, seen.done, seen.usage, seen.failed


def every_cut(stream: bytes) -> Passed:
    """The same whole, byte by byte, and cut at every place."""
    whole = Passed(stream)
    assert Passed(*(stream[i : i + 1] for i in range(len(stream)))).facts == whole.facts
    for cut in range(len(stream) + 1):
        assert Passed(stream[:cut], stream[cut:]).facts == whole.facts, (stream[:cut], stream[cut:])
    return whole


def crlf(stream: bytes) -> bytes:
    return stream.replace(b"\n", b"\r\n")


RIGHT = {
    "plain": ANSWER,
    "many alike": ROLE + b"".join(text(f"word {n} ") for n in range(20)) + FINISH + DONE,
    "CRLF": crlf(ANSWER),
    "CR": ANSWER.replace(b"\n", b"\r"),
    "all line ends": ROLE + crlf(text("a")) + text("b").replace(b"\n", b"\r") + text("c") + crlf(FINISH) + DONE,
    "byte order": BOM + ANSWER,
    "comments": b": OPENROUTER PROCESSING\n\n" + ROLE + b": ping\n\n" + text("a") + FINISH + b":\n\n" + DONE,
    "fields": b"retry: 3\n\nevent: message\nid: 7\n" + ROLE + b"event: message\nid: 8\n" + FINISH + DONE,
    "no space": ANSWER.replace(b"data: ", b"data:"),
    "blank lines": b"\n\n\n" + ROLE + b"\n\n" + text("a") + b"\n" + FINISH + DONE,
    "several data lines": b'data: {"choices":[{"delta":{"content":"a"},\ndata: "finish_reason":"stop"}]}\n\n' + DONE,
    "escapes": ROLE + text('a\n"\\') + text("\t/") + text("\u2028") + data(chunk({"content": "x"})) + FINISH + DONE,
    "characters": ROLE + text("é") + text("\u2028") + text("日本語") + text("😀") + FINISH + DONE,
    "lone surrogates": ROLE + data(b'{"choices":[{"delta":{"content":"\\ud83d"}}]}') * 3 + FINISH + DONE,
    "NaN": ROLE + data(b'{"choices":[{"delta":{"content":"a"},"logprobs":NaN}]}') + FINISH + DONE,
    "errors that are none": data(chunk({"content": "a"}, error=None)) * 3 + FINISH + DONE,
    "reasoning": ROLE + b"".join(data(chunk({"reasoning_content": w})) for w in "abc") + text("d") + FINISH + DONE,
    "two choices": ROLE
    + b"".join(data(chunk({"content": "x"}).replace(b'"index":0', i)) for i in (b'"index":0', b'"index":1') * 12)
    + FINISH
    + DONE,
    "completions": data(b'{"object":"text_completion","choices":[{"text":"a","finish_reason":null}]}') * 3
    + FINISH
    + DONE,
    "two finishes": ROLE + text("a") + FINISH + FINISH + USAGE + DONE,
    "no finish": ROLE + text("a") + DONE,
    "done with words": ROLE + data(b"[DONE] bye"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_leaves_as_it_came(name: str) -> None:
    passed = every_cut(RIGHT[name])
    assert passed.out == RIGHT[name]
    assert passed.stream.done
    assert passed.stream.failed is None


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*/*.sse")), ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_what_real_servers_send_leaves_as_it_came(file: Path) -> None:
    stream = file.read_bytes()
    whole = Passed(stream)
    assert Passed(*(stream[i : i + 1] for i in range(len(stream)))).facts == whole.facts
    added = b"" if b"[DONE]" in stream else DONE
    if whole.stream.failed is None:
        assert whole.out == stream.rstrip(b"\r\n") + stream[len(stream.rstrip(b"\r\n")) :].ljust(2, b"\n") + added
    else:
        assert stream.startswith(whole.out)
        assert b'"error"' in stream


def test_what_was_noticed() -> None:
    seen = every_cut(ANSWER).stream
    assert (seen.begun, seen.content_began, seen.finished, seen.done) == (True, True, True, True)
    assert seen.usage == {"prompt_tokens": 3, "completion_tokens": 2}


def test_the_first_chunk_is_no_content_yet() -> None:
    stream = ForwardedStream()
    stream.feed(b": waiting\n\n")
    assert not stream.begun
    stream.feed(ROLE)
    assert (stream.begun, stream.content_began) == (True, False)
    stream.feed(text("a"))
    assert stream.content_began


@pytest.mark.parametrize("delta", [{"reasoning": "hm"}, {"tool_calls": [{"index": 0}]}, {"audio": {"data": "x"}}])
def test_content_is_not_only_text(delta: dict[str, Any]) -> None:
    assert Passed(data(chunk(delta))).stream.content_began


def test_the_last_usage_counts_wherever_it_stands() -> None:
    grown = [data(chunk({"content": "a"}, usage={"completion_tokens": n})) for n in range(5)]
    assert every_cut(ROLE + b"".join(grown)).stream.usage == {"completion_tokens": 4}
    groq = data(chunk(x_groq={"usage": {"completion_tokens": 9}}))
    assert every_cut(ROLE + groq).stream.usage == {"completion_tokens": 9}


# The end


def test_done_is_added_where_the_model_had_finished() -> None:
    passed = every_cut(ROLE + text("a") + FINISH)
    assert passed.out == ROLE + text("a") + FINISH + DONE
    assert passed.stream.done


@pytest.mark.parametrize("stream", [ROLE + text("a"), ROLE, b": only a comment\n\n", b"hello", b""])
def test_without_an_end_it_is_cut_off(stream: bytes) -> None:
    passed = every_cut(stream)
    assert (passed.out, passed.code) == (stream if stream.endswith(b"\n") else b"", "upstream_truncated")


def test_several_answers_are_finished_when_each_of_them_is() -> None:
    first, second = FINISH, FINISH.replace(b'"index":0', b'"index":1')
    begun = ROLE + ROLE.replace(b'"index":0', b'"index":1')
    assert every_cut(begun + first + second).out == begun + first + second + DONE
    assert every_cut(begun + first).code == "upstream_truncated"
    assert every_cut(begun + first + text("late") + second).stream.done, "what is finished stays so"


def test_nothing_but_done_is_no_answer() -> None:
    passed = every_cut(DONE)
    assert (passed.out, passed.code) == (b"", "upstream_truncated")


def test_nothing_leaves_behind_done() -> None:
    for more in (b"data: {oops\n\n", text("more"), DONE, b": ping\n\n", b"garbage"):
        assert every_cut(ANSWER + more).out == ANSWER


def test_a_break_behind_the_finish_has_lost_nothing() -> None:
    broken = Passed(b"").stream.failed
    stream = ForwardedStream()
    assert stream.feed(ROLE + FINISH + b"data: {") == ROLE + FINISH
    assert stream.end(broken) == DONE
    assert stream.failed is None


def test_a_break_before_it_is_what_it_is() -> None:
    broken = Passed(data(b"{")).stream.failed
    stream = ForwardedStream()
    stream.feed(ROLE + b"data: {")
    assert stream.end(broken) == b""
    assert stream.failed is broken


@pytest.mark.parametrize("cut", [1, 2])
def test_a_last_blank_line_that_is_missing_is_added(cut: int) -> None:
    assert every_cut(ANSWER[:-cut]).out == ANSWER
    assert every_cut((ROLE + FINISH)[:-cut]).out == ROLE + FINISH + DONE


@pytest.mark.parametrize("cut", range(1, len(crlf(b"\n\n")) + 1))
def test_a_last_blank_line_that_is_missing_in_crlf(cut: int) -> None:
    passed = every_cut(crlf(ROLE + FINISH)[:-cut])
    assert passed.out.replace(b"\r\n", b"\n").replace(b"\r", b"\n") == ROLE + FINISH + DONE


def test_half_an_event_at_the_end_is_dropped() -> None:
    for half in (b"data: {", b'data: {"choices":', b"dat", b": comm", b"\r", b"\n"):
        assert every_cut(ROLE + FINISH + half).out == ROLE + FINISH + DONE


# What must not leave

BROKEN = [
    b"data: {oops\n\n",
    b"data: oops\n\n",
    b'data: {"choices":[{"delta":{"content":"a}}]}\n\n',
    b'data: {"choices":[{"delta":{"content":"a"}}]}}\n\n',
    b'data: {"choices":[{"delta":{"content":"\\x"}}]}\n\n',
    b'data: {"choices":[{"delta":{"content":"\x01"}}]}\n\n',
    b'data: {"a":1}\ndata: {"b":2}\n\n',
    b"data: [DONE\n\n",
    b"data: " + b"[" * 5000 + b"\n\n",
]


@pytest.mark.parametrize("broken", BROKEN, ids=range(len(BROKEN)))
def test_an_event_that_is_not_json_never_leaves(broken: bytes) -> None:
    before = ROLE + text("a") + text("b")
    for stream in (before + broken + text("c") + FINISH + DONE, before + broken):
        passed = every_cut(stream) if len(stream) < 3000 else Passed(stream)
        assert (passed.out, passed.code) == (before, "upstream_bad_response")


@pytest.mark.parametrize("piece", [b'a"b', b"\\", b"\\x", b"\\u12", b"\x01", b'"', b'","b":"'])
def test_nor_one_that_looks_like_those_before_it(piece: bytes) -> None:
    """Events that are cut from the pattern are not parsed; all the same nothing broken slips through."""
    alike = [text(f"w{n}") for n in range(3)]
    broken = text("PIECE").replace(b"PIECE", piece)
    stream = ROLE + b"".join(alike) + broken + b"".join(alike) + FINISH + DONE
    passed = every_cut(stream)
    if piece == b'","b":"':  # this is JSON
        assert (passed.out, passed.code) == (stream, None)
    else:
        assert (passed.out, passed.code) == (ROLE + b"".join(alike), "upstream_bad_response")


def test_bytes_that_are_no_text_are_replaced_and_the_stream_goes_on() -> None:
    odd = b"".join(text("PIECE").replace(b"PIECE", raw) for raw in (b"\xff", b"caf\xe9 ", b"\xe6\x97", b"ok"))
    passed = every_cut(b": caf\xe9\n\n" + ROLE + text("a") + odd + FINISH + DONE)
    right = odd.decode("utf-8", "replace").encode()
    assert passed.out == ": caf\ufffd\n\n".encode() + ROLE + text("a") + right + FINISH + DONE


def test_an_event_without_end_is_given_up() -> None:
    stream = ForwardedStream()
    assert stream.feed(ROLE + b"data: ") == ROLE
    fed = 0
    while not stream.over:
        assert stream.feed(b"x" * 65_536) == b""
        fed += 65_536
    assert LONGEST_EVENT < fed < LONGEST_EVENT + 2 * 65_536
    assert stream.failed is not None
    assert stream.failed.error["code"] == "upstream_bad_response"
    assert stream.feed(b"\n\n" + DONE) == b""


def test_long_events_below_the_limit_pass() -> None:
    long = text("x" * 900_000)
    pieces = [long[i : i + 10_000] for i in range(0, len(long), 10_000)]
    assert Passed(ROLE, *pieces, FINISH, DONE).out == ROLE + long + FINISH + DONE


# Errors


def test_an_error_as_the_first_event() -> None:
    for before in (b"", b": ping\n\n", b"event: error\n"):
        passed = every_cut(before + ERROR)
        assert passed.stream.failed is not None
        assert (passed.code, passed.stream.failed.status, passed.stream.begun) == ("busy", 502, False)


def test_an_error_in_the_middle_ends_the_stream() -> None:
    passed = every_cut(ROLE + text("a") + ERROR + text("b") + DONE)
    assert (passed.out, passed.code) == (ROLE + text("a"), "busy")
    assert passed.stream.error_event == ERROR


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (b'{"object":"error","message":"no","code":400}', 400),
        (b'{"error":"text"}', 502),
        (b'[{"error":{"message":"no","code":429}}]', 429),
    ],
)
def test_errors_of_other_shapes_are_told_apart(event: bytes, status: int) -> None:
    passed = every_cut(ROLE + text("a") + data(event))
    assert passed.stream.failed is not None
    assert (passed.stream.failed.status, passed.stream.error_event) == (status, b"")


# Any stream, any cuts

LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@st.composite
def right_streams(draw: st.DrawFn) -> bytes:
    """Events of every form that the standard allows, all of them right."""
    end = draw(LINE_ENDS)
    field = draw(st.sampled_from([b"data: ", b"data:"]))
    mixed = draw(st.booleans())
    parts = [draw(st.sampled_from([b"", BOM]))]
    for _ in range(draw(st.integers(1, 12))):
        end = draw(LINE_ENDS) if mixed else end
        kind = draw(st.sampled_from(["text", "text", "text", "comment", "fields", "lines", "blank", "escaped"]))
        piece = chunk({"content": draw(st.text(max_size=6))})
        if kind == "comment":
            parts.append(b": " + draw(st.sampled_from([b"", b"ping", b'"content":"x"'])) + end * 2)
        elif kind == "blank":
            parts.append(end * draw(st.integers(1, 3)))
        elif kind == "fields":
            parts.append(b"event: x" + end + b"id: 1" + end + field + piece + end * 2)
        elif kind == "lines":
            parts.append(field + piece.replace(b",", b"," + end + field, 2) + end * 2)
        elif kind == "escaped":
            escaped = json.dumps({"choices": [{"delta": {"content": draw(st.text(max_size=6))}}]}).encode()
            parts.append(field + escaped + end * 2)
        else:
            parts.append(field + piece + end * 2)
    return b"".join(parts) + field + chunk(finish="stop") + end * 2 + field + b"[DONE]" + end * 2


def cut_up(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted(min(cut, len(stream)) for cut in cuts)
    return [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]


CUTS = st.lists(st.integers(0, 3000), max_size=12)


@given(right_streams(), CUTS)
def test_any_right_stream_leaves_as_it_came(stream: bytes, cuts: list[int]) -> None:
    passed = Passed(*cut_up(stream, cuts))
    assert passed.out == stream
    assert passed.stream.done


PIECES = st.lists(
    st.one_of(
        st.binary(max_size=5).filter(lambda raw: not set(raw) & set(b"\r\n")),
        st.text(max_size=5).map(lambda words: json.dumps(words)[1:-1].encode()),
        st.sampled_from([b"word", b"\\", b'"', b"\\n", b"\\u00e9", b"\xc3", b"\xa9", b"\t", b" "]),
    ),
    max_size=20,
)


@given(PIECES, CUTS)
def test_events_alike_pass_exactly_if_they_are_json(pieces: list[bytes], cuts: list[int]) -> None:
    events = [text("PIECE").replace(b"PIECE", piece) for piece in pieces]
    right = []
    for event in events:
        event = event.decode("utf-8", "replace").encode()
        try:
            json.loads(event[6:])
        except ValueError:
            break
        right.append(event)
    passed = Passed(*cut_up(ROLE + text("a") + b"".join(events) + FINISH + DONE, cuts))
    whole = len(right) == len(events)
    assert passed.out == ROLE + text("a") + b"".join(right) + (FINISH + DONE if whole else b"")
    assert passed.code == (None if whole else "upstream_bad_response")
