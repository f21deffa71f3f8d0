"""What the rows about a model's server share: a Groundwire that waits but a moment before it asks again, servers at the
level of sockets, and what the log and the process say afterwards.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx

from tests.fakes.groundwire import Groundwire
from tests.fakes.log_lines import line

KEY = "sk-canary-0123456789abcdef"  # of the upstream


def impatient(config: dict[str, Any], /, *others: dict[str, Any], **sections: Any) -> Groundwire:
    """A Groundwire that asks again after a moment, and as often as the tests want: they share its budget. `others` are
    upstreams before the scripted one, each with one model under its own name."""
    quick = {"retry_wait": 0.01, "tool_calls": "native", "context": 4096, "api_key": KEY}
    named = [{**quick, "models": [other["name"]], **other} for other in others]
    scripted = {**config["upstreams"][0], **quick}
    server = {"retry_floor": 10_000, **sections.pop("server", {})}
    return Groundwire({**config, **sections, "server": server, "upstreams": [*named, scripted]})


def ended(proxy: Groundwire, answer: httpx.Response) -> str:
    """The one line that the log has about a request; no key is in it."""
    said = line(proxy, f"request={answer.headers['x-request-id']}")
    log = proxy.log.read_text(errors="replace")
    assert log.count(answer.headers["x-request-id"]) == 1
    assert KEY not in log
    assert KEY not in answer.text
    return said


def peak_memory(proxy: Groundwire) -> int:
    """The most that the process has held so far, in bytes."""
    assert proxy.process is not None
    status = Path(f"/proc/{proxy.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


class SocketServer:
    """Hands every connection to `serve`, in a thread of its own, and counts them."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.accepted = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.accepted += 1
                threading.Thread(target=self._run, args=(connection,), daemon=True).start()

    def _run(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            self._serve(connection)


def read_request(connection: socket.socket) -> bytes:
    """One request, to the end of its body; nothing if the other side hung up."""
    seen = b""
    while b"\r\n\r\n" not in seen:
        if not (data := connection.recv(65536)):
            return b""
        seen += data
    head, _, body = seen.partition(b"\r\n\r\n")
    length = next(
        (int(name.split(b":")[1]) for name in head.split(b"\r\n") if name.lower().startswith(b"content-l")), 0
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def reply(body: bytes, status: int = 200, *headers: str) -> bytes:
    head = [f"HTTP/1.1 {status} X", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body
