"""`POST /mcp`: the door to our MCP server, which is loaded when first knocked at. Handed requests that the edge let in;
hands them on, or says what is to be installed.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from starlette.types import Message, Receive, Scope, Send

from ..context import context_of
from ..house import House
from ..values.errors import refuse
from .bodies import read_body
from .delivery import while_connected

if TYPE_CHECKING:
    from .mcp_server import McpServer


class McpRoute:
    def __init__(self, house: House) -> None:
        self._house = house
        self._server: McpServer | None = None
        self._starting = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if find_spec("mcp") is None:
            raise refuse(404, "MCP is an extra here: pip install 'groundwire[mcp]'.", code="not_installed")
        raw = await read_body(receive, scope, self._house.config.server)
        server = await self._started()
        observer = context_of(scope).observer
        await while_connected(receive, server(scope, _Body(raw), send), observer)

    async def _started(self) -> McpServer:
        async with self._starting:
            if self._server is None:
                module = await asyncio.to_thread(import_module, "proxy.serving.mcp_server")
                self._server = module.McpServer(self._house)
                await self._server.start()
            return self._server

    async def aclose(self) -> None:
        if self._server is not None:
            await self._server.aclose()


class _Body:
    """A body that was read, for who reads it next. Whether the client is still there is seen by who read it."""

    def __init__(self, raw: bytes) -> None:
        self._raw: bytes | None = raw

    async def __call__(self) -> Message:
        if self._raw is None:
            await asyncio.Event().wait()
        raw, self._raw = self._raw, None
        return {"type": "http.request", "body": raw or b"", "more_body": False}
