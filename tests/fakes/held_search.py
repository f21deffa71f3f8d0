"""A search engine that takes questions and never answers. A test waits until it was asked, and until whoever asked has
hung up.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self


class HeldSearch:
    """`with HeldSearch() as engine: engine.url …`: for a provider of type `searxng`."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.left = threading.Semaphore(0)
        self._listening = socket.create_server(("127.0.0.1", 0))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._hold, args=[client], daemon=True).start()

    def _hold(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            client.recv(65536)
            self.asked.release()
            while client.recv(65536):
                pass
        self.left.release()
