"""The line that the log writes for each request: its status, and how it ended, whichever way it failed."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, call, text

SEARCH_OFF = {"x-groundwire-search": "off"}
LANES = pytest.mark.parametrize("headers", [{}, SEARCH_OFF], ids=["answered", "forwarded"])
HALF = text("Half", end="reset", finish=None, usage=None)


def line(proxy: Groundwire, headers: dict[str, str], stream: bool = False) -> str:
    """What the log says of a question."""
    sent = {"model": "m", "messages": [{"role": "user", "content": "Why is the sky blue?"}], "stream": stream}
    answer = httpx.post(f"{proxy.url}/chat/completions", json=sent, headers=headers, timeout=20)
    said = proxy.logged(answer.headers["x-request-id"])
    assert f" POST /v1/chat/completions {answer.status_code} " in said
    return said


@LANES
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_an_answer(proxy: Groundwire, model: ModelServer, stream: bool, headers: dict[str, str]) -> None:
    model.script(text("Hello."))
    said = line(proxy, headers, stream)
    assert "completions 200 " in said
    assert " outcome=ok " in said


@LANES
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_refusal_of_the_models_server(
    proxy: Groundwire, model: ModelServer, stream: bool, headers: dict[str, str]
) -> None:
    model.script(Turn(status=503, body=b'{"error":{"message":"busy","code":"overloaded"}}'))
    said = line(proxy, headers, stream)
    assert "completions 503 " in said
    assert " outcome=overloaded " in said


@LANES
def test_a_stream_that_breaks_off(proxy: Groundwire, model: ModelServer, headers: dict[str, str]) -> None:
    model.script(HALF)
    said = line(proxy, headers, stream=True)
    assert "completions 200 " in said
    assert " outcome=upstream_truncated " in said


def test_a_whole_answer_that_fails_in_its_second_round(proxy: Groundwire, model: ModelServer) -> None:
    model.script(call("web_search", {"query": "sky"}), HALF)
    said = line(proxy, {})
    assert "completions 502 " in said
    assert " outcome=upstream_" in said


@LANES
def test_a_whole_answer_that_takes_too_long(
    model: ModelServer, config: dict[str, Any], headers: dict[str, str]
) -> None:
    with Groundwire({**config, "server": {"request_timeout": 0.4}}) as proxy:
        model.script(text("late", delay=30.0))
        said = line(proxy, headers)
        assert "completions 504 " in said
        assert " outcome=request_timeout " in said


def test_a_bad_request(proxy: Groundwire) -> None:
    answer = httpx.post(f"{proxy.url}/chat/completions", json={"model": "m", "messages": []}, timeout=20)
    said = proxy.logged(answer.headers["x-request-id"])
    assert "completions 400 " in said
    assert " outcome=" in said
    assert " outcome=ok " not in said
