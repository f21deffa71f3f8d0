"""The body of an upstream's answer, read within limits: of size, and of silence. Handed an `Answer`; hands on
its bytes as they come, all of them at once, or what an error says; and sees to what is left behind the last word.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from providers.deadlines import Deadline, time_limit
from providers.web.answer import Answer, ReadTimeout, WireError
from providers.web.connections import ConnectTimeout, NotConnected

from ..values.sse import EventTooLong

# What the connections raise, and no more: any other `OSError` or `TimeoutError` is not the server's doing.
HTTP_ERRORS = (WireError, ReadTimeout, ConnectTimeout, NotConnected)
MOST_ANSWER = 64 << 20  # bytes, where nobody says otherwise
_MOST_OF_ERROR = 100_000  # bytes
LAST_BYTES = 0.05  # seconds that the end of a body is awaited, so that its connection can be used again


class AnswerBody:
    """`most` bytes, or `EventTooLong` is raised; silent for `idle` seconds at most, or `ReadTimeout`."""

    def __init__(self, answer: Answer, most: int, idle: float) -> None:
        self._answer = answer
        self._left = most
        self._idle = idle

    async def first(self, patience: float | None) -> bytes:
        """The first that is not blank: only that says what this is. The first byte may take as long as `patience`."""
        data = self.counted(self._answer.at_hand() or await self._answer.read(patience))
        while data.isspace():
            data = self.counted(await self._answer.read(self._idle))
        return data

    async def whole(self, first: bytes = b"") -> bytes:
        parts = [first]
        while data := self.counted(await self._answer.read(self._idle)):
            parts.append(data)
        return b"".join(parts)

    async def error(self) -> bytes:
        """What an error says, which is short: nothing if it is not. If it breaks off, the status is still there."""
        parts, size = [], 0
        with suppress(*HTTP_ERRORS):
            async with time_limit(self._idle, ReadTimeout()):
                while size <= _MOST_OF_ERROR and (data := await self._answer.read(None)):
                    parts.append(data)
                    size += len(data)
        return b"".join(parts) if size <= _MOST_OF_ERROR else b""

    def counted(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left < 0:
            raise EventTooLong
        return data


async def read_to_the_end(answer: Answer) -> None:
    """Reads the last bytes of a body that has said everything: a connection left in its middle is lost."""
    if answer.is_whole:
        return
    loop = asyncio.get_running_loop()
    until, left = time.monotonic() + LAST_BYTES, LAST_BYTES
    deadline = Deadline(loop, loop.time() + LAST_BYTES)  # what is packed may unpack to nothing
    try:
        with suppress(*HTTP_ERRORS), deadline:
            while left > 0.0 and await answer.read(left):
                left = until - time.monotonic()
    except TimeoutError:
        if not deadline.expired:
            raise
