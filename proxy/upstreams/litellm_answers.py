"""What LiteLLM answers, as the JSON that other servers would have sent. Handed its objects; hands on chunks that
`ChunkReader` reads, with the fields of a message made whole. Also mends the bodies that LiteLLM would tear, and bounds
them.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import httpx

from ..values.events import VENDOR_FIELDS, add_items
from ..values.sse import EventTooLong

_JSON_KINDS = ("text/event-stream", "application/json", "application/x-ndjson")
_LINE_ENDS = re.compile(rb"\xc2\x85|\xe2\x80[\xa8\xa9]")
_TORN = (b"\xe2\x80", b"\xe2", b"\xc2")  # of one of these, at the end of a piece


def answer_json(answer: Any) -> dict[str, Any]:
    said: dict[str, Any] = answer.model_dump(exclude_none=True)
    for choice in said.get("choices") or ():
        choice["message"] = Extras().gather(choice.get("message") or {})
    return said


def chunk_json(chunk: Any, extras: Extras, answer: Any) -> dict[str, Any]:
    """One chunk as the JSON it stands for. Only what is read is copied: LiteLLM's own dump is dear."""
    out: dict[str, Any] = {"model": chunk.model}
    if usage := getattr(chunk, "usage", None):
        out["usage"] = {key: value for key, value in usage.model_dump(exclude_none=True).items() if key != "cost"}
    if fingerprint := getattr(chunk, "system_fingerprint", None):
        out["system_fingerprint"] = fingerprint
    if chunk.choices:
        choice = chunk.choices[0]
        reason = choice.finish_reason
        if reason and not (answer.received_finish_reason or answer.intermittent_finish_reason):
            reason = None  # LiteLLM made it up: the stream ended, but the model did not
        out["choices"] = [{"delta": extras.gather(choice.delta.model_dump(exclude_none=True)), "finish_reason": reason}]
    return out


class Extras:
    """The fields of a message beside text and calls: of a vendor's own what is new, whichever way LiteLLM tells it.

    LiteLLM sends thinking twice and in pieces. A vendor takes back only a whole block with its signature; pieces
    without one are in `reasoning_content` already.
    """

    def __init__(self) -> None:
        self._thoughts = ""
        self._lists: dict[str, list[Any]] = {}
        self._values: dict[str, Any] = {}

    def gather(self, delta: dict[str, Any]) -> dict[str, Any]:
        blocks = [block for block in delta.pop("thinking_blocks", None) or () if isinstance(block, dict)]
        whole = [made for block in blocks if (made := self._block(block))]
        if whole:
            delta["thinking_blocks"] = whole
        fields = delta.pop(VENDOR_FIELDS, None)
        told = {key: self._new(key, value) for key, value in fields.items()} if isinstance(fields, dict) else {}
        new = {key: value for key, value in told.items() if value not in (None, "", []) and key != "thinking_blocks"}
        if new:
            delta[VENDOR_FIELDS] = new
        return delta

    def _new(self, key: str, value: Any) -> Any:
        """What of a field was not told before; nothing if all was."""
        if isinstance(value, str):
            return value  # the next piece of it
        if isinstance(value, list):
            return add_items(self._lists.setdefault(key, []), value)
        if self._values.get(key) == value:
            return None
        self._values[key] = value
        return value

    def _block(self, block: dict[str, Any]) -> dict[str, Any] | None:
        if block.get("type") != "thinking":
            return block  # redacted thinking comes whole
        said = str(block.get("thinking") or "")
        if not block.get("signature"):
            self._thoughts += said
            return None
        thoughts, self._thoughts = self._thoughts, ""
        # With its signature comes all of a block (Anthropic), or no text at all (Bedrock).
        return {**block, "thinking": said or thoughts}


class EscapedLines(httpx.AsyncByteStream):
    """A body of JSON in which the line ends that only Unicode knows are written as escapes.

    LiteLLM cuts lines as `str.splitlines` does: U+0085, U+2028 and U+2029 would tear the JSON they stand in, and what
    is torn it drops.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        held = b""
        async for data in self._stream:
            data = held + data
            held = next((end for end in _TORN if data.endswith(end)), b"")
            yield _LINE_ENDS.sub(_escape, data[: len(data) - len(held)])
        if held:
            yield held

    async def aclose(self) -> None:
        await self._stream.aclose()


def _escape(found: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(found[0].decode())


class BoundedBody(httpx.AsyncByteStream):
    """A body of at most so many bytes: LiteLLM would read any."""

    def __init__(self, stream: Any, most: int) -> None:
        self._stream = stream
        self._left = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._stream:
            self._left -= len(data)
            if self._left < 0:
                raise EventTooLong
            yield data

    async def aclose(self) -> None:
        await self._stream.aclose()


async def bound_and_mend(response: httpx.Response, most: int) -> None:
    response.stream = BoundedBody(response.stream, most)
    kind = response.headers.get("content-type", "").partition(";")[0]
    if kind in _JSON_KINDS and response.headers.get("content-encoding", "identity") == "identity":
        response.stream = EscapedLines(response.stream)
