"""The process that serves: one socket, uvicorn around the application, and a clean way out. Handed a config, it runs
until a signal: Ctrl-C ends what is under way at once, SIGTERM lets it finish within the drain time.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from ..config.settings import Config
from . import app
from .edge import Edge

LAST_WORDS = 1.0  # how long clients have for taking the error event before they are cut off


def bind(config: Config) -> socket.socket:
    """The listening socket. Bound before anything is built, so that a busy port is said at once."""
    family = socket.AF_INET6 if ":" in config.server.host else socket.AF_INET
    return socket.create_server((config.server.host, config.server.port), family=family, backlog=2048)


def serve(config: Config, listener: socket.socket, started: Callable[[], None]) -> None:
    edge = app.build(config)
    settings = uvicorn.Config(
        edge,
        loop="uvloop",
        http="httptools",
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="on",
    )
    _Server(settings, edge, config.server.drain_timeout, started).run(sockets=[listener])


class _Server(uvicorn.Server):
    def __init__(self, settings: uvicorn.Config, edge: Edge, drain: float, started: Callable[[], None]) -> None:
        super().__init__(settings)
        self._edge = edge
        self._drain = drain
        self._started = started
        self._running: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._running = asyncio.get_running_loop()
        gc.collect()
        gc.freeze()  # what was made at start lives as long as we do: no collection need look at it again
        self._started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Never left to uvicorn: it waits for open streams for ever, or cuts them without a word."""
        at_once = sig == signal.SIGINT or self.should_exit
        self.should_exit = True
        if self._running is None:
            self.force_exit = True
        else:
            self._running.call_soon_threadsafe(self._stop if at_once else self._leave)

    def _leave(self) -> None:
        self._edge.draining = True
        asyncio.get_running_loop().call_later(self._drain, self._stop)

    def _stop(self) -> None:
        self._edge.stop_now()
        asyncio.get_running_loop().call_later(LAST_WORDS, self._hang_up)

    def _hang_up(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()
