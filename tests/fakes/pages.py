"""The internet on loopback: a web server scripted per path, a resolver scripted per name, and a way between them.

`PageServer` is handed pages, redirects or raw bytes (a generator may drip, never end or lie) and remembers what it was
asked. `Names` and `Loopback` are the `resolve` and `network` of a fetcher that is to believe in public addresses.
"""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

import httpcore
import pytest

_TLS_HANDSHAKE = b"\x16"
# It is its own authority, so it must have what Python 3.13 asks of one.
_EXTENSIONS = """\
basicConstraints=critical,CA:TRUE
keyUsage=critical,digitalSignature,keyCertSign
extendedKeyUsage=serverAuth
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid:always
"""

Pieces = Callable[[], Iterable[bytes]]


@dataclass(frozen=True)
class Asked:
    """One request: `path` with its query, headers by lower-case name, and whether it came over TLS."""

    path: str
    headers: Mapping[str, str] = field(repr=False)
    secure: bool = False


class PageServer:
    """Answers 404 to any path without a script, unless `*` has one.

    With a TLS context it speaks TLS to a client that begins with a handshake and plain HTTP to the rest, on one port.
    """

    def __init__(self, ssl_context: ssl.SSLContext | None = None) -> None:
        self.requests: list[Asked] = []
        self._scripts: dict[str, Pieces] = {}
        self._server = _Server(self, ssl_context)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def page(
        self,
        path: str,
        body: bytes,
        *,
        content_type: str = "text/html; charset=utf-8",
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        lines = {"Content-Type": content_type, "Content-Length": str(len(body)), **(headers or {})}
        head = f"HTTP/1.1 {status} Scripted\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self.raw(path, lambda: [head.encode() + b"\r\n" + body])

    def redirect(self, path: str, location: str, *, status: int = 302) -> None:
        self.page(path, b"moved", status=status, headers={"Location": location})

    def raw(self, path: str, pieces: Pieces) -> None:
        """Sends what `pieces()` gives as it is, status line and all, and then closes."""
        self._scripts[path] = pieces

    def script_for(self, path: str) -> Pieces | None:
        return self._scripts.get(path) or self._scripts.get("*")

    def __enter__(self) -> PageServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # an endless page ends when its client is gone, not when the server closes

    def __init__(self, pages: PageServer, ssl_context: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages = pages
        self.ssl_context = ssl_context

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up half-way, or refuses our certificate, is part of the play; a broken script is not."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            raise error


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    request: socket.socket
    secure = False

    def setup(self) -> None:
        context = self.server.ssl_context
        if context and self.request.recv(1, socket.MSG_PEEK) == _TLS_HANDSHAKE:
            self.request = context.wrap_socket(self.request, server_side=True)
            self.secure = True
        super().setup()

    def finish(self) -> None:
        super().finish()
        self.request.close()

    def do_GET(self) -> None:
        self.close_connection = True
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.pages.requests.append(Asked(self.path, headers, self.secure))
        pieces = self.server.pages.script_for(self.path)
        if pieces is None:
            self.send_error(404)
            return
        for piece in pieces():
            self.wfile.write(piece)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class Loopback(httpcore.AsyncNetworkBackend):
    """Notes every address that is dialled, and leads each to the server on `port`."""

    def __init__(self, port: int) -> None:
        self.dialled: list[tuple[str, int]] = []
        self._port = port
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self.dialled.append((host, port))
        return await self._network.connect_tcp("127.0.0.1", self._port, timeout)


class Names:
    """A resolver with a script: each name's answers in turn, the last one for ever; no other name exists."""

    def __init__(self, answers: dict[str, list[list[str]]]) -> None:
        self.asked: list[str] = []
        self._answers = answers

    async def __call__(self, host: str, port: int) -> list[str]:
        if host not in self._answers:
            raise socket.gaierror("no such name")
        self.asked.append(host)
        turn = min(self.asked.count(host), len(self._answers[host])) - 1
        return self._answers[host][turn]


@dataclass(frozen=True)
class Certificate:
    server: ssl.SSLContext
    client: ssl.SSLContext  # trusts that one certificate and no other


def make_certificate(folder: Path, subjects: Sequence[str]) -> Certificate:
    """A certificate for these names and IPv6 addresses that signs itself, made now by the openssl command."""
    if not shutil.which("openssl"):
        pytest.skip("needs the openssl command to make a certificate")
    key, chain = str(folder / "key.pem"), str(folder / "certificate.pem")
    named = ",".join(f"{'IP' if ':' in subject else 'DNS'}:{subject}" for subject in subjects)
    config = folder / "certificate.config"
    config.write_text(f"[req]\ndistinguished_name=name\n[name]\n[extensions]\nsubjectAltName={named}\n{_EXTENSIONS}")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=loopback"
    extra = ["-config", str(config), "-extensions", "extensions", "-keyout", key, "-out", chain]
    subprocess.run([*command.split(), *extra], check=True, capture_output=True)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(chain, key)
    return Certificate(server, ssl.create_default_context(cafile=chain))
