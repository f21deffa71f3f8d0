"""What every transport to a model offers: events for the loop and, where bytes can be forwarded as they are, bytes.

Failures do not raise: they come as a last `Failed` event, or as a reply with a status.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ..values.events import Event


class Transport(Protocol):
    @property
    def name(self) -> str: ...

    def stream(self, body: dict[str, Any], headers: Mapping[str, str]) -> AsyncGenerator[list[Event], None]:
        """Asks the model once. One list of events per network read; the last event is Finished or Failed."""
        ...

    async def models(self) -> list[dict[str, Any]]:
        """The models it lists. Raises `RequestError` where it cannot be asked."""
        ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Reply:
    """An upstream's answer as bytes. `chunks` raises `Broken` where the body breaks off."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class Broken(Exception):
    """The body of a forwarded answer ended before its end."""


@runtime_checkable
class Forwarding(Protocol):
    """An upstream that speaks the client's own wire format, so that bytes can pass both ways."""

    def forward(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, *, streamed: bool = False
    ) -> AbstractAsyncContextManager[Reply]: ...
