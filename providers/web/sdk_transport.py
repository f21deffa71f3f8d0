"""The wire of a service below a vendor's SDK that speaks through httpx. Handed a request by httpx; hands back the
answer. What goes wrong on the wire passes through the SDK as it is, to who called it.
"""

from __future__ import annotations

import httpx
from yarl import URL

from .service_wire import ServiceWire

_OF_THE_WIRE = frozenset({"content-encoding", "content-length", "transfer-encoding"})


class SdkTransport(httpx.AsyncBaseTransport):
    """For what lies at `base_url` alone."""

    def __init__(self, wire: ServiceWire, base_url: str) -> None:
        self._wire = wire
        self._origin = URL(base_url).origin()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        if URL(str(url)).origin() != self._origin:
            raise httpx.UnsupportedProtocol("this is not the service that the wire leads to", request=request)
        headers = {name: value for name, value in request.headers.items() if name not in _OF_THE_WIRE}
        answer = await self._wire.ask(request.method, url.raw_path.decode("ascii"), headers, await request.aread())
        told = [(name, value) for name, value in answer.headers.items() if name.decode("latin-1") not in _OF_THE_WIRE]
        return httpx.Response(answer.status, headers=told, content=answer.content, request=request)
