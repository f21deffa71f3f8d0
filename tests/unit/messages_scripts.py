"""Answers as the engine hands them on, and ways to see what the Messages dialect makes of them: the events of a stream,
checked for the order that clients rely on, and the message that a client puts together of them.
"""

from __future__ import annotations

import json
from typing import Any

from proxy.dialects.messages.encoder import Encoder
from proxy.dialects.messages.handles import Handles
from proxy.dialects.messages.request import decode
from proxy.values.events import Event

SERVER_TOOL = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
FETCH_TOOL = {"type": "web_fetch_20250910", "name": "web_fetch"}
HANDLES = Handles(b"secret", "owner")


def body(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Why is the sky blue?"}]
    return {"model": "asked", "max_tokens": 100, "messages": messages, **fields}


def encoder(**fields: Any) -> Encoder:
    return Encoder(decode(json.dumps(body(**fields)).encode()), HANDLES)


def payloads(data: bytes) -> list[dict[str, Any]]:
    """The events of a stream; each bears the name that its payload has."""
    out: list[dict[str, Any]] = []
    for frame in data.decode().split("\n\n")[:-1]:
        name, _, payload = frame.partition("\n")
        event = json.loads(payload.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        out.append(event)
    return out


def stream(events: list[Event], **fields: Any) -> list[dict[str, Any]]:
    return payloads(encoder(**fields).feed(events))


def gathered(sent: list[dict[str, Any]]) -> dict[str, Any]:
    """The message as a client puts it together, which is strict about the order."""
    sent = [event for event in sent if event["type"] != "ping"]
    assert [sent[0]["type"], sent[-2]["type"], sent[-1]["type"]] == ["message_start", "message_delta", "message_stop"]
    message: dict[str, Any] = json.loads(json.dumps(sent[0]["message"]))
    inputs: dict[int, str] = {}
    is_open = False
    for event in sent[1:-2]:
        if event["type"] == "content_block_start":
            assert not is_open
            assert event["index"] == len(message["content"])
            message["content"].append(json.loads(json.dumps(event["content_block"])))
            is_open = True
            continue
        assert is_open
        assert event["index"] == len(message["content"]) - 1
        if event["type"] == "content_block_stop":
            is_open = False
        else:
            _add(message["content"][-1], event["delta"], inputs, event["index"])
    for index, given in inputs.items():
        message["content"][index]["input"] = json.loads(given)
    assert not is_open
    message |= sent[-2]["delta"]
    message["usage"] = sent[-2]["usage"]
    return message


def _add(block: dict[str, Any], delta: dict[str, Any], inputs: dict[int, str], index: int) -> None:
    kind = delta["type"]
    if kind == "text_delta":
        assert "citations" not in block, "citations stand behind their text"
        block["text"] += delta["text"]
    elif kind == "citations_delta":
        block.setdefault("citations", []).append(delta["citation"])
    elif kind == "thinking_delta":
        block["thinking"] += delta["thinking"]
    elif kind == "signature_delta":
        block["signature"] = delta["signature"]
    else:
        assert kind == "input_json_delta"
        inputs[index] = inputs.get(index, "") + delta["partial_json"]


def short(message: dict[str, Any]) -> list[Any]:
    """Blocks in few words: a text with the pages that it cites, a call, a result."""
    return [_short(block) for block in message["content"]]


def _short(block: dict[str, Any]) -> Any:
    kind = block["type"]
    if kind == "text":
        cited = [mark["url"] for mark in block.get("citations") or ()]
        return (block["text"], *cited) if cited else block["text"]
    if kind == "thinking":
        return f"<{block['thinking']}|{block['signature']}>"
    if kind in ("tool_use", "server_tool_use"):
        return kind, block["name"], block["input"]
    content = block.get("content")
    if isinstance(content, dict):
        return kind, content.get("error_code") or content["url"]
    return kind, *(result["url"] for result in content or ())


def text_of(message: dict[str, Any]) -> str:
    return "".join(block["text"] for block in message["content"] if block["type"] == "text")
