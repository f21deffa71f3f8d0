"""What the client gets when the model's server misbehaves, and what everybody gets when the client leaves."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, call, text
from tests.fakes.pages import PageServer

QUESTION = {"role": "user", "content": "Why is the sky blue?"}
SEARCH_OFF = {"x-groundwire-search": "off"}


def post(proxy: Groundwire, *, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    sent = {"model": "m", "messages": [QUESTION], **fields}
    return httpx.post(f"{proxy.url}/chat/completions", json=sent, headers=headers, timeout=20)


def error_of(answer: httpx.Response) -> dict[str, Any]:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return dict(error)


def last_event(answer: httpx.Response) -> Any:
    assert answer.status_code == 200
    assert "[DONE]" not in answer.text
    assert '"finish_reason":"stop"' not in answer.text
    return json.loads(answer.text.strip().rsplit("data: ", 1)[1])


OPENAI_ERROR = {"error": {"message": "no such model", "type": "invalid_request_error", "param": "model", "code": "x"}}


@pytest.mark.parametrize("stream", [True, False])
class TestBeforeTheFirstByte:
    @pytest.mark.parametrize("status", [400, 404, 422, 429, 500, 503])
    def test_errors_keep_their_status_and_body(
        self, proxy: Groundwire, model: ModelServer, status: int, stream: bool
    ) -> None:
        model.script(Turn(status=status, body=json.dumps(OPENAI_ERROR).encode(), headers={"Retry-After": "7"}))
        answer = post(proxy, stream=stream)
        assert answer.status_code == status
        assert answer.json() == OPENAI_ERROR
        assert answer.headers["retry-after"] == "7"
        assert len(model.requests) == 1

    def test_an_error_body_in_two_pieces_is_whole(self, proxy: Groundwire, model: ModelServer, stream: bool) -> None:
        model.script(Turn(status=400, body=json.dumps(OPENAI_ERROR).encode(), halved=True))
        assert post(proxy, stream=stream).json() == OPENAI_ERROR

    @pytest.mark.parametrize("code", [401, 403])
    def test_a_refused_key_inside_a_200(self, proxy: Groundwire, model: ModelServer, stream: bool, code: int) -> None:
        model.script(Turn(body=json.dumps({"error": {"message": "no", "code": code}}).encode()))
        answer = post(proxy, stream=stream)
        assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_auth")

    @pytest.mark.parametrize("status", [401, 403])
    @pytest.mark.parametrize("headers", [{}, SEARCH_OFF])
    def test_a_refused_key_is_ours_not_the_clients(
        self, proxy: Groundwire, model: ModelServer, status: int, stream: bool, headers: dict[str, str]
    ) -> None:
        model.script(Turn(status=status, body=b'{"error":{"message":"bad key sk-upstream"}}'))
        answer = post(proxy, stream=stream, headers=headers)
        assert answer.status_code == 502
        assert error_of(answer)["code"] == "upstream_auth"
        assert answer.headers["x-should-retry"] == "false"
        assert "sk-upstream" not in answer.text

    @pytest.mark.parametrize(
        ("turn", "status", "code"),
        [
            (Turn(body=b"<html>Bad gateway</html>", content_type="text/html"), 502, "upstream_bad_response"),
            (Turn(status=302, body=b"", headers={"Location": "http://127.0.0.1:1/"}), 502, "upstream_bad_response"),
            (Turn(status=503, body=b"<html>busy</html>", content_type="text/html"), 503, None),
            (Turn(body=b'{"error":{"message":"in a 200","code":429}}'), 429, 429),
            (Turn(body=b'{"choices": [', content_type="application/json"), 502, 502),
            (Turn(body=b"", content_type="text/event-stream"), 502, "upstream_truncated"),
            (Turn(body=b'data: {"error":{"message":"no","code":400}}\n\n', content_type="text/event-stream"), 400, 400),
        ],
    )
    def test_answers_that_are_none(
        self, proxy: Groundwire, model: ModelServer, turn: Turn, status: int, code: object, stream: bool
    ) -> None:
        model.script(turn)
        answer = post(proxy, stream=stream)
        assert answer.status_code == status
        assert error_of(answer)["code"] == code
        assert "<html>" not in answer.text

    def test_json_where_a_stream_was_asked_and_back(self, proxy: Groundwire, model: ModelServer, stream: bool) -> None:
        whole = {"model": "m", "choices": [{"message": {"content": "All at once."}, "finish_reason": "stop"}]}
        streamed = (
            b'data: {"choices":[{"delta":{"content":"All at once."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        )
        if stream:
            model.script(Turn(body=json.dumps(whole).encode()))
            assert "All at once." in post(proxy, stream=True).text
        else:
            model.script(Turn(body=streamed, content_type="text/event-stream"))
            assert post(proxy).json()["choices"][0]["message"]["content"] == "All at once."


def test_an_upstream_that_is_down(model: ModelServer, config: dict[str, Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    upstream = {"name": "gone", "base_url": f"http://127.0.0.1:{port}/v1"}
    with Groundwire({**config, "upstreams": [upstream]}) as proxy:
        for headers in ({}, SEARCH_OFF):
            answer = post(proxy, stream=True, headers=headers)
            assert answer.status_code == 502
            assert error_of(answer)["code"] == "upstream_unreachable"
            assert "'gone'" in error_of(answer)["message"]


def test_a_slow_upstream_is_given_up(model: ModelServer, config: dict[str, Any]) -> None:
    upstream = {**config["upstreams"][0], "first_byte_timeout": 0.3, "idle_timeout": 0.3}
    with Groundwire({**config, "upstreams": [upstream]}) as proxy:
        model.script(text("Hal", end="hang", finish=None, usage=None))
        answer = post(proxy, stream=True)
        assert last_event(answer)["error"]["code"] == "upstream_timeout"
        model.script(text("late", delay=30.0))
        late = post(proxy, stream=True)
        assert (late.status_code, error_of(late)["code"]) == (504, "upstream_timeout")
        assert model.left.wait(5)


@pytest.mark.parametrize(("status", "headers"), [(200, {}), (400, {}), (400, SEARCH_OFF)])
def test_a_key_that_the_server_repeats_is_not_passed_on(
    model: ModelServer, config: dict[str, Any], status: int, headers: dict[str, str]
) -> None:
    upstream = {**config["upstreams"][0], "api_key": "sk-canary-0123456789"}
    with Groundwire({**config, "upstreams": [upstream]}) as proxy:
        model.script(Turn(status=status, body=b'{"error":{"message":"bad key sk-canary-0123456789","code":400}}'))
        answer = post(proxy, headers=headers)
        assert answer.status_code == 400
        assert answer.json()["error"]["message"] == "bad key ***"


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_takes_too_long(model: ModelServer, config: dict[str, Any], stream: bool) -> None:
    with Groundwire({**config, "server": {"request_timeout": 0.4}}) as proxy:
        model.script(text("late", delay=30.0))
        answer = post(proxy, stream=stream)
        assert (answer.status_code, error_of(answer)["code"]) == (504, "request_timeout")
        model.script(text(*["word "] * 100, delay=0.1))
        if stream:
            assert last_event(post(proxy, stream=True))["error"]["code"] == "request_timeout"


@pytest.mark.parametrize("headers", [{}, SEARCH_OFF])
@pytest.mark.parametrize("end", ["eof", "reset"])
def test_a_stream_cut_short_is_an_error(
    proxy: Groundwire, model: ModelServer, end: Any, headers: dict[str, str]
) -> None:
    model.script(text("Half an ", "answ", end=end, finish=None, usage=None))
    answer = post(proxy, stream=True, headers=headers)
    assert last_event(answer)["error"]["code"] == "upstream_truncated"
    assert "Half an " in answer.text


def test_text_that_waited_for_more_is_not_lost(proxy: Groundwire, model: ModelServer) -> None:
    model.script(call("web_search", {"query": "sky"}), text("Blue, see [1", end="reset", finish=None, usage=None))
    answer = post(proxy, stream=True)
    assert last_event(answer)["error"]["code"] == "upstream_truncated"
    assert '"content":"[1"' in answer.text or '"content":"Blue, see [1"' in answer.text


def test_a_forwarded_answer_has_its_time_too(config: dict[str, Any], model: ModelServer) -> None:
    with Groundwire({**config, "server": {"request_timeout": 0.5}}) as proxy:
        model.script(text("late", delay=30.0))
        whole = post(proxy, headers=SEARCH_OFF)
        assert (whole.status_code, error_of(whole)["code"]) == (504, "request_timeout")
        model.script(text(*["word "] * 100, delay=0.1))
        assert last_event(post(proxy, stream=True, headers=SEARCH_OFF))["error"]["code"] == "request_timeout"


def test_a_slow_answer_in_one_piece_is_awaited(config: dict[str, Any], model: ModelServer) -> None:
    upstream = {**config["upstreams"][0], "first_byte_timeout": 0.3}
    with Groundwire({**config, "upstreams": [upstream]}) as proxy:
        model.script(text("worth the wait", delay=1.0))
        assert post(proxy).json()["choices"][0]["message"]["content"] == "worth the wait"


def test_death_in_the_second_round(proxy: Groundwire, model: ModelServer) -> None:
    rounds = (call("web_search", {"query": "sky"}), text("Half", end="reset", finish=None, usage=None))
    model.script(*rounds)
    assert last_event(post(proxy, stream=True))["error"]["code"] == "upstream_truncated"
    model.script(*rounds)
    whole = post(proxy)
    assert whole.status_code == 502
    assert whole.headers["x-should-retry"] == "false", "a retry would search again"


def test_a_finished_answer_without_done_is_whole(proxy: Groundwire, model: ModelServer) -> None:
    for end in ("eof", "reset"):
        model.script(text("All of it.", end=end))
        answer = post(proxy, stream=True)
        assert answer.text.endswith("data: [DONE]\n\n")


def test_malformed_events_end_in_an_error_and_are_not_passed_on(proxy: Groundwire, model: ModelServer) -> None:
    good = b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n'
    model.script(Turn(body=good + b"data: {oops\n\n", content_type="text/event-stream"))
    answer = post(proxy, stream=True)
    assert "upstream_bad_response" in answer.text
    assert "[DONE]" not in answer.text
    assert "oops" not in answer.text


ODD = [{"choices": [{}]}, {"choices": ["x"]}, {"choices": [{"delta": "x"}]}, {"choices": [{"message": "x"}]}]


@pytest.mark.parametrize("odd", ODD, ids=json.dumps)
@pytest.mark.parametrize("path", ["chat/completions", "responses"])
def test_choices_of_odd_shapes_end_in_a_clear_error(
    proxy: Groundwire, model: ModelServer, odd: dict[str, Any], path: str
) -> None:
    asked = {"model": "m", "messages": [QUESTION], "input": "Why is the sky blue?"}
    raw = json.dumps(odd).encode()
    model.script(Turn(body=raw))
    whole = httpx.post(f"{proxy.url}/{path}", json=asked, timeout=20)
    assert (whole.status_code, error_of(whole)["code"]) == (502, "upstream_truncated")
    model.script(Turn(body=b"data: " + raw + b"\n\n", content_type="text/event-stream"))
    streamed = httpx.post(f"{proxy.url}/{path}", json={**asked, "stream": True}, timeout=20)
    assert "upstream_truncated" in json.dumps(last_event(streamed))


@pytest.mark.parametrize("odd", ODD, ids=json.dumps)
def test_choices_of_odd_shapes_are_forwarded_as_they_are(
    proxy: Groundwire, model: ModelServer, odd: dict[str, Any]
) -> None:
    raw = json.dumps(odd).encode()
    model.script(Turn(body=raw))
    assert post(proxy, headers=SEARCH_OFF).content == raw
    event = b"data: " + raw + b"\n\n"
    model.script(Turn(body=event, content_type="text/event-stream"))
    streamed = post(proxy, headers=SEARCH_OFF, stream=True)
    assert streamed.content.startswith(event)
    assert last_event(streamed)["error"]["code"] == "upstream_truncated"


@pytest.mark.parametrize("odd", ODD, ids=json.dumps)
@pytest.mark.parametrize("stream", [True, False])
def test_choices_of_odd_shapes_before_an_answer_do_no_harm(
    proxy: Groundwire, model: ModelServer, odd: dict[str, Any], stream: bool
) -> None:
    said = {"choices": [{"delta": {"content": "Blue."}, "finish_reason": "stop"}]}
    events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in (odd, said)) + "data: [DONE]\n\n"
    model.script(Turn(body=events.encode(), content_type="text/event-stream"))
    answer = post(proxy, stream=stream)
    assert answer.status_code == 200
    assert '"content":"Blue."' in answer.text
    assert answer.text.endswith("data: [DONE]\n\n") or not stream


def test_an_event_that_never_ends(proxy: Groundwire, model: ModelServer) -> None:
    model.script(Turn(body=b"data: " + b"x" * 3_000_000, content_type="text/event-stream"))
    answer = post(proxy, stream=True)
    assert answer.status_code == 502
    assert error_of(answer)["code"] == "upstream_bad_response"


def test_a_whole_answer_that_breaks_off_does_not_look_whole(model: ModelServer, config: dict[str, Any]) -> None:
    half = Turn(body=b'{"choices": [', headers={"Content-Length": "500"}, end="eof")
    with Groundwire(config) as proxy:
        model.script(half)
        answer = post(proxy)
        assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_truncated")
        model.script(half)
        with pytest.raises(httpx.RemoteProtocolError):  # a status has gone out: nothing but a cut can say it
            post(proxy, headers=SEARCH_OFF)
        proxy.logged("outcome=upstream_truncated")
        model.script(text("Hello."))
        assert post(proxy).status_code == 200


# The client leaves


def leave(proxy: Groundwire, *, stream: bool, wait_for: bytes = b"", headers: str = "") -> None:
    """Asks over a bare socket and hangs up, after a moment or after some bytes were seen."""
    host, port = proxy.root.removeprefix("http://").split(":")
    sent = json.dumps({"model": "m", "messages": [QUESTION], "stream": stream}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{headers}"
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(f"{head}Content-Length: {len(sent)}\r\n\r\n".encode() + sent)
        seen = b""
        while wait_for and wait_for not in seen:
            part = connection.recv(65536)
            assert part, seen
            seen += part
        if not wait_for:
            time.sleep(0.4)


@pytest.mark.parametrize("headers", ["", "X-Groundwire-Search: off\r\n"])
class TestTheClientLeaves:
    def test_in_the_middle_of_a_stream(self, proxy: Groundwire, model: ModelServer, headers: str) -> None:
        model.script(text(*["word "] * 500, delay=0.05))
        leave(proxy, stream=True, wait_for=b"word", headers=headers)
        assert model.left.wait(1.0)
        assert model.sent_pieces < 100

    @pytest.mark.parametrize("stream", [True, False])
    def test_before_the_first_token(self, proxy: Groundwire, model: ModelServer, headers: str, stream: bool) -> None:
        model.script(text("late", delay=30.0))
        leave(proxy, stream=stream, headers=headers)
        assert model.left.wait(1.0)


@pytest.fixture(scope="module")
def reading(config: dict[str, Any], library: Path) -> Iterator[tuple[Groundwire, PageServer]]:
    """A Groundwire that may open pages of loopback, and the server of those pages."""
    with PageServer() as pages:
        changed = {
            **config,
            "providers": [*config["providers"], {"name": "reader", "type": "direct"}],
            "tools": {"allow_networks": ["127.0.0.0/8"], "search": ["library"], "read": ["library", "reader"]},
        }
        with Groundwire(changed) as running:
            yield running, pages


def test_the_client_leaves_while_a_page_is_read(reading: tuple[Groundwire, PageServer], model: ModelServer) -> None:
    proxy, pages = reading
    asked, left = threading.Event(), threading.Event()

    def drip() -> Iterator[bytes]:
        try:
            yield b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
            asked.set()
            for _ in range(400):
                time.sleep(0.05)
                yield b"x"
        finally:
            left.set()

    pages.raw("/slow", drip)
    question = {"role": "user", "content": f"Read {pages.url('/slow')}"}
    model.script(call("open_page", {"url": pages.url("/slow")}), text("never"))
    host, port = proxy.root.removeprefix("http://").split(":")
    sent = json.dumps({"model": "m", "messages": [question], "stream": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(f"{head}Content-Length: {len(sent)}\r\n\r\n".encode() + sent)
        assert asked.wait(5)
        assert not left.is_set()
    assert left.wait(1.0), "the page's server saw us hang up"
    assert len(model.requests) == 1


def test_a_page_is_read_and_cited(reading: tuple[Groundwire, PageServer], model: ModelServer) -> None:
    proxy, pages = reading
    story = "<p>Tides follow the moon, and the moon pulls the sea towards it every day.</p>" * 8
    pages.page("/tides", f"<html><title>Tides</title><body><article>{story}</article></body></html>".encode())
    question = {"role": "user", "content": f"What does {pages.url('/tides')} say?"}
    model.script(call("open_page", {"url": pages.url("/tides")}), text("The moon does it [1]."))
    answer = post(proxy, messages=[question]).json()
    assert answer["choices"][0]["message"]["content"] == f"The moon does it [[1]]({pages.url('/tides')})."
    assert "Tides follow the moon" in model.requests[1]["messages"][-1]["content"]


def test_a_made_up_address_is_not_opened(reading: tuple[Groundwire, PageServer], model: ModelServer) -> None:
    proxy, pages = reading
    model.script(call("open_page", {"url": pages.url("/secret?data=1")}), text("no"))
    post(proxy)
    assert "could not be opened" in model.requests[1]["messages"][-1]["content"]
    assert not any("/secret" in request.path for request in pages.requests)
