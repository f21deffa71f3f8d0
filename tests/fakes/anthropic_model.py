"""Anthropic's Messages API on loopback: named SSE events, content blocks, thinking that is signed and must come back.

Handed turns like every fake; asserts roles, blocks, tools and signatures of what it is sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.fakes.model import Turn
from tests.fakes.vendor_model import VendorServer, arguments_of, halves, reason_of

SIGNATURE = "EqQBCkYICxgCKkA=="
_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
_KINDS = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
_KINDS |= {429: "rate_limit_error", 500: "api_error", 529: "overloaded_error"}
_NAMES = (
    "model messages max_tokens system tools tool_choice stream temperature top_p top_k stop_sequences thinking "
    "metadata service_tier output_config output_format"
)
_FIELDS = frozenset(_NAMES.split())


class AnthropicServer(VendorServer):
    searches = 0  # that the vendor has run itself, before it says anything

    def pieces(self, turn: Turn) -> Iterator[bytes]:
        start = {**_message(turn), "content": [], "stop_reason": None, "usage": {**_usage(turn), "output_tokens": 1}}
        yield _event("message_start", message=start)
        yield _event("ping")
        for at in range(self.searches):
            yield _event("content_block_start", index=at, content_block=_found(at))
            yield _event("content_block_stop", index=at)
        for index, block in enumerate(_blocks(turn), self.searches):
            kind = block["type"]
            empty: dict[str, dict[str, Any]] = {
                "thinking": {"thinking": "", "signature": ""},
                "text": {"text": ""},
                "tool_use": {"input": {}},
            }
            yield _event("content_block_start", index=index, content_block={**block, **empty[kind]})
            for delta in _deltas(block, turn):
                yield _event("content_block_delta", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        end = {"stop_reason": reason_of(turn, _REASONS), "stop_sequence": None}
        yield _event("message_delta", delta=end, usage={"output_tokens": _usage(turn)["output_tokens"]})
        yield _event("message_stop")

    def answer(self, turn: Turn) -> dict[str, Any]:
        return _message(turn)

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"type": "error", "error": {"type": _KINDS[status], "message": message}, "request_id": "req_1"}

    def break_off(self, message: str) -> bytes:
        return _event("error", error={"type": "overloaded_error", "message": message})

    def rules(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Iterator[tuple[object, str]]:
        yield path.partition("?")[0] == "/v1/messages", f"no such path: {path}"
        yield headers.get("anthropic-version") == "2023-06-01", "anthropic-version: header is required"
        yield headers.get("x-api-key"), "x-api-key: header is required"
        yield set(body) <= _FIELDS, f"{sorted(set(body) - _FIELDS)}: Extra inputs are not permitted"
        yield isinstance(body.get("max_tokens"), int), "max_tokens: Field required"
        for tool in body.get("tools") or ():
            schema = tool.get("input_schema") or {}
            yield tool.get("name") and schema.get("type") == "object", "tools: input_schema.type: Field required"
        messages = body["messages"]
        roles = [message["role"] for message in messages]
        yield roles == [("user", "assistant")[at % 2] for at in range(len(roles))], f"roles must alternate: {roles}"
        for before, message in zip([None, *messages], messages, strict=False):
            results = [b["tool_use_id"] for b in _listed(message) if b["type"] == "tool_result"]
            calls = [b["id"] for b in _listed(before) if b["type"] == "tool_use"] if before else []
            yield results == calls, f"`tool_use` ids {calls} need `tool_result` blocks right after, not {results}"
            if message["role"] == "assistant" and calls_in(message) and body.get("thinking"):
                first = _listed(message)[0]
                yield first["type"] == "thinking", "Expected `thinking` before `tool_use`, but found something else"
                yield first.get("signature") == SIGNATURE, "Invalid `signature` in `thinking` block"


def calls_in(message: dict[str, Any]) -> list[dict[str, Any]]:
    return [block for block in _listed(message) if block["type"] == "tool_use"]


def _listed(message: dict[str, Any] | None) -> list[dict[str, Any]]:
    content = (message or {}).get("content") or []
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields}, ensure_ascii=False)}\n\n".encode()


def _found(at: int) -> dict[str, Any]:
    hit = {"type": "web_search_result", "url": f"https://found.example/{at:08}", "title": "Found", "page_age": None}
    return {"type": "web_search_tool_result", "tool_use_id": f"srvtoolu_{at:08}", "content": [hit]}


def _blocks(turn: Turn) -> Iterator[dict[str, Any]]:
    if turn.reasoning:
        yield {"type": "thinking", "thinking": "".join(turn.reasoning), "signature": SIGNATURE}
    if turn.text:
        yield {"type": "text", "text": "".join(turn.text)}
    for call_id, name, given in turn.calls:
        yield {"type": "tool_use", "id": call_id, "name": name, "input": arguments_of(given)}


def _deltas(block: dict[str, Any], turn: Turn) -> Iterator[dict[str, Any]]:
    if block["type"] == "thinking":
        for thought in turn.reasoning:
            yield {"type": "thinking_delta", "thinking": thought}
        yield {"type": "signature_delta", "signature": SIGNATURE}
    elif block["type"] == "text":
        for piece in turn.text:
            yield {"type": "text_delta", "text": piece}
    else:
        yield {"type": "input_json_delta", "partial_json": ""}
        for half in halves(json.dumps(block["input"], ensure_ascii=False)):
            yield {"type": "input_json_delta", "partial_json": half}


def _usage(turn: Turn) -> dict[str, int]:
    usage = turn.usage or {}
    return {
        "input_tokens": usage.get("prompt_tokens", 0),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": usage.get("completion_tokens", 0),
    }


def _message(turn: Turn) -> dict[str, Any]:
    return {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": list(_blocks(turn)),
        "stop_reason": reason_of(turn, _REASONS),
        "stop_sequence": None,
        "usage": _usage(turn),
    }
