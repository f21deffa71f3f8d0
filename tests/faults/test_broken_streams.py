"""Rows 18 to 33: what happens to a stream in its middle, on both roads."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from proxy.values.events import Begun, Finished, TextDelta
from proxy.values.sse import PING
from tests.fakes.delivery import delivered
from tests.fakes.forwarding import forwarded, reply
from tests.fakes.groundwire import Groundwire
from tests.fakes.log_lines import eventually
from tests.fakes.model import ModelServer, Turn, call, text
from tests.faults.asking import ask, error_event, error_of
from tests.faults.outcomes import KEY, outcome
from tests.faults.table import BOTH, FORWARDED, SEARCHED, fault

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5}}\n\n'
DONE = b"data: [DONE]\n\n"


def said(words: str) -> bytes:
    chunk = {"choices": [{"index": 0, "delta": {"content": words}, "finish_reason": None}]}
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


def sse(*events: bytes, **more: Any) -> Turn:
    return Turn(body=b"".join(events), content_type="text/event-stream", **more)


def pieces(make: Callable[[], Iterable[bytes | float]], **more: Any) -> Turn:
    return Turn(pieces=make, content_type="text/event-stream", **more)


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    """The chunks of a stream that ended well."""
    assert answer.status_code == 200
    assert answer.content.count(DONE) == 1
    assert answer.content.endswith(DONE)
    lines = answer.content.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n\n")
    payloads = ["".join(line[5:] for line in block.split("\n") if line.startswith("data:")) for block in lines]
    return [json.loads(payload) for payload in payloads if payload.lstrip().startswith("{")]


def content(answer: httpx.Response) -> str:
    choices = [choice for chunk in events(answer) for choice in chunk["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


@pytest.fixture(scope="module")
def keyed(config: dict[str, Any]) -> dict[str, Any]:
    (upstream,) = config["upstreams"]
    return {**config, "upstreams": [{**upstream, "api_key": KEY}]}


@pytest.fixture(scope="module")
def proxy(keyed: dict[str, Any]) -> Iterator[Groundwire]:
    with Groundwire(keyed) as running:
        yield running


@pytest.fixture(scope="module")
def hasty(keyed: dict[str, Any]) -> Iterator[Groundwire]:
    """One with little patience between two reads."""
    (upstream,) = keyed["upstreams"]
    with Groundwire({**keyed, "upstreams": [{**upstream, "idle_timeout": 0.5}]}) as running:
        yield running


@fault(18, *BOTH)
def test_a_reset(proxy: Groundwire, model: ModelServer, road: str) -> None:
    model.script(text("Half an ", "answ", end="reset", finish=None, usage=None), text("A whole answer."))
    answer = ask(proxy, road, stream=True)
    assert error_event(answer)["code"] == "upstream_truncated"
    assert answer.text.count("Half an ") == 1
    assert len(model.requests) == 1, "nothing is asked again once text was sent"
    assert outcome(proxy, answer) == "upstream_truncated"


@fault(18, SEARCHED)
def test_text_that_waited_for_more_is_not_lost(proxy: Groundwire, model: ModelServer, road: str) -> None:
    model.script(call("web_search", {"query": "sky"}), text("Blue, see [1", end="reset", finish=None, usage=None))
    answer = ask(proxy, road, stream=True)
    assert error_event(answer)["code"] == "upstream_truncated"
    assert '"content":"[1"' in answer.text or '"content":"Blue, see [1"' in answer.text


@fault(19, *BOTH)
@pytest.mark.parametrize("rest", [b"", b'data: {"choices":[{"del'], ids=["between events", "in an event"])
def test_an_end_that_is_none(proxy: Groundwire, model: ModelServer, road: str, rest: bytes) -> None:
    model.script(sse(ROLE, said("Half an "), said("answ"), rest))
    answer = ask(proxy, road, stream=True)
    assert error_event(answer)["code"] == "upstream_truncated"
    assert answer.text.rstrip().startswith("data: ")
    assert "{del" not in answer.text
    assert outcome(proxy, answer) == "upstream_truncated"


@fault(20, *BOTH)
@pytest.mark.parametrize("end", ["eof", "reset"])
def test_a_finish_without_done(proxy: Groundwire, model: ModelServer, road: str, end: Any) -> None:
    model.script(text("All of it.", end=end))
    answer = ask(proxy, road, stream=True)
    assert content(answer) == "All of it."
    assert outcome(proxy, answer) == "ok"
    assert " output_tokens=5 " in proxy.logged(answer.headers["x-request-id"])


@fault(20, FORWARDED)
def test_plain_completions_too(proxy: Groundwire, model: ModelServer, road: str) -> None:
    stream = b'data: {"object":"text_completion","choices":[{"text":"Hi","index":0,"finish_reason":"stop"}]}\n\n'
    model.script(sse(stream))
    asked = {"model": "m", "prompt": "Hi", "stream": True}
    answer = httpx.post(f"{proxy.url}/completions", json=asked, timeout=20)
    assert answer.content == stream + DONE
    model.script(sse(stream.replace(b'"stop"', b"null")))
    cut = httpx.post(f"{proxy.url}/completions", json=asked, timeout=20)
    assert error_event(cut)["code"] == "upstream_truncated"


@fault(21, *BOTH)
def test_a_stall(hasty: Groundwire, model: ModelServer, road: str) -> None:
    model.script(text("Hal", end="hang", finish=None, usage=None))
    answer = ask(hasty, road, stream=True)
    assert error_event(answer)["code"] == "upstream_timeout"
    assert "Hal" in answer.text
    assert model.left.wait(10), "the upstream is closed"
    assert outcome(hasty, answer) == "upstream_timeout"


@fault(21, *BOTH)
def test_pings_while_it_stalls(road: str) -> None:
    """In leaping time: the seconds are those of a server in use."""
    if road == FORWARDED:
        wire = forwarded(reply(2.0, ROLE + said("Hal")[:9], 35.0, said("Hal")[9:] + FINISH + DONE)).wire
    else:
        wire = delivered(2.0, [Begun("m"), TextDelta("Hal")], 35.0, [Finished("stop")]).wire
    assert [at for at, data in wire.frames if data == PING] == [12.0, 22.0, 32.0]


@fault(22, *BOTH)
def test_a_drip(keyed: dict[str, Any], model: ModelServer, road: str) -> None:
    def drip() -> Iterator[bytes | float]:
        yield ROLE + said("Hello")
        for byte in itertools.cycle(said("word ")):
            yield bytes([byte])
            yield 0.02

    with Groundwire({**keyed, "server": {"request_timeout": 1.5}}) as proxy:
        model.script(pieces(drip))
        answer = ask(proxy, road, stream=True)
        assert error_event(answer)["code"] == "request_timeout"
        assert model.left.wait(10)
        assert outcome(proxy, answer) == "request_timeout"
        model.script(text("late", delay=30.0))
        for stream in (True, False):
            late = ask(proxy, road, stream=stream)
            assert (late.status_code, late.json()["error"]["code"]) == (504, "request_timeout")
            assert outcome(proxy, late) == "request_timeout"


ODD_WORDS = 'naïve 日本語 👩‍👩‍👧 \u2028 \\n "x" 𝔘'
ODD_STREAM = (ROLE, said(ODD_WORDS[:9]), said(ODD_WORDS[9:]), FINISH, USAGE, DONE)


@fault(23, *BOTH)
@pytest.mark.parametrize("cut", ["halved", "bytewise"])
def test_cut_inside_a_character(proxy: Groundwire, model: ModelServer, road: str, cut: str) -> None:
    model.script(sse(*ODD_STREAM, **{cut: True}))
    answer = ask(proxy, road, stream=True)
    assert content(answer) == ODD_WORDS
    assert road == SEARCHED or answer.content == b"".join(ODD_STREAM)


@fault(24, *BOTH)
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_cut_anywhere(proxy: Groundwire, model: ModelServer, road: str, line_end: bytes) -> None:
    stream = b"".join(ODD_STREAM[:-1]).replace(b"\n", line_end) + DONE
    model.script(sse(stream, bytewise=True))
    answer = ask(proxy, road, stream=True)
    assert content(answer) == ODD_WORDS
    assert road == SEARCHED or answer.content == stream


@fault(25, SEARCHED)
def test_cut_inside_a_marker(proxy: Groundwire, model: ModelServer, road: str) -> None:
    model.script(call("web_search", {"query": "sky"}), text(*"Blue [1]."))
    answer = ask(proxy, road, stream=True)
    assert content(answer).startswith("Blue [[1]](https://library.example/")
    deltas = [choice["delta"].get("content") for chunk in events(answer) for choice in chunk["choices"]]
    assert not any(delta in ("[", "[1", "1", "]") for delta in deltas)


BROKEN = {
    "half an object": b"data: {oops\n\n",
    "words": b"data: oops\n\n",
    "broken inside": b'data: {"choices":[{"index":0,"delta":{"content":"oops}}]}\n\n',
}


@fault(26, *BOTH)
@pytest.mark.parametrize("name", BROKEN)
def test_an_event_that_is_not_json(proxy: Groundwire, model: ModelServer, road: str, name: str) -> None:
    model.script(pieces(lambda: [ROLE, said("Hi"), 0.1, BROKEN[name], said("more"), DONE]))
    answer = ask(proxy, road, stream=True)
    assert error_event(answer)["code"] == "upstream_bad_response"
    assert "Hi" in answer.text
    assert "oops" not in answer.text
    assert "more" not in answer.text
    assert outcome(proxy, answer) == "upstream_bad_response"


ODDITIES = (
    b"\xef\xbb\xbf: hello\r\n\r\n" + ROLE,
    b"retry: 3000\n\n",
    b"event: message\r\nid: 7\r\n" + said("Sky").replace(b"\n", b"\r\n"),
    b'data: {"choices":[{"index":0,\ndata: "delta":{"content":" is"},"finish_reason":null}]}\n\n',
    said(" blue.").replace(b"\n", b"\r"),
    b": OPENROUTER PROCESSING\n\n\n\n",
    FINISH + DONE,
)


@fault(27, *BOTH)
@pytest.mark.parametrize("bytewise", [False, True])
def test_whatever_the_standard_allows(proxy: Groundwire, model: ModelServer, road: str, bytewise: bool) -> None:
    model.script(sse(*ODDITIES, bytewise=bytewise))
    answer = ask(proxy, road, stream=True)
    assert content(answer) == "Sky is blue."
    assert road == SEARCHED or answer.content == b"".join(ODDITIES)


@fault(28, *BOTH)
@pytest.mark.parametrize("missing", [1, 2])
def test_a_space_and_a_blank_line_are_missing(proxy: Groundwire, model: ModelServer, road: str, missing: int) -> None:
    stream = b"".join([ROLE, said("Blue."), FINISH]).replace(b"data: ", b"data:")
    model.script(sse(stream[:-missing]))
    answer = ask(proxy, road, stream=True)
    assert content(answer) == "Blue."
    assert road == SEARCHED or answer.content == stream + DONE
    assert outcome(proxy, answer) == "ok"


def peak(proxy: Groundwire) -> int:
    """The most memory that it ever held, in MB."""
    assert proxy.process is not None
    status = Path(f"/proc/{proxy.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


@fault(29, *BOTH)
def test_a_line_of_50_megabytes(keyed: dict[str, Any], model: ModelServer, road: str) -> None:
    with Groundwire(keyed) as proxy:
        model.script(text("Hello."))
        ask(proxy, road, stream=True)
        before = peak(proxy)
        model.script(pieces(lambda: [ROLE, said("Hi"), 0.1, b"data: {", *[b"x" * 65_536] * 800]))
        answer = ask(proxy, road, stream=True)
        assert error_event(answer)["code"] == "upstream_bad_response"
        assert "xx" not in answer.text
        eventually(lambda: model.answering == 0)
        assert model.sent_pieces < 400, "the upstream was closed"
        assert peak(proxy) - before < 30
        assert outcome(proxy, answer) == "upstream_bad_response"


@fault(29, *BOTH)
def test_a_first_event_without_end(proxy: Groundwire, model: ModelServer, road: str) -> None:
    model.script(sse(b"data: " + b"x" * 3_000_000))
    answer = ask(proxy, road, stream=True)
    assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_bad_response")
    assert outcome(proxy, answer) == "upstream_bad_response"


@fault(30, *BOTH)
def test_bytes_that_are_no_text(proxy: Groundwire, model: ModelServer, road: str) -> None:
    odd = said("caf\u00e9").replace("\u00e9".encode(), b"\xe9") + said("\u00e9").replace(b"\xc3", b"\xff")
    model.script(sse(ROLE, said("Le "), odd, said(" noir"), FINISH, DONE))
    answer = ask(proxy, road, stream=True)
    assert content(answer) == "Le caf\ufffd\ufffd\ufffd noir"
    assert outcome(proxy, answer) == "ok"


@fault(31, *BOTH)
@pytest.mark.parametrize("pause", [False, True], ids=["at once", "later"])
def test_data_behind_done(proxy: Groundwire, model: ModelServer, road: str, pause: bool) -> None:
    more = [said("more"), b"data: {oops\n\n", DONE, b"garbage"]
    model.script(pieces(lambda: [ROLE, said("Blue."), FINISH, DONE, *([0.2] * pause), *more]))
    answer = ask(proxy, road, stream=True)
    assert content(answer) == "Blue."
    assert outcome(proxy, answer) == "ok"


@fault(32, *BOTH)
def test_two_finishes_and_usage_without_choices(proxy: Groundwire, model: ModelServer, road: str) -> None:
    stream = (ROLE, said("Blue."), FINISH, FINISH.replace(b"{}", b'{"content":""}'), USAGE, DONE)
    model.script(sse(*stream))
    answer = ask(proxy, road, stream=True)
    assert content(answer) == "Blue."
    finishes = [choice["finish_reason"] for chunk in events(answer) for choice in chunk["choices"]]
    assert finishes.count("stop") == (1 if road == SEARCHED else 2)
    assert road == SEARCHED or answer.content == b"".join(stream)
    assert outcome(proxy, answer) == "ok"
    assert " output_tokens=5 " in proxy.logged(answer.headers["x-request-id"])


@fault(33, *BOTH)
@pytest.mark.parametrize("glued", [False, True], ids=["later", "at once"])
def test_an_error_event_behind_some_tokens(proxy: Groundwire, model: ModelServer, road: str, glued: bool) -> None:
    error = {"error": {"message": f"overloaded {KEY}", "type": "overloaded_error", "param": None, "code": "overloaded"}}
    bad = b"event: error\ndata: " + json.dumps(error).encode() + b"\n\n"
    model.script(
        pieces(lambda: [ROLE, said("one "), said("two "), *([] if glued else [0.1]), bad, said("three"), DONE])
    )
    answer = ask(proxy, road, stream=True)
    if answer.status_code == 200:
        found = error_event(answer)
        assert "one " in answer.text
        assert "three" not in answer.text
    else:  # where nothing had left yet, an error has its status
        assert (glued, road) == (True, SEARCHED)
        found = answer.json()["error"]
    assert (found["message"], found["code"]) == ("overloaded ***", "overloaded")
    assert outcome(proxy, answer) == "overloaded"
    assert " model_failures=scripted:503 " in proxy.logged(answer.headers["x-request-id"])
