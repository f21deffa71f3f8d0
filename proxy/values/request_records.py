"""The last requests, as they are kept and asked for. A record is handed on when its request has ended, and is asked
what it shows when somebody wants to see it, or when it leaves for another process: not before.
"""

from __future__ import annotations

from typing import Any, Protocol

KEPT_REQUESTS = 200
KEPT_SECONDS = 7 * 86_400.0

Row = dict[str, Any]


class RequestRecord(Protocol):
    """One request that has ended. It does not change any more."""

    @property
    def id(self) -> str: ...

    @property
    def ended(self) -> float:
        """In seconds since 1970."""

    def row(self) -> Row:
        """What a list shows of it."""

    def steps(self) -> list[Row]:
        """What happened in it."""


class RequestStore(Protocol):
    """The last `KEPT_REQUESTS` of all processes that share it. Nothing here ever raises."""

    def note(self, record: RequestRecord) -> None:
        """At once: nobody waits for it."""

    async def flush(self) -> None:
        """Brings what was noted to where the others see it."""

    async def rows(self, most: int) -> tuple[list[Row], bool]:
        """Those that ended last come first; and whether they are those of all processes."""

    async def find(self, request_id: str) -> tuple[Row | None, bool]:
        """The row of one with its `steps`; and whether all processes were asked."""
