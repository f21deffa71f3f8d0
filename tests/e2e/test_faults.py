"""What the client gets when the model's server misbehaves; more of it stands in tests/faults."""

from __future__ import annotations

import json
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


@pytest.mark.parametrize("stream", [True, False])
class TestBeforeTheFirstByte:
    @pytest.mark.parametrize("code", [401, 403])
    def test_a_refused_key_inside_a_200(self, proxy: Groundwire, model: ModelServer, stream: bool, code: int) -> None:
        model.script(Turn(body=json.dumps({"error": {"message": "no", "code": code}}).encode()))
        answer = post(proxy, stream=stream)
        assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_auth")

    @pytest.mark.parametrize(
        ("turn", "status", "code"),
        [
            (Turn(status=302, body=b"", headers={"Location": "http://127.0.0.1:1/"}), 502, "upstream_bad_response"),
            (Turn(status=503, body=b"<html>busy</html>", content_type="text/html"), 503, None),
            (Turn(body=b'{"choices": [', content_type="application/json"), 502, "upstream_bad_response"),
            (Turn(body=b"", content_type="text/event-stream"), 502, "upstream_truncated"),
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


def test_a_slow_upstream_is_given_up(model: ModelServer, config: dict[str, Any]) -> None:
    upstream = {**config["upstreams"][0], "first_byte_timeout": 0.3, "idle_timeout": 0.3}
    with Groundwire({**config, "upstreams": [upstream]}) as proxy:
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


def test_a_slow_answer_in_one_piece_is_awaited(config: dict[str, Any], model: ModelServer) -> None:
    upstream = {**config["upstreams"][0], "first_byte_timeout": 0.3}
    with Groundwire({**config, "upstreams": [upstream]}) as proxy:
        model.script(text("worth the wait", delay=1.0))
        assert post(proxy).json()["choices"][0]["message"]["content"] == "worth the wait"


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


def test_a_whole_answer_that_breaks_off_does_not_look_whole(model: ModelServer, config: dict[str, Any]) -> None:
    half = Turn(body=b'{"choices": [', headers={"Content-Length": "500"}, end="eof")
    long = Turn(body=b'{"choices": ["' + b"x" * 200_000, headers={"Content-Length": "500000"}, end="eof")
    with Groundwire(config) as proxy:
        for headers in ({}, SEARCH_OFF):
            model.script(half)
            answer = post(proxy, headers=headers)
            assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_truncated")
        model.script(long)
        with pytest.raises(httpx.RemoteProtocolError):  # a status has gone out: nothing but a cut can say it
            post(proxy, headers=SEARCH_OFF)
        proxy.logged("outcome=upstream_truncated")
        model.script(text("Hello."))
        assert post(proxy).status_code == 200


# Pages


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
