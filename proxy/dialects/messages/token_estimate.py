"""How many tokens a Messages request holds, about: nobody here has the vocabulary of every model. Handed a request's
bytes; hands on an estimate by the number of characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from ...values.estimates import tokens_of
from ...values.messages import texts_in
from .history import conversation
from .request import decode

_PICTURE = 1500  # tokens: what a large one costs in most models
_MESSAGE = 4  # tokens around the text of each message


def estimated_tokens(raw: bytes) -> int:
    asked = decode(raw)
    messages = conversation(asked.system, asked.messages, asked.tools).messages
    texts = [text for message in messages for text in texts_in(message.get("content"))]
    texts += [orjson.dumps(call).decode() for message in messages for call in message.get("tool_calls") or ()]
    texts += [orjson.dumps(tool).decode() for tool in asked.body.get("tools") or ()]
    return tokens_of(sum(map(len, texts))) + _MESSAGE * len(messages) + _PICTURE * _pictures(messages)


def _pictures(messages: Iterable[Mapping[str, Any]]) -> int:
    contents = [message.get("content") for message in messages]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return sum(part["type"] != "text" for part in parts)
