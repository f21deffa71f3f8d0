"""Every repair of a model's bad output, and nothing else. Handed pieces of an answer as a server sent them, hands on
what they meant. Each function names who sends such a thing.
"""

from __future__ import annotations

from typing import Any

import orjson

from ..events import Event, ReasoningDelta, TextDelta


def call_name(name: object) -> str:
    """The bare function name. gpt-oss on vLLM writes `functions.ls<|channel|>commentary`; LM Studio repeats ""."""
    if not isinstance(name, str):
        return ""
    return name.split("<|", 1)[0].strip().removeprefix("functions.")


def call_arguments(arguments: object) -> str:
    """The arguments as the JSON text they should be. Ollama's native shape and LiteLLM send an object, or null."""
    if arguments is None or arguments == "":
        return ""
    return arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()


def content_parts(content: Any) -> list[Event]:
    """Content as a list of parts (Mistral): text is text, thinking is reasoning."""
    out: list[Event] = []
    for part in content if isinstance(content, list) else ():
        if not isinstance(part, dict):
            continue
        if part.get("type") == "text" and part.get("text"):
            out.append(TextDelta(str(part["text"])))
        elif part.get("type") == "thinking":
            thinking = part.get("thinking")
            pieces = thinking if isinstance(thinking, list) else [{"text": thinking}]
            text = "".join(str(piece.get("text") or "") for piece in pieces if isinstance(piece, dict))
            if text:
                out.append(ReasoningDelta({"reasoning_content": text}))
    return out


def replayable(arguments: str) -> str:
    """Arguments as they may stand in the history: Ollama and vLLM refuse old calls that are no JSON objects."""
    try:
        value = orjson.loads(arguments or "{}")
        if isinstance(value, str):  # encoded twice
            value = orjson.loads(value)
            arguments = orjson.dumps(value).decode()
    except orjson.JSONDecodeError:
        return "{}"
    return (arguments or "{}") if isinstance(value, dict) else "{}"
