"""The wire to one service, on the way out that is its own. Handed what to send; hands on the answer whole, inflated
and no larger than it may be, or an error of the connections, or one that says who sent what cannot be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ..errors import Unavailable
from .answer import Answer
from .body import BadBody, BoundedBody
from .connections import Connections
from .egress import Egress

_KEPT = 5.0  # seconds that an idle connection is kept: services close theirs soon, and a stale one costs a try
_MOST = 100  # connections to one service


class ServiceAnswer:
    """Names of headers are in lower case."""

    __slots__ = ("content", "headers", "status")

    def __init__(self, status: int, headers: Mapping[bytes, bytes], content: bytes) -> None:
        self.status = status
        self.headers = headers
        self.content = content

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("utf-8", "replace")


class ServiceWire:
    """`headers` go with every question. Answers have `most` bytes at the most, on the wire and inflated."""

    def __init__(
        self, service: str, base_url: str, headers: Mapping[str, str], egress: Egress, *, timeout: float, most: int
    ) -> None:
        self._service = service
        self._most = most
        self._places = asyncio.Semaphore(_MOST)
        self._connections = Connections(base_url, headers, egress, timeout, kept=_KEPT, packed=True)

    async def ask(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> ServiceAnswer:
        """Who asks bounds the time that it takes. A redirect is an answer like any other."""
        async with self._places:
            with await self._connections.ask(method, target, headers, body, None) as answer:
                return ServiceAnswer(answer.status, answer.headers, await self._whole(answer))

    def close(self) -> None:
        self._connections.close()

    async def _whole(self, answer: Answer) -> bytes:
        try:
            body = BoundedBody(answer.header(b"content-encoding"), self._most)
            while data := await answer.read(None):
                body.feed(data)
                if body.over:
                    raise Unavailable(f"{self._service} sent more than {self._most >> 20} MB")
        except BadBody as error:
            raise Unavailable(f"the answer of {self._service} {error}") from error
        return body.flush()[0]
