"""How many tokens there were, where nobody said: an answer that broke off, a stream without usage, a text that is still
to be sent. Handed what was asked and how much came back; hands on an estimate, which is marked as one wherever it is
shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from providers.text.patterns import pattern

from .messages import texts_in

_CHARACTERS = 4  # of a token, about, in most languages that are written with letters
_EVENT = b"data:"
# Pictures, files and sounds, whose letters are no tokens. Two patterns, because each begins with words that are found
# ten times as fast as either of both.
_ENCODED = (
    pattern(rb";base64,[A-Za-z0-9+/=_-]++"),
    pattern(rb'"data"\s*+:\s*+"[A-Za-z0-9+/=_-]{100,}+"'),
)


# Scripts whose characters are tokens of their own.
_UNSPACED = pattern(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
_MOST_COUNTED = 20_000  # characters of a text whose scripts are looked at
_FOREIGN = 2  # characters of a token, about, in alphabets that vocabularies know less well than the Latin one


def tokens_of(characters: int) -> int:
    return -(-characters // _CHARACTERS)


def likely_tokens(text: str) -> float:
    """By its scripts. What a model really makes of it differs by a factor that can be learned from the usage it
    reports."""
    if text.isascii():
        return len(text) / _CHARACTERS
    if len(text) > _MOST_COUNTED:  # then every so many characters tell it as well
        some = text[:: -(-len(text) // _MOST_COUNTED)]
        return likely_tokens(some) * len(text) / len(some)
    unspaced, latin = len(_UNSPACED.findall(text)), len(text.encode("ascii", "ignore"))
    return unspaced + (len(text) - latin - unspaced) / _FOREIGN + latin / _CHARACTERS


def texts_asked(body: object) -> list[str]:
    """The texts that a request holds."""
    return _texts(body)


def tokens_asked(body: Mapping[str, Any] | bytes) -> int:
    """What a request holds: by its size, if it is still bytes, unless that says nothing."""
    if not isinstance(body, bytes):
        return tokens_of(sum(map(len, _texts(body))))
    for encoded in _ENCODED:
        body = encoded.sub(b"", body)
    return tokens_of(len(body))


def tokens_streamed(size: int, piece: bytes) -> int:
    """What a stream of that many bytes held, by how many events stand in a piece of it: servers send a token in
    each."""
    return round(size * piece.count(_EVENT) / len(piece)) if piece else 0


def _texts(body: object) -> list[str]:
    if not isinstance(body, Mapping):
        return []
    messages, given = body.get("messages"), body.get("input") or body.get("prompt")
    said = messages if isinstance(messages, list) else []
    contents = [message.get("content") for message in said if isinstance(message, Mapping)]
    plain = [text for text in given if isinstance(text, str)] if isinstance(given, list) else texts_in(given)
    return [text for content in contents for text in texts_in(content)] + plain
