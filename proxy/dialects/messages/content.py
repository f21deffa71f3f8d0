"""Content blocks that people and their tools send, as parts of chat messages. Handed blocks as a client wrote them;
hands on what a Chat Completions message holds, or refuses what no model here could read.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from ...values.errors import RequestError, quoted, refuse

_PICTURE_URL = re.compile(r"https?://|data:image/", re.IGNORECASE)
_MEDIA_TYPE = re.compile(r"[\w.+-]{1,64}/[\w.+-]{1,64}", re.ASCII)
_ERROR_SAID = re.compile(r"\s*(?:<\w*error\b|\w*error\b)", re.IGNORECASE)


def blocks_of(content: Any, param: str) -> list[dict[str, Any]]:
    """A message's content as a list of blocks, each with its type."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise refuse(400, f"`{param}` must be a string or a list of blocks.", param=param, code="invalid_type")
    for place, block in enumerate(content):
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str):
            raise refuse(400, f"`{param}.{place}.type` is missing.", param=f"{param}.{place}.type")
        if kind == "text" and not isinstance(block.get("text"), str):
            raise refuse(400, f"`{param}.{place}.text` must be a string.", param=f"{param}.{place}.text")
    return content


def text_of(blocks: Sequence[Mapping[str, Any]], between: str = "\n") -> str:
    return between.join(block["text"] for block in blocks if block["type"] == "text")


def chat_content(parts: Sequence[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Text where that is all there is: some servers take nothing else."""
    texts = [part["text"] for part in parts if part["type"] == "text"]
    return "\n".join(texts) if len(texts) == len(parts) else list(parts)


def chat_parts(block: Mapping[str, Any], param: str) -> list[dict[str, Any]]:
    """What one block of a user's message says."""
    kind = block["type"]
    if kind == "text":
        return [_text(block["text"])]
    if kind == "image":
        return [_image(block.get("source"), param)]
    if kind == "document":
        return _document(block, param)
    if kind == "search_result":
        return [_text(_search_result(block, param))]
    text = f"Blocks of type {quoted(kind)} are not supported here."
    raise refuse(400, text, param=f"{param}.type", code="invalid_value")


def result_parts(block: Mapping[str, Any], param: str) -> tuple[str, list[dict[str, Any]]]:
    """What a tool of the client's found: its text, and what is none. Only a user's message may hold that."""
    content = block.get("content")
    blocks = [] if content is None else blocks_of(content, f"{param}.content")
    parts = [part for at, inner in enumerate(blocks) for part in _result_part(inner, f"{param}.content.{at}")]
    text = "\n".join(part["text"] for part in parts if part["type"] == "text")
    if block.get("is_error") is True and not _ERROR_SAID.match(text):
        text = f"Error: {text}"
    return text, [part for part in parts if part["type"] != "text"]


def _result_part(block: Mapping[str, Any], param: str) -> list[dict[str, Any]]:
    if block["type"] in ("text", "image", "document", "search_result"):
        return chat_parts(block, param)
    if block["type"] == "tool_reference":  # what a search for tools has found: it is declared from now on
        return [_text(f"The tool {block.get('tool_name')} can be called now.")]
    return [_text(orjson.dumps(block).decode())]  # whatever it is, the model may make something of it


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _image(source: Any, param: str) -> dict[str, Any]:
    kind = source.get("type") if isinstance(source, dict) else None
    if kind == "url" and isinstance(source.get("url"), str) and _PICTURE_URL.match(source["url"]):
        url = source["url"]
    elif kind == "base64":
        url = _data_url(source, "image/png", param)
    else:
        raise _unreadable(param)
    return {"type": "image_url", "image_url": {"url": url}}


def _data_url(source: Mapping[str, Any], usual: str, param: str) -> str:
    kind, data = source.get("media_type") or usual, source.get("data")
    if not isinstance(kind, str) or not _MEDIA_TYPE.fullmatch(kind):
        raise refuse(400, f"`{param}.source.media_type` is no media type.", param=f"{param}.source")
    if not isinstance(data, str) or not data or not _is_base64(data):
        raise refuse(400, f"`{param}.source.data` is not valid base64.", param=f"{param}.source", code="invalid_value")
    return f"data:{kind};base64,{data}"


def _is_base64(data: str) -> bool:
    """Servers fail in odd ways where it is not. Line breaks are left alone, as they leave them alone."""
    try:
        return bool(a2b_base64("".join(data.split()), strict_mode=True))
    except ValueError:  # characters that are none, too few of them, or no ASCII
        return False


def _document(block: Mapping[str, Any], param: str) -> list[dict[str, Any]]:
    given = block.get("source")
    source: dict[str, Any] = given if isinstance(given, dict) else {}
    kind = source.get("type")
    named = block.get("title")
    title = named if isinstance(named, str) and named else ""
    if kind == "text" and isinstance(source.get("data"), str):
        return [_text(_titled(title, source["data"]))]
    if kind == "content":
        inner = blocks_of(source.get("content"), f"{param}.source.content")
        parts = [part for at, one in enumerate(inner) for part in chat_parts(one, f"{param}.source.content.{at}")]
        return [_text(_titled(title, ""))] * bool(title) + parts
    if kind == "base64":
        data = _data_url(source, "application/pdf", param)
        return [{"type": "file", "file": {"filename": title or "document.pdf", "file_data": data}}]
    raise _unreadable(param)


def _search_result(block: Mapping[str, Any], param: str) -> str:
    """A result of the client's own search, which it wants to have read."""
    head = [value for name in ("title", "source") if isinstance(value := block.get(name), str) and value]
    return "\n".join([*head, text_of(blocks_of(block.get("content") or [], f"{param}.content"))])


def _titled(title: str, text: str) -> str:
    return f"{title}:\n\n{text}" if title else text


def _unreadable(param: str) -> RequestError:
    text = f"`{param}.source` must hold the content itself, or the URL of an image: no file is kept here."
    return refuse(400, text, param=f"{param}.source", code="invalid_value")
