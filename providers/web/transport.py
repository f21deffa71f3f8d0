"""The wire below a service's client, ours or a vendor's SDK: each answer comes whole, inflated, and no larger than it
may be. httpx itself inflates whatever comes, each piece of it at once.

Handed a request by httpx; hands back its answer, or an error that says who sent what cannot be read.
"""

from __future__ import annotations

import httpx

from ..errors import Unavailable
from .body import BadBody, BoundedBody

_OF_THE_WIRE = frozenset({"content-encoding", "content-length", "transfer-encoding"})


class BoundedTransport(httpx.AsyncBaseTransport):
    def __init__(self, wire: httpx.AsyncBaseTransport, service: str, limit: int) -> None:
        self._wire = wire
        self._service = service
        self._limit = limit

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._wire.handle_async_request(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        try:
            content = await self._read(response.stream, response.headers.get("content-encoding", ""))
        finally:
            await response.stream.aclose()
        headers = [header for header in response.headers.multi_items() if header[0].lower() not in _OF_THE_WIRE]
        return httpx.Response(
            response.status_code, headers=headers, content=content, extensions=response.extensions, request=request
        )

    async def aclose(self) -> None:
        await self._wire.aclose()

    async def _read(self, stream: httpx.AsyncByteStream, encoding: str) -> bytes:
        try:
            body = BoundedBody(encoding, self._limit)
            async for chunk in stream:
                body.feed(chunk)
                if body.over:
                    raise Unavailable(f"{self._service} sent more than {self._limit >> 20} MB")
        except BadBody as error:
            raise Unavailable(f"the answer of {self._service} {error}") from error
        return body.flush()[0]
