"""`GET /openapi.json`: what can be asked of us, for programs. Handed requests that the edge let in; hands out the
document, which is put together when somebody first asks for it.
"""

from __future__ import annotations

import orjson
from starlette.types import Receive, Scope, Send

from .delivery import send_json


class OpenapiRoute:
    def __init__(self) -> None:
        self._document = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._document:
            self._document = _written()
        await send_json(send, 200, self._document)


def _written() -> bytes:
    from .api_paths import document  # few ever ask: it waits until one does

    return orjson.dumps(document())
