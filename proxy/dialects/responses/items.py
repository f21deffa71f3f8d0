"""The items of a Responses conversation, one at a time. Handed an item as a client wrote it, `normalise` hands on its
normal form or refuses it; handed normal content, `chat_content` hands on what a Chat Completions message holds.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...values.errors import RequestError, refuse

ROLES = ("user", "assistant", "system", "developer")
_CALL_TYPES = ("function_call", "custom_tool_call")  # of the client's tools
_RESULT_TYPES = ("function_call_output", "custom_tool_call_output")
OUTPUT_TYPES = ("message", "web_search_call", "reasoning", *_CALL_TYPES, "tool_search_call")
# What only its vendor can read: calls of tools that run there with their results, and conversations summed up there.
_VENDOR_ITEMS = re.compile(
    r"\w+_call(?:_output)?|mcp_\w+|tool_search_output|program(?:_output)?|(?:context_)?compaction"
)
_TEXT_PARTS = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "summary_text": "text",
    "refusal": "refusal",
}
_MEDIA_PARTS = ("input_image", "input_file", "input_audio")
_TEXT_FILE = re.compile(r"data:(?:text/[^;,]+|application/(?:json|xml|yaml|x-yaml))(?:;[^,]*)?;base64,(.*)", re.DOTALL)


def is_call(item: Mapping[str, Any]) -> bool:
    """Did the model call a tool of the client's? A search for tools that its vendor ran is none."""
    return item["type"] in _CALL_TYPES or (item["type"] == "tool_search_call" and isinstance(item.get("call_id"), str))


def is_result(item: Mapping[str, Any]) -> bool:
    return item["type"] in _RESULT_TYPES or is_tool_search_result(item)


def is_tool_search_result(item: Mapping[str, Any]) -> bool:
    """Are these tools that the client has searched for?"""
    found = item["type"] == "tool_search_output" and isinstance(item.get("call_id"), str)
    return found and isinstance(item.get("tools"), list)


def declares_tools(item: Mapping[str, Any]) -> bool:
    return item["type"] == "additional_tools" or is_tool_search_result(item)


# What comes in


def normalise(item: Any, param: str) -> dict[str, Any]:
    """Every message with its type and a list of parts; a reference with its type; every field that we need in place."""
    if not isinstance(item, dict):
        raise refuse(400, f"`{param}` must be an object.", param=param, code="invalid_type")
    kind = item.get("type") or ("message" if "role" in item else "item_reference")
    check = _CHECKS.get(kind) if isinstance(kind, str) else None
    if check is None and isinstance(kind, str) and _VENDOR_ITEMS.fullmatch(kind):
        check = _anything
    if check is None:
        raise invalid(f"{param}.type", f"Items of type '{kind}' are not supported.")
    return {**check(item, param), "type": kind}


def _message(item: dict[str, Any], param: str) -> dict[str, Any]:
    role = item.get("role")
    if role not in ROLES:
        raise invalid(f"{param}.role", f"`{param}.role` must be one of {', '.join(ROLES)}.")
    content = item.get("content")
    if isinstance(content, str):
        spoken = {"type": "output_text", "annotations": []} if role == "assistant" else {"type": "input_text"}
        return {**item, "content": [{**spoken, "text": content}]}
    if not isinstance(content, list):
        text = f"`{param}.content` must be a string or a list of parts."
        raise refuse(400, text, param=f"{param}.content", code="invalid_type")
    media = () if role == "assistant" else _MEDIA_PARTS
    _check_parts(content, f"{param}.content", media)
    return item


def _check_parts(parts: list[Any], param: str, media: tuple[str, ...]) -> None:
    for i, part in enumerate(parts):
        place = f"{param}[{i}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind in _TEXT_PARTS:
            _need_text(part, _TEXT_PARTS[kind], place)
        elif kind in media:
            _check_media(part, place)
        else:
            raise invalid(f"{place}.type", f"Content of type '{kind}' is not supported here.")


