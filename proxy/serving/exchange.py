"""One request on a connection and its answer, as uvicorn's cycle runs them, and what of the connection they may touch.
Handed a scope and the connection's way out; hands the body to the application, or raises what is wrong with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ..values.errors import RequestError
from ..values.events import Failed


class Outlet:
    """The transport as an answer sees it: closing is the connection's affair."""

    __slots__ = ("close", "is_closing", "write")

    def __init__(self, transport: asyncio.Transport, hang_up: Callable[[], None]) -> None:
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.close = hang_up

    def forget(self) -> None:
        """The connection is gone, and nothing need keep it."""
        self.close = _nothing


def _nothing() -> None: ...


class Exchange(RequestResponseCycle):
    """A body that turns out to be none is refused where it is being read."""

    def __init__(self, connection: HttpToolsProtocol, outlet: Outlet, *, continues: bool, kept: bool) -> None:
        super().__init__(
            scope=connection.scope,
            transport=outlet,  # type: ignore[arg-type]  # all of it that a cycle uses
            flow=connection.flow,
            logger=connection.logger,
            access_logger=connection.access_logger,
            access_log=False,
            default_headers=connection.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=continues,
            keep_alive=kept,
            on_response=connection.on_response_complete,
        )
        self._refused: Failed | None = None

    def refuse(self, failed: Failed) -> None:
        self._refused = failed
        self.keep_alive = False
        self.message_event.set()

    async def receive(self) -> Any:
        message = await super().receive()
        if self._refused and message["type"] == "http.request":
            raise RequestError(self._refused)
        return message


class LastBody:
    """What a parser calls that reads the body of one request and nothing after it."""

    def __init__(
        self, on_chunk_header: Callable[[], None], on_body: Callable[[bytes], None], on_end: Callable[[], None]
    ) -> None:
        self.on_chunk_header = on_chunk_header
        self._on_body = on_body
        self._on_end = on_end
        self._over = False

    def on_body(self, body: bytes) -> None:
        if not self._over:
            self._on_body(body)

    def on_message_complete(self) -> None:
        if not self._over:
            self._over = True
            self._on_end()
