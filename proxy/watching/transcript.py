"""What was asked and what was answered, for the audit of who has consented to both. Handed the messages of a request,
and its answer as it leaves; hands on two texts. The answer is read when it is wanted: then the request is over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import orjson

from ..values.messages import role_of, text_of, texts_in
from ..values.secrets import masked
from ..values.sse import SSEDecoder

MOST_TEXT = 200_000  # characters of a question, and of an answer
MOST_BYTES = 8 << 20  # of an answer on the wire, where each word of a stream weighs some hundred
_CUT = "…"


class Transcript:
    """`size` is how much is held for it."""

    __slots__ = ("_kind", "_parts", "_question", "_secrets", "size")

    def __init__(self) -> None:
        self._question: str | None = None
        self._secrets: Collection[str] = ()  # the caller's own
        self._kind = ""
        self._parts: list[bytes] = []
        self.size = 0

    def ask(self, messages: Sequence[object], secrets: Collection[str]) -> None:
        """Only what the user said last is kept: a line may wait for a disk, and a whole conversation would with it."""
        self._secrets = secrets
        asked = next((message for message in reversed(messages) if role_of(message) == "user"), None)
        if asked is not None:
            self._question = text_of(asked, "\n")[: MOST_TEXT + 1]
            self.size += len(self._question)

    def send(self, message: Mapping[str, Any]) -> None:
        """A message of ASGI on its way out."""
        if message["type"] == "http.response.start":
            kinds = [value for name, value in message["headers"] if name == b"content-type"]
            self._kind = kinds[-1].decode("latin-1") if kinds else ""
        elif (body := message.get("body")) and self.size < MOST_BYTES:
            self._parts.append(bytes(body))
            self.size += len(body)

    def question(self) -> str | None:
        """What the user said last; None where no model was asked."""
        return None if self._question is None else self._shown(self._question)

    def answer(self) -> str | None:
        """None where nothing was said that could be read."""
        raw = b"".join(self._parts)
        pieces = _streamed(raw) if self._kind.startswith("text/event-stream") else _whole(raw)
        text = "".join(pieces)
        return self._shown(text) if text else None

    def _shown(self, text: str) -> str:
        kept = text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + _CUT
        return masked(kept, self._secrets)


def _streamed(raw: bytes) -> Iterator[str]:
    events = SSEDecoder(limit=len(raw))  # an event without an end may be all that there is
    for payload in [*events.feed(raw), *events.flush()]:
        said = _loaded(payload)
        if said.get("type") == "response.output_text.delta":
            yield from texts_in(said.get("delta"))
        elif said.get("type") == "content_block_delta" and isinstance(said.get("delta"), dict):
            yield from texts_in(said["delta"].get("text"))
        else:
            yield from _of_choice(said, "delta")


def _whole(raw: bytes) -> Iterator[str]:
    said = _loaded(raw)
    yield from _of_choice(said, "message")
    if said.get("type") == "message":
        yield from texts_in(said.get("content"))
    for item in said["output"] if isinstance(said.get("output"), list) else ():
        if isinstance(item, dict) and item.get("type") == "message":
            yield from texts_in(item.get("content"))


def _of_choice(said: Mapping[str, Any], part: str) -> Iterator[str]:
    choices = said.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    if isinstance(first, dict):
        held = first.get(part)
        yield from texts_in(held.get("content") if isinstance(held, dict) else first.get("text"))


def _loaded(raw: bytes) -> dict[str, Any]:
    """Nothing where it is no object, as `[DONE]`, or half of one."""
    try:
        said = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    return said if isinstance(said, dict) else {}