def _check_media(part: Mapping[str, Any], place: str) -> None:
    """No file is kept here, and Chat Completions fetches none: send the content, or the URL of an image."""
    for name in ("file_id", "file_url"):
        if part.get(name):
            raise invalid(f"{place}.{name}", f"`{name}` is not supported: send the content itself.")
    if part["type"] == "input_image":
        _need_text(part, "image_url", place)
    elif part["type"] == "input_file":
        _need_text(part, "file_data", place)
    elif not isinstance(part.get("input_audio"), dict):
        raise missing(f"{place}.input_audio")


def _function_call(item: dict[str, Any], param: str) -> dict[str, Any]:
    for name in ("call_id", "name", "arguments"):
        _need_text(item, name, param)
    return item


def _custom_tool_call(item: dict[str, Any], param: str) -> dict[str, Any]:
    for name in ("call_id", "name", "input"):
        _need_text(item, name, param)
    return item


def _function_call_output(item: dict[str, Any], param: str) -> dict[str, Any]:
    _need_text(item, "call_id", param)
    output = item.get("output")
    if isinstance(output, list):
        _check_parts(output, f"{param}.output", _MEDIA_PARTS)
    else:
        _need_text(item, "output", param)
    return item


def _additional_tools(item: dict[str, Any], param: str) -> dict[str, Any]:
    if not isinstance(item.get("tools"), list):
        raise missing(f"{param}.tools")
    return item


def _reference(item: dict[str, Any], param: str) -> dict[str, Any]:
    _need_text(item, "id", param)
    return item


def _anything(item: dict[str, Any], param: str) -> dict[str, Any]:
    return item


def _need_text(item: Mapping[str, Any], name: str, param: str) -> None:
    if not isinstance(item.get(name), str):
        raise missing(f"{param}.{name}")


_CHECKS: dict[str, Callable[[dict[str, Any], str], dict[str, Any]]] = {
    "message": _message,
    "function_call": _function_call,
    "function_call_output": _function_call_output,
    "custom_tool_call": _custom_tool_call,
    "custom_tool_call_output": _function_call_output,
    "item_reference": _reference,
    "additional_tools": _additional_tools,
    "web_search_call": _anything,
    "reasoning": _anything,
}


# What goes up


def text_of(parts: Iterable[Mapping[str, Any]]) -> str:
    """All that was said. A refusal is read as text: only OpenAI's own models know it as anything else."""
    return "".join(part[_TEXT_PARTS[part["type"]]] for part in parts if part["type"] in _TEXT_PARTS)


def chat_content(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Text where that is all there is: some servers take nothing else."""
    converted = [_chat_part(part) for part in parts]
    texts = [part["text"] for part in converted if part["type"] == "text"]
    if len(texts) < len(converted):
        return converted
    return texts[0] if len(texts) == 1 else "\n".join(texts)


def _chat_part(part: dict[str, Any]) -> dict[str, Any]:
    kind = part["type"]
    if kind in _TEXT_PARTS:
        return {"type": "text", "text": part[_TEXT_PARTS[kind]]}
    if kind == "input_image":
        detail = {"detail": part["detail"]} if part.get("detail") else {}
        return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}}
    if kind == "input_audio":
        return {"type": kind, kind: part[kind]}
    name = part.get("filename") or "file"
    text = _text_file(part["file_data"])
    if text is not None:
        return {"type": "text", "text": f"{name}:\n\n{text}"}
    return {"type": "file", "file": {"filename": name, "file_data": part["file_data"]}}


def _text_file(data: str) -> str | None:
    """What a file says, if it is plain text: then every model can read it."""
    found = _TEXT_FILE.match(data)
    try:
        return base64.b64decode(found[1]).decode("utf-8", "replace") if found else None
    except ValueError:
        return None


def missing(param: str) -> RequestError:
    return refuse(400, f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")


def invalid(param: str, text: str) -> RequestError:
    return refuse(400, text, param=param, code="invalid_value")
