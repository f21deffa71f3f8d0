"""Chat messages as clients and models write them, read in one place: who speaks, what is said, what is called. Handed
anything that stands in a `messages` list; hands on plain values, and nothing where there is nothing to read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson


def role_of(message: object) -> str:
    role = message.get("role") if type(message) is dict else None
    return role if type(role) is str else ""


def is_text(part: object) -> bool:
    """Is this part of a message's content text? (Others are images, sound, files.)"""
    return isinstance(part, dict) and isinstance(part.get("text"), str)


def texts_in(content: object) -> list[str]:
    """The texts of a message's content: all of it, or its parts."""
    if type(content) is str:
        return [content]
    if type(content) is list:
        return [part["text"] for part in content if is_text(part)]
    return []


def image_urls(content: object) -> list[str]:
    """Where the pictures of a message's content are."""
    found = [part.get("image_url") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    urls = [image.get("url") if isinstance(image, dict) else image for image in found]
    return [url for url in urls if isinstance(url, str) and not url.startswith("data:")]


def text_of(message: object, between: str = "") -> str:
    """All that a message says."""
    return between.join(texts_in(message.get("content"))) if isinstance(message, dict) else ""


def said_since_question(messages: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What the assistant has said since the last question: a client that ran its tools sends it back."""
    said: list[str] = []
    for message in reversed(messages):
        role = message.get("role")
        if role == "user":
            break
        if role == "assistant":
            said += texts_in(message.get("content"))
    return tuple(said)


def calls_in(message: object) -> list[dict[str, Any]]:
    """The calls that a message of a history makes, as far as they have an id."""
    calls = message.get("tool_calls") if type(message) is dict else None  # most have none: it is looked at first
    if type(calls) is not list or role_of(message) != "assistant":
        return []
    return [call for call in calls if isinstance(call, dict) and isinstance(call.get("id"), str)]


def answered_id(message: object) -> str:
    """The call that a message is the result of."""
    id_ = message.get("tool_call_id") if isinstance(message, dict) else None
    return id_ if isinstance(id_, str) else ""


def call_name(call: Mapping[str, Any]) -> str:
    function = call.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else ""


def arguments_of(arguments: object) -> Any:
    """What arguments say, however they are spaced; those that are no JSON say what they are."""
    try:
        return orjson.loads(arguments or "{}")  # type: ignore[arg-type]  # what is no text is refused as such
    except (orjson.JSONDecodeError, TypeError):
        return arguments
