"""What the forwarded road reads of a completions server's JSON: whole bodies and the data of events. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson

from providers.apart import apart

from ..upstreams.server_json import has_too_many_parts
from ..values import patient_json
from ..values.errors import as_error
from ..values.events import Failed

NO_JSON: Any = object()


def parsed(data: bytes) -> Any:
    """The JSON that it is, even if it is loosely written (NaN, half characters); else `NO_JSON`."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return NO_JSON


def parsed_event(data: bytes) -> Any:
    """The same of an event, which is read on the event loop: more of it than an event can be is none."""
    return NO_JSON if has_too_many_parts(data) else parsed(data)


async def parsed_apart(data: bytes) -> Any:
    """The same of a whole body, which may be long: apart from the loop."""
    return await apart(len(data), _parsed_patiently, data)


def _parsed_patiently(data: bytes) -> Any:
    if not patient_json.is_of_many_parts(data):
        return parsed(data)
    try:
        return patient_json.read(data)
    except ValueError:
        return NO_JSON


def is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def replaced(data: bytes) -> bytes:
    """As text, with a mark in place of whatever is none."""
    return data.decode("utf-8", "replace").encode()


def has_openai_shape(error: object) -> bool:
    """Is it an error as OpenAI's clients read it?"""
    found = error.get("error") if isinstance(error, dict) else None
    return isinstance(found, dict) and isinstance(found.get("message"), str)


def usage_in(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a chunk or a whole answer says that it cost. Groq says it in a place of its own."""
    usage = answer.get("usage")
    if not usage and "x_groq" in answer:
        groq = answer["x_groq"]
        usage = groq.get("usage") if isinstance(groq, dict) else None
    return usage if isinstance(usage, dict) else {}


def error_in(answer: object) -> Failed | None:
    """The error that it is. Some servers say in every chunk that there is none."""
    if isinstance(answer, dict) and "error" not in answer and answer.get("object") != "error":
        return None
    return as_error(answer)


def as_chunk(answer: object) -> dict[str, Any] | None:
    """A whole answer as the one chunk of a stream; None if it is not whole."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or not isinstance(choices, list):
        return None
    if not any(isinstance(choice, dict) and choice.get("finish_reason") for choice in choices):
        return None
    chunk = {**answer, "choices": [_with_delta(choice) for choice in choices]}
    if any("delta" in choice for choice in chunk["choices"] if isinstance(choice, dict)):
        chunk["object"] = "chat.completion.chunk"
    return chunk


def _with_delta(choice: Any) -> Any:
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        return choice
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        numbered = [{"index": index, **call} if isinstance(call, dict) else call for index, call in enumerate(calls)]
        message = {**message, "tool_calls": numbered}
    return {"delta": message} | {name: value for name, value in choice.items() if name != "message"}
