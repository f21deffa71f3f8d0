"""What every transport to a model offers: events for the loop and, where bytes can be forwarded as they are, bytes.

Failures do not raise: they come as a last `Failed` event, or as a reply with a status.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from providers.web.answer import Take

from ..values.events import EventBatches, Failed


class Transport(Protocol):
    @property
    def name(self) -> str: ...

    def stream(self, body: dict[str, Any], headers: Mapping[str, str], names: Collection[str] = ()) -> EventBatches:
        """Asks the model once. One list of events per network read; the last event is Finished or Failed. `names` are
        those of the tools that the model knows: it may call one of them in pieces."""
        ...

    async def models(self) -> list[dict[str, Any]]:
        """The models it lists. Raises `RequestError` where it cannot be asked."""
        ...

    async def aclose(self) -> None: ...


class Body(Protocol):
    """The bytes of a reply, as `wire.Answer` has them. Where they break off, `Broken` is raised."""

    async def read(self) -> bytes: ...

    async def feed(self, take: Take) -> bool: ...

    def finish(self) -> Awaitable[None]:
        """It has said everything: its last bytes are awaited for a moment, so that its connection can be used again."""
        ...

    def close(self) -> None: ...


class Reply:
    """An upstream's answer as bytes; `with` leaves its connection. An answer with a status of 400 or more has been
    read, and `failed` is what it says: whoever asks again needs no more of it."""

    __slots__ = ("body", "failed", "headers", "media_type", "status")

    def __init__(self, status: int, headers: Mapping[str, str], body: Body, failed: Failed | None = None) -> None:
        self.status = status
        self.headers = headers
        self.media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        self.body = body
        self.failed = failed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.body.close()


class Broken(Exception):
    """The body of a forwarded answer ended before its end; `failed` says how."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.error["message"])
        self.failed = failed


@runtime_checkable
class Forwarding(Protocol):
    """An upstream that speaks the client's own wire format, so that bytes can pass both ways."""

    async def forward(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, *, streamed: bool = False
    ) -> Reply: ...

    def unreadable(self, first: bytes, passed: str) -> Failed:
        """A page came instead of an answer: says so in the log, with its first bytes. `passed`, here and below, is the
        key that the client brought for the upstream, if it did."""
        ...

    def dressed(self, failed: Failed, passed: str) -> Failed:
        """An error that stood inside an answer, as if it had come with its own status."""
        ...

    def without_key(self, data: bytes, passed: str) -> bytes:
        """What the upstream wrote, without the keys that were sent along."""
        ...
