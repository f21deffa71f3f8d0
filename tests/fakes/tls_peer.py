"""A server behind TLS that stops taking part, so that tests see what waits for it: it never shakes hands, never reads
what it is sent, or sends without end.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from contextlib import suppress
from typing import Literal, Self

Behaviour = Literal["no handshake", "reads nothing", "floods"]

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
_EVENT = b'data: {"choices": [{"index": 0, "delta": {"content": "%s"}}]}\n\n' % (b"word " * 4000)


class TlsPeer:
    """`reached` is set once a client waits for it: connected, or stuck with what it sends, or flooded."""

    def __init__(self, context: ssl.SSLContext, behaviour: Behaviour) -> None:
        self.reached = threading.Event()
        self._context = context
        self._behaviour = behaviour
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            if self._behaviour == "no handshake":
                self.reached.set()
                self._over.wait()
                return
            with self._context.wrap_socket(connection, server_side=True) as secure:
                if self._behaviour == "reads nothing":
                    self._wait_for_more(secure)
                else:
                    self._flood(secure)

    def _wait_for_more(self, secure: ssl.SSLSocket) -> None:
        """Not a byte is read; all that the client could send by then waits in the sockets of both sides."""
        select.select([secure], [], [], 60)
        self._over.wait(0.3)
        self.reached.set()
        self._over.wait()

    def _flood(self, secure: ssl.SSLSocket) -> None:
        secure.recv(65536)
        secure.sendall(_HEAD)
        secure.settimeout(0.5)
        with suppress(TimeoutError):
            while not self._over.is_set():
                secure.sendall(_EVENT)
        self.reached.set()
        self._over.wait()
