"""Pieces of a body on their way to a client. Handed whatever `send` an answer is given; hands on a way to write its
pieces that makes no message for each of them, where all that stands behind `send` is ours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
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

    def send(self, sent: Awaitable[None]) -> bool:
        """Whether it is taken."""
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


def writer_behind(send: Send) -> Write:
    """Writes a piece of a body that goes on, as `send` does with a message. What sees every message of an answer on its
    way has a `writer` of its own, which knows what is behind it."""
    writer: Callable[[], Write] | None = getattr(getattr(send, "__self__", None), "writer", None)
    return writer() if writer is not None else message_writer(send)


def message_writer(send: Send) -> Write:
    """Writes each piece in a message of its own."""
    return partial(_send_message, send)


def _send_message(send: Send, piece: bytes) -> Awaitable[None]:
    return send(as_message(piece))
