"""Rows 10 to 13: the model's server says 200, and what follows is no answer, or one of another form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn
from tests.faults.asking import ask, error_of
from tests.faults.outcomes import KEY, outcome
from tests.faults.table import BOTH, FORWARDED, fault

BOTH_FORMS = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
PAGE = f"<html><h1>Bad gateway</h1>{KEY}</html>".encode()
SAID = "All at once."
WHOLE = {
    "id": "chatcmpl-up",
    "object": "chat.completion",
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": SAID}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
}
STREAMED = (
    b'data: {"choices":[{"index":0,"delta":{"content":"All at "}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"content":"once."},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5}}\n\ndata: [DONE]\n\n'
)


@pytest.fixture(scope="module")
def proxy(config: dict[str, Any]) -> Iterator[Groundwire]:
    (upstream,) = config["upstreams"]
    with Groundwire(
        {**config, "upstreams": [{**upstream, "api_key": KEY, "retries": 0}], "log": {"contents": True}}
    ) as running:
        yield running


def chunks(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.headers["content-type"].startswith("text/event-stream")
    *events, done, rest = answer.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


@fault(10, *BOTH)
@BOTH_FORMS
@pytest.mark.parametrize("label", ["text/html", "application/json", "text/event-stream"])
def test_a_page(proxy: Groundwire, model: ModelServer, road: str, stream: bool, label: str) -> None:
    model.script(Turn(body=b"\n" + PAGE, content_type=label))
    answer = ask(proxy, road, stream=stream)
    assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_bad_response")
    assert "<h1>" not in answer.text
    assert "Bad gateway" in proxy.logged("expected an answer, got"), "its first bytes, for who may see contents"
    assert outcome(proxy, answer) == "upstream_bad_response"


@fault(10, FORWARDED)
@BOTH_FORMS
@pytest.mark.parametrize("body", [b"", b" \n", b"Bad gateway", b'{"choices": ['])
def test_nothing_or_half_of_it(proxy: Groundwire, model: ModelServer, road: str, stream: bool, body: bytes) -> None:
    model.script(Turn(body=body))
    answer = ask(proxy, road, stream=stream)
    assert answer.status_code == 502
    assert error_of(answer)["code"] in ("upstream_bad_response", "upstream_truncated")
    assert outcome(proxy, answer) == error_of(answer)["code"]


@fault(11, *BOTH)
@pytest.mark.parametrize("label", ["application/json", "text/event-stream"])
def test_json_where_a_stream_was_asked_for(proxy: Groundwire, model: ModelServer, road: str, label: str) -> None:
    model.script(Turn(body=json.dumps(WHOLE).encode(), content_type=label))
    answer = ask(proxy, road, stream=True)
    said = [choice for chunk in chunks(answer) for choice in chunk["choices"]]
    assert "".join(choice["delta"].get("content") or "" for choice in said) == SAID
    assert [choice["finish_reason"] for choice in said if choice.get("finish_reason")] == ["stop"]
    assert outcome(proxy, answer) == "ok"
    assert " output_tokens=5 " in proxy.logged(answer.headers["x-request-id"])


@fault(12, *BOTH)
@pytest.mark.parametrize("label", ["application/json", "text/event-stream"])
def test_a_stream_where_json_was_asked_for(proxy: Groundwire, model: ModelServer, road: str, label: str) -> None:
    model.script(Turn(body=STREAMED, content_type=label))
    answer = ask(proxy, road)
    assert answer.headers["content-type"] == "application/json"
    (choice,) = answer.json()["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (SAID, "stop")
    assert outcome(proxy, answer) == "ok"
    assert " output_tokens=5 " in proxy.logged(answer.headers["x-request-id"])


@fault(12, FORWARDED)
@pytest.mark.parametrize("wish", [{"n": 2}, {"logprobs": True}])
def test_one_that_no_body_can_be_made_of(
    proxy: Groundwire, model: ModelServer, road: str, wish: dict[str, Any]
) -> None:
    model.script(Turn(body=STREAMED, content_type="text/event-stream"))
    answer = ask(proxy, road, **wish)
    assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_bad_response")


FIRST_ERRORS = {
    "event": (b'data: {"error":{"message":"no","code":400}}\n\n', 400),
    "vLLM": (b'data: {"object":"error","message":"no","code":400}\n\n', 400),
    "Gemini": (b'data: [{"error":{"message":"no","code":429}}]\n\n', 429),
    "behind comments": (b': hm\n\n: hm\n\ndata: {"error":{"message":"no","code":400}}\n\n', 400),
    "behind the role": (
        b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\ndata: {"error":{"message":"no"}}\n\n',
        502,
    ),
    "body": (b'{"error":{"message":"no","code":429}}', 429),
    "words": (b'{"error":"no"}', 502),
    "our key": (b'{"error":{"message":"bad key","code":401}}', 502),
}


@fault(13, *BOTH)
@BOTH_FORMS
@pytest.mark.parametrize("name", FIRST_ERRORS)
def test_an_error_in_a_200(proxy: Groundwire, model: ModelServer, road: str, stream: bool, name: str) -> None:
    body, status = FIRST_ERRORS[name]
    model.script(Turn(body=body, content_type="application/json" if body.startswith(b"{") else "text/event-stream"))
    answer = ask(proxy, road, stream=stream)
    assert answer.status_code == status
    assert error_of(answer)["message"].startswith("The model's server refused the key" if name == "our key" else "no")
    line = proxy.logged(answer.headers["x-request-id"])
    assert f" model_failures=scripted:{status}" in line
    assert outcome(proxy, answer) != "ok"


@fault(13, *BOTH)
def test_a_key_that_it_repeats_is_not_passed_on(proxy: Groundwire, model: ModelServer, road: str) -> None:
    model.script(Turn(body=f'data: {{"error":{{"message":"bad key {KEY}","code":400}}}}\n\n'.encode()))
    answer = ask(proxy, road, stream=True)
    assert (answer.status_code, error_of(answer)["message"]) == (400, "bad key ***")
    assert outcome(proxy, answer) in ("400", "http_400")


@fault(13, FORWARDED)
@BOTH_FORMS
def test_who_stands_in_is_asked(config: dict[str, Any], model: ModelServer, road: str, stream: bool) -> None:
    with ModelServer() as spare:
        upstreams = [
            {"name": "first", "base_url": model.url, "models": ["*"], "fallback": ["spare"]},
            {"name": "spare", "base_url": spare.url, "models": ["none"]},
        ]
        with Groundwire({**config, "upstreams": upstreams}) as proxy:
            for body in (PAGE, b'data: {"error":{"message":"busy","code":503}}\n\n', b""):
                model.script(Turn(body=body, content_type="text/html"))
                spare.script(Turn(body=STREAMED if stream else json.dumps(WHOLE).encode()))
                answer = ask(proxy, road, stream=stream)
                assert answer.content == (STREAMED if stream else json.dumps(WHOLE).encode())
                assert outcome(proxy, answer) == "ok"
                assert " model_failures=first:50" in proxy.logged(answer.headers["x-request-id"])
