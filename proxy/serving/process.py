"""The process that serves: one listener, uvicorn around the application, and a clean way out. Handed a config, it runs
until a signal: Ctrl-C ends what is under way at once. SIGTERM first says for a moment that it is leaving, while
everybody is still served, and then lets what is under way finish within the drain time. SIGHUP reads the config again.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

import uvicorn

from ..config.settings import Config
from . import app
from .connection import Connection
from .edge import Edge
from .listener import Listener, listen, take_descriptors
from .open_connections import ConnectionLimits, OpenConnections
from .reloading import Reloading, Reread

LAST_WORDS = 1.0  # how long clients have for taking the error event before they are cut off
LAME_DUCK = 1.0  # how long we serve after SIGTERM where nobody said, if anybody is connected


def bind(config: Config) -> socket.socket:
    """The listening socket. Bound before anything is built, so that a busy port is said at once."""
    return listen(config.server.host, config.server.port)


def serve(config: Config, listening: socket.socket, started: Callable[[], None], reread: Reread) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something that could change
    connections = OpenConnections(ConnectionLimits.of(config.server, take_descriptors()))
    edge = app.build(config, connections)
    reloading = Reloading(config, reread, edge.change)
    settings = uvicorn.Config(
        edge,
        loop="uvloop",
        http="httptools",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nobody here asks who stands behind a proxy
        ws="none",
        lifespan="on",
    )
    _Server(settings, config, edge, connections, started, reloading).run(sockets=[listening])


class _Server(uvicorn.Server):
    def __init__(
        self,
        settings: uvicorn.Config,
        config: Config,
        edge: Edge,
        connections: OpenConnections,
        started: Callable[[], None],
        reloading: Reloading,
    ) -> None:
        super().__init__(settings)
        self._reloading = reloading
        self._edge = edge
        self._connections = connections
        self._drain = config.server.drain_timeout
        self._lame_duck = config.server.lame_duck
        self._started = started
        self._leaving = False
        self._in_terminal = os.isatty(0)
        self._running: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])  # it need not accept: our listener does
        assert sockets
        self._running = asyncio.get_running_loop()
        self._running.add_signal_handler(signal.SIGHUP, self._hear_hangup)
        self._listener = Listener(sockets[0], self._connections, self._opened)
        gc.collect()
        gc.freeze()  # what was made at start lives as long as we do: no collection need look at it again
        self._listener.open()
        self._connections.start()
        self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._listener.close()
        await super().shutdown()
        self._connections.stop()

    def _opened(self, client: socket.socket, address: str, first: bytes, spare: bool) -> None:
        connection = Connection(
            self.config,
            self.server_state,
            self.lifespan.state,
            self._edge,
            self._connections,
            address,
            first=first,
            spare=spare,
        )
        self._connections.add(connection)
        opening = asyncio.get_running_loop().connect_accepted_socket(lambda: connection, client)

        def gone() -> None:
            self._connections.remove(connection)
            client.close()

        _start_now(opening, gone)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Never left to uvicorn: it waits for open streams for ever, or cuts them without a word."""
        at_once = sig == signal.SIGINT or self._leaving
        self._leaving = True
        if self._running is None:
            self.should_exit = self.force_exit = True
        else:
            self._running.call_soon_threadsafe(self._stop if at_once else self._say_goodbye)

    def _hear_hangup(self) -> None:
        """Somebody wants the config read again; or the terminal that we were started in was closed."""
        if self._in_terminal and not os.isatty(0):
            self.handle_exit(signal.SIGTERM, None)
        else:
            self._reloading.ask()

    def _say_goodbye(self) -> None:
        """Not ready any more, and still serving: who asks after us has time to send its clients elsewhere."""
        self._edge.draining = self._connections.draining = True
        wait = self._lame_duck
        if wait is None:
            wait = LAME_DUCK if len(self._connections) else 0.0
        asyncio.get_running_loop().call_later(wait, self._leave)

    def _leave(self) -> None:
        self.should_exit = True
        asyncio.get_running_loop().call_later(self._drain, self._stop)

    def _stop(self) -> None:
        self.should_exit = True
        self._edge.stop_now()
        asyncio.get_running_loop().call_later(LAST_WORDS, self._hang_up)

    def _hang_up(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def _start_now(work: Coroutine[Any, None, Any], gone: Callable[[], None]) -> None:
    """Runs `work` up to its first wait here and now, and the rest when that is over. As a task it would begin a turn of
    the event loop later, and under load a turn is long. `gone` is called if the client was, before it was served."""
    try:
        waits_for = work.send(None)
    except StopIteration:
        pass
    except (OSError, RuntimeError):
        gone()
    else:
        waits_for.add_done_callback(lambda _: _start_now(work, gone))
