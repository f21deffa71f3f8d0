"""What processes that ask the same providers let each other know: who is left alone and for how long, and when the next
call of a provider may start. Here is what they say; how it gets from one to the other is for a store to know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

Stopped = Literal["account", "search", "read"]  # what of a provider is left alone
STOPPED: tuple[Stopped, ...] = ("account", "search", "read")


class Trouble(NamedTuple):
    """A provider that is left alone for so many seconds from now. `trips`: how often in a row for a time of our own."""

    provider: str
    stopped: Stopped
    seconds: float
    reason: str
    trips: int


class Neighbours(Protocol):
    """No method raises."""

    def hear(self, heard: Callable[[Trouble], None]) -> None:
        """What is to be called with the trouble of others, and with our own too."""

    def tell(self, trouble: Trouble) -> None: ...

    async def start(self, provider: str, burst: int, window: float, gap: float, patience: float) -> float | None:
        """In how many seconds the next call may start, of all processes: at most `burst` within `window` seconds, and
        each `gap` seconds after the last. Where that is within our `patience` it is ours. None if they cannot be
        asked."""
