"""Models that cannot call tools: what is searched before they are asked, what they are handed, and what their refusals
look like from outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn

ASKED = "Why is the sky blue?"
ROADS = {
    "chat": ("/chat/completions", {"messages": [{"role": "user", "content": ASKED}]}),
    "responses": ("/responses", {"input": ASKED}),
    "messages": ("/messages", {"messages": [{"role": "user", "content": ASKED}], "max_tokens": 100}),
}


@pytest.fixture(scope="module")
def first(config: dict[str, Any]) -> Iterator[Groundwire]:
    (given,) = config["upstreams"]
    with Groundwire({**config, "upstreams": [{**given, "tool_calls": "none"}]}) as running:
        yield running


# What a model refuses


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("status", [400, 429, 503])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_refusal_keeps_its_status(
    first: Groundwire, model: ModelServer, road: str, status: int, stream: bool
) -> None:
    model.script(Turn(status=status, body=b'{"error":{"message":"no"}}', headers={"retry-after": "70"}))
    path, body = ROADS[road]
    answer = httpx.post(f"{first.url}{path}", json={"model": "m", "stream": stream, **body}, timeout=20)
    shown = 529 if road == "messages" and status == 503 else status  # Anthropic's own word for it
    assert (answer.status_code, answer.headers["content-type"]) == (shown, "application/json")
    assert answer.headers["x-groundwire-search"].endswith("searched=first")
    if status != 400:
        assert answer.headers["retry-after"] == "70"
        assert "x-should-retry" not in answer.headers, "the client may come back: what was searched is remembered"
