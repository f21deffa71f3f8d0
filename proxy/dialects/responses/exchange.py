"""One turn of a stored conversation: what the client sent, what that and the answer have added to the conversation, and
the sources found. Handed these, hands on bytes to store, and reads them again. A long text that stands in several
places, such as an image in the client's item and in the message made of it, is stored once.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import orjson

from providers.apart import apart
from providers.records import dataclass
from tools.ledger import KnownSource, source_rows, sources_from

_FORMAT = 1
_LONG = 1024  # characters from which on a text is worth a place of its own
_PLACE = "\0"  # the key of what stands in its stead
_USED_PLACE = b'"\\u0000":'  # a client uses that key itself: then nothing is put elsewhere


@dataclass(frozen=True, slots=True)
class Exchange:
    items: list[dict[str, Any]]  # the request's input
    messages: list[dict[str, Any]]
    sources: dict[int, KnownSource] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)  # ids of the items that the answer was

    async def written(self) -> bytes:
        parts: list[Any] = [self.items, self.messages, source_rows(self.sources), self.outputs]
        plain = orjson.dumps([_FORMAT, [], parts])
        return await apart(len(plain), _with_each_text_once, plain, parts)

    @classmethod
    def read(cls, data: bytes) -> Exchange:
        _, texts, parts = orjson.loads(data)
        items, messages, rows, outputs = _with_long_texts(parts, texts) if texts else parts
        return cls(items, messages, sources_from(rows), outputs)


def _with_each_text_once(plain: bytes, parts: list[Any]) -> bytes:
    if _USED_PLACE in plain or not _holds_long_text(plain):
        return plain
    texts: dict[str, int] = {}
    parts = _without_long_texts(parts, texts)
    return orjson.dumps([_FORMAT, list(texts), parts])


def _holds_long_text(plain: bytes) -> bool:
    """A look at the bytes: most turns hold none, and need not be walked through. Quotation marks inside a text hide it,
    and then it is stored where it stands."""
    return max(map(len, plain.split(b'"'))) >= _LONG


def _without_long_texts(value: Any, texts: dict[str, int]) -> Any:
    if isinstance(value, str):
        return value if len(value) < _LONG else {_PLACE: texts.setdefault(value, len(texts))}
    if isinstance(value, dict):
        return {key: _without_long_texts(inner, texts) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_long_texts(inner, texts) for inner in value]
    return value


def _with_long_texts(value: Any, texts: list[str]) -> Any:
    if isinstance(value, dict):
        if _PLACE in value:
            return texts[value[_PLACE]]
        return {key: _with_long_texts(inner, texts) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_long_texts(inner, texts) for inner in value]
    return value
