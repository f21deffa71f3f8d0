"""Ollama's native `/api/chat` on loopback: one JSON object per line, whole calls with their arguments as objects.

Handed turns like every fake; asserts roles, tools and old calls of what it is sent. Ollama gives calls no id.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.fakes.model import Turn
from tests.fakes.vendor_model import VendorServer, arguments_of, reason_of

_REASONS = {"stop": "stop", "tool_calls": "stop", "length": "length", "content_filter": "stop"}
_NAMES = "model messages tools stream format options keep_alive think logprobs top_logprobs"
_FIELDS = frozenset(_NAMES.split())


class OllamaServer(VendorServer):
    stream_type = "application/x-ndjson"

    def is_stream(self, path: str, body: dict[str, Any]) -> bool:
        return bool(body.get("stream", True))

    def pieces(self, turn: Turn) -> Iterator[bytes]:
        for thought in turn.reasoning:
            yield _line({"role": "assistant", "content": "", "thinking": thought})
        for piece in turn.text:
            yield _line({"role": "assistant", "content": piece})
        if turn.calls:
            yield _line({"role": "assistant", "content": "", "tool_calls": _calls(turn)})
        yield _line({"role": "assistant", "content": ""}, **_end(turn))

    def answer(self, turn: Turn) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(turn.text)}
        if turn.reasoning:
            message["thinking"] = "".join(turn.reasoning)
        if turn.calls:
            message["tool_calls"] = _calls(turn)
        return {**_head(), "message": message, **_end(turn)}

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": message}

    def break_off(self, message: str) -> bytes:
        return json.dumps({"error": message}).encode() + b"\n"

    def rules(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Iterator[tuple[object, str]]:
        yield path == "/api/chat", f"no such path: {path}"
        yield set(body) <= _FIELDS, f"unknown fields {sorted(set(body) - _FIELDS)}"
        for tool in body.get("tools") or ():
            yield tool.get("type") == "function" and tool["function"].get("name"), "invalid tool"
        for message in body["messages"]:
            yield message["role"] in ("system", "user", "assistant", "tool"), f"invalid role: {message['role']}"
            yield isinstance(message.get("content", ""), str), "content must be text"
            for called in message.get("tool_calls") or ():
                yield isinstance(called["function"]["arguments"], dict), "arguments must be an object"


def _head() -> dict[str, Any]:
    return {"model": "qwen3", "created_at": "2026-01-01T00:00:00.000000Z"}


def _line(message: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({**_head(), "message": message, "done": False, **more}, ensure_ascii=False).encode() + b"\n"


def _calls(turn: Turn) -> list[dict[str, Any]]:
    return [{"function": {"name": name, "arguments": arguments_of(given)}} for _, name, given in turn.calls]


def _end(turn: Turn) -> dict[str, Any]:
    usage = turn.usage or {}
    counts = {"prompt_eval_count": usage.get("prompt_tokens", 0), "eval_count": usage.get("completion_tokens", 0)}
    return {"done": True, "done_reason": reason_of(turn, _REASONS), "total_duration": 5_000_000, **counts}
