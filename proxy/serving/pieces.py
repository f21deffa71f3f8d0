"""Pieces of a body on their way to a client. Handed the `send` of an answer; hands on a function that writes pieces
without a message for each, where every `send` behind it is ours. Beside it: headers as `send` takes them, what a
finished write is (`SENT`), and the last one, which the client may not have taken.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import cast

from starlette.types import Message, Send

Write = Callable[[bytes], Awaitable[None]]


class _Sent(tuple[()]):
    """Has been done: to await it takes no time, and no call of a function in Python."""

    __await__ = tuple.__iter__


SENT = cast(Awaitable[None], _Sent())


class LastPiece:
    """The piece of an answer that was sent last, which the client may not have taken yet."""

    __slots__ = ("_sent",)

    def __init__(self) -> None:
        self._sent = SENT

    def note(self, sent: Awaitable[None]) -> bool:
        """It was sent. Whether it is taken already."""
        self._sent = sent
        return sent is SENT

    async def taken(self) -> None:
        sent, self._sent = self._sent, SENT
        await sent

    def drop(self) -> None:
        """Nobody waits for it any more."""
        if self._sent is not SENT and isinstance(self._sent, Coroutine):
            self._sent.close()


def as_message(piece: bytes) -> Message:
    return {"type": "http.response.body", "body": piece, "more_body": True}


def raw_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    raw = []
    for key, value in headers.items():
        raw.append((key.encode("latin-1"), value.encode("latin-1", "replace")))
    return raw


def writer_behind(send: Send) -> Write:
    """Writes a piece of a body that goes on, as `send` does with a message. Whose `send` is ours has a `piece_writer()`
    beside it, which does the same and knows what is behind it."""
    own: Callable[[], Write] | None = getattr(getattr(send, "__self__", None), "piece_writer", None)
    return own() if own is not None else message_writer(send)


def message_writer(send: Send) -> Write:
    """Writes each piece in a message of its own."""
    return partial(_send_message, send)


def _send_message(send: Send, piece: bytes) -> Awaitable[None]:
    return send(as_message(piece))
