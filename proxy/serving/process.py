"""The process that serves: one listener, uvicorn around the application, and a clean way out. Handed a config, it runs
until a signal: Ctrl-C ends what is under way at once. SIGTERM first says for a moment that it is leaving, while
everybody is still served, and then lets what is under way finish within the drain time. SIGHUP reads the config again.
One of several workers hears of all this from its parent (`workers.py`).
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
from ..watching.log import set_up
from . import app
from .connection import Connection
from .cores import worker_count
from .edge import Edge
from .listener import Listener, listen, take_descriptors
from .open_connections import ConnectionLimits, OpenConnections
from .reloading import Reloading, Reread, is_terminal_closed
from .workers import READY, Order, Post, Workers

LAST_WORDS = 1.0  # how long clients have for taking the error event before they are cut off
GARBAGE = 10_000  # objects made and not gone before a collection looks at them: requests under way are some thousands
LAME_DUCK = 1.0  # how long we serve after SIGTERM where nobody said, if anybody is connected


def bind(config: Config) -> socket.socket:
    """The listening socket. Bound before anything is built, so that a busy port is said at once."""
    return listen(config.server.host, config.server.port)


def serve(config: Config, listening: socket.socket, started: Callable[[], None], reread: Reread) -> int:
    """Until it is told to end; hands on the exit code. `started` is called once, when all workers serve."""
    number = worker_count(config)
    if number == 1:
        set_up(config.log, queued=True)
        _run(config, listening, started, reread)
        return 0
    from ..store import redis_store  # noqa: F401  loaded once, for all of them

    def work(running: Config, post: Post) -> None:
        set_up(running.log, queued=True)
        _run(running, listening, lambda: None, reread, post)

    set_up(config.log, hurried=True)
    return Workers(config, number, listening, started, reread).run(work)


def _run(
    config: Config,
    listening: socket.socket,
    started: Callable[[], None],
    reread: Reread,
    post: Post | None = None,
) -> None:
    """`post` is that of one of several workers."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something that could change
    limits = ConnectionLimits.of(config.server, take_descriptors(), 1 if post is None else post.row.of)
    connections = OpenConnections(limits, counted=None if post is None else post.row.holds)
    edge = app.build(config, connections, None if post is None else post.row)
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
    _Server(settings, config, edge, connections, started, reloading, post).run(sockets=[listening])


class _Server(uvicorn.Server):
    def __init__(
        self,
        settings: uvicorn.Config,
        config: Config,
        edge: Edge,
        connections: OpenConnections,
        started: Callable[[], None],
        reloading: Reloading,
        post: Post | None,
    ) -> None:
        super().__init__(settings)
        self._post = post
        self._reloading = reloading
        self._edge = edge
        self._connections = connections
        self._drain = config.server.drain_timeout
        self._lame_duck = config.server.lame_duck
        self._started = started
        self._ended_by: set[str] = set()  # who said so, once
        self._in_terminal = os.isatty(0)
        self._running: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])  # it need not accept: our listener does
        assert sockets
        self._running = asyncio.get_running_loop()
        post = self._post
        if post is None:
            self._running.add_signal_handler(signal.SIGHUP, self._hear_hangup)
        else:
            self._running.add_reader(post.channel.fileno(), self._hear_parent, post.channel)
        is_next = None if post is None else post.row.is_next
        self._listener = Listener(sockets[0], self._connections, self._opened, is_next=is_next)
        gc.collect()
        gc.freeze()  # what was made at start lives as long as we do: no collection need look at it again
        gc.set_threshold(GARBAGE, 10, 10)
        self._listener.open()
        self._connections.start()
        if post is not None:
            post.row.opens()
            post.channel.send(READY)
        self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._listener.close()
        if self._post is not None:
            self._post.row.closes()
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

        _open_now(opening, gone)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Never left to uvicorn: it waits for open streams for ever, or cuts them without a word."""
        if sig != signal.SIGINT:
            self._end(by="signal")
        elif self._post is None:  # else a terminal sent it to all of us, and the parent passes it on
            self._end(at_once=True)

    def _end(self, *, by: str = "", at_once: bool = False) -> None:
        """Who says it twice means at once; what two say once may be the same signal, to all processes of a service."""
        at_once = at_once or by in self._ended_by
        known = bool(self._ended_by)
        self._ended_by.add(by)
        if known and not at_once:
            return
        if self._running is None:
            self.should_exit = self.force_exit = True
        else:
            self._running.call_soon_threadsafe(self._stop if at_once else self._say_goodbye)

    def _hear_hangup(self) -> None:
        """Somebody wants the config read again; or the terminal that we were started in was closed."""
        if self._in_terminal and is_terminal_closed():
            self.handle_exit(signal.SIGTERM, None)
        else:
            self._reloading.ask()

    def _hear_parent(self, channel: socket.socket) -> None:
        said = channel.recv(64)
        if not said:  # it is gone, and whoever takes its place needs the port
            asyncio.get_running_loop().remove_reader(channel.fileno())
            self._ended_by.add("parent")
            self._edge.draining = self._connections.draining = True
            self._leave()
        for order in map(Order, (said[at : at + 1] for at in range(len(said)))):
            match order:
                case Order.RELOAD:
                    self._reloading.ask()
                case Order.STOP:
                    self._end(at_once=True)
                case Order.LEAVE:
                    self._end(by="parent")

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


def _open_now(opening: Coroutine[Any, None, Any], gone: Callable[[], None]) -> None:
    """Runs `opening` up to its first wait here and now, and the rest when that is over: as a task it would begin a turn
    of the event loop later, and under load a turn is long. Nobody cancels it or asks which task it is, so it needs none
    (requests do: `early_start.py`). `gone` is called if the client was, before it was served."""
    try:
        waits_for = opening.send(None)
    except StopIteration:
        pass
    except (OSError, RuntimeError):
        gone()
    else:
        waits_for.add_done_callback(lambda _: _open_now(opening, gone))
