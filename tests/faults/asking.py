"""Asks a running Groundwire on one of its two roads, and reads what came."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tests.fakes.groundwire import Groundwire
from tests.faults.table import FORWARDED

QUESTION = {"role": "user", "content": "Why is the sky blue?"}


def road_headers(road: str) -> dict[str, str]:
    return {"x-groundwire-search": "off"} if road == FORWARDED else {}


def ask(
    proxy: Groundwire, road: str, *, headers: dict[str, str] | None = None, timeout: float = 20, **fields: Any
) -> httpx.Response:
    """One chat completion; `stream=True` among the fields reads the stream to its end."""
    sent = {"model": "m", "messages": [QUESTION], **fields}
    said = {**road_headers(road), **(headers or {})}
    return httpx.post(f"{proxy.url}/chat/completions", json=sent, headers=said, timeout=timeout)


def error_of(answer: httpx.Response) -> dict[str, Any]:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return dict(error)


def error_event(answer: httpx.Response) -> dict[str, Any]:
    """The error that a begun stream ends in: the last event, with no finish and no `[DONE]`."""
    assert answer.status_code == 200
    assert "[DONE]" not in answer.text
    assert '"finish_reason":"stop"' not in answer.text
    return dict(json.loads(answer.text.strip().rsplit("data: ", 1)[1])["error"])
