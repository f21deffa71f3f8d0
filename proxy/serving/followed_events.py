"""Events of an answer that is or was made in the background, on their way to a client. Handed frames as they come;
sends them as a stream, with pings while there are none. Nobody follows more than a few at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager

from ..values.errors import too_many
from .event_stream import EventStream

MOST_FOLLOWED = 16  # streams of one caller: they take none of its places, and each may stall
_WAIT = 2.0  # seconds


class Followers:
    """How many streams each caller follows."""

    def __init__(self, most: int = MOST_FOLLOWED) -> None:
        self._most = most
        self._following: Counter[str] = Counter()

    @contextmanager
    def one_more(self, line: str) -> Iterator[None]:
        """One place of this caller's, for as long as it is held. Raises `RequestError`."""
        if self._following[line] >= self._most:
            raise too_many(f"You may follow {self._most} responses at once: wait until one of them has ended.", _WAIT)
        self._following[line] += 1
        try:
            yield
        finally:
            self._following[line] -= 1
            if not self._following[line]:
                del self._following[line]


async def send_events(stream: EventStream, events: AsyncGenerator[bytes, None]) -> None:
    try:
        async with aclosing(events):
            async for frames in events:
                await stream.write(frames)
        if not stream.started:
            await stream.write(b"")  # a stream without events is one too
        await stream.close()
    finally:
        stream.stop()
