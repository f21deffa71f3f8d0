"""Proxies on loopback, and an authority of our own. One proxy speaks HTTP (in the clear and by CONNECT, with TLS before
it if wanted), one SOCKS 5. Each is handed the names that it resolves, and remembers what passed and in whose name.
"""

from __future__ import annotations

import base64
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import pytest

Address = tuple[str, int]


@dataclass(frozen=True)
class Passed:
    """One connection or request that a proxy was asked for: how, for whom, and in whose name."""

    how: str  # "forward", "connect" or "socks"
    host: str
    port: int
    login: str = ""
    head: str = field(default="", repr=False)


class ProxyServer:
    """`names` says where names lead: to an address of this machine. What is not named there is not found. `login`
    (`user:password`) is what it wants; `refusal` is the status with which it refuses everybody. `pieces` sends its own
    words byte by byte. A subclass speaks one protocol in `serve`."""

    scheme = "http"

    def __init__(
        self,
        names: Mapping[str, Address] | None = None,
        *,
        login: str = "",
        refusal: int = 0,
        tls: ssl.SSLContext | None = None,
        pieces: bool = False,
    ) -> None:
        self.names = dict(names or {})
        self.login = login
        self.refusal = refusal
        self.passed: list[Passed] = []
        self.seen: list[bytes] = []  # the bytes that clients sent through tunnels
        self._tls = tls
        self._pieces = pieces
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def url(self, login: str | None = None, scheme: str = "") -> str:
        said = self.login if login is None else login
        scheme = scheme or ("https" if self._tls else self.scheme)
        return f"{scheme}://{said + '@' if said else ''}127.0.0.1:{self.port}"

    @property
    def hosts(self) -> list[str]:
        return [passed.host for passed in self.passed]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._handle, args=(connection,), daemon=True).start()

    def _handle(self, connection: socket.socket) -> None:
        with suppress(OSError, EOFError):
            if self._tls:
                connection = self._tls.wrap_socket(connection, server_side=True)
            self._open.add(connection)
            with connection:
                self.serve(connection)
        self._open.discard(connection)

    def serve(self, connection: socket.socket) -> None:
        raise NotImplementedError

    def say(self, connection: socket.socket, data: bytes) -> None:
        for piece in [data[at : at + 1] for at in range(len(data))] if self._pieces else [data]:
            connection.sendall(piece)

    def reach(self, host: str, port: int) -> socket.socket | None:
        """The connection to whom a name leads; a test's own server may stand behind any name and port."""
        found = self.names.get(host) or ((host, port) if host == "127.0.0.1" else None)
        return socket.create_connection(found) if found else None


def pipe(client: socket.socket, server: socket.socket, seen: list[bytes] | None = None) -> None:
    """Bytes both ways, until one side ends."""
    with server:
        ends = {client: server, server: client}
        while True:
            held = [client] if isinstance(client, ssl.SSLSocket) and client.pending() else []
            for ready in held or wait(list(ends)):
                data = ready.recv(65536)
                if not data:
                    return
                if ready is client and seen is not None:
                    seen.append(data)
                ends[ready].sendall(data)


class HttpProxy(ProxyServer):
    def serve(self, connection: socket.socket) -> None:
        head, body = _head(connection)
        line, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (entry.partition(":") for entry in lines)}
        method, target, _ = line.split(" ")
        login = _basic(headers.get("proxy-authorization", ""))
        url = urlsplit(f"//{target}" if method == "CONNECT" else target)
        how = "connect" if method == "CONNECT" else "forward"
        port = url.port or (443 if url.scheme == "https" else 80)
        self.passed.append(Passed(how, url.hostname or "", port, login, head.decode("latin-1")))
        if status := self.refusal or (407 if self.login and login != self.login else 0):
            _exactly(connection, int(headers.get("content-length", 0)) - len(body))  # or closing would be a reset
            # A proxy that repeats what it was sent is the worst that can happen to a log.
            said = f"HTTP/1.1 {status} No {login}\r\nContent-Length: {len(login)}\r\nConnection: close\r\n\r\n{login}"
            self.say(connection, said.encode())
            return
        server = self.reach(url.hostname or "", port)
        if server is None:
            self.say(connection, b"HTTP/1.1 502 No such host\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        elif how == "connect":
            self.say(connection, b"HTTP/1.1 200 Connection established\r\nX-Proxy: fake\r\n\r\n")
            pipe(connection, server, self.seen)
        else:
            path = target[target.index(url.netloc) + len(url.netloc) :] or "/"
            kept = [entry for entry in lines if entry and not entry.lower().startswith(("proxy-", "connection"))]
            request = "\r\n".join([f"{method} {path} HTTP/1.1", *kept, "Connection: close", "", ""])
            server.sendall(request.encode("latin-1") + body)
            pipe(connection, server, self.seen)


class SocksProxy(ProxyServer):
    scheme = "socks5"

    def serve(self, connection: socket.socket) -> None:
        version, count = _exactly(connection, 2)
        methods = _exactly(connection, count)
        assert version == 5
        wanted = 2 if self.login else 0
        if wanted not in methods:
            self.say(connection, b"\x05\xff")
            return
        self.say(connection, bytes([5, wanted]))
        login = ""
        if wanted:
            assert _exactly(connection, 1) == b"\x01"
            user = _exactly(connection, _exactly(connection, 1)[0]).decode()
            password = _exactly(connection, _exactly(connection, 1)[0]).decode()
            login = f"{user}:{password}"
            self.say(connection, bytes([1, int(login != self.login)]))
            if login != self.login:
                return
        assert _exactly(connection, 3) == b"\x05\x01\x00"
        host = self._host(connection)
        port = int.from_bytes(_exactly(connection, 2))
        self.passed.append(Passed("socks", host, port, login))
        server = None if self.refusal else self.reach(host, port)
        if server is None:
            self.say(connection, bytes([5, self.refusal or 4, 0, 1]) + bytes(6))
            return
        self.say(connection, b"\x05\x00\x00\x03\x04here\x00\x00")
        pipe(connection, server, self.seen)

    def _host(self, connection: socket.socket) -> str:
        kind = _exactly(connection, 1)[0]
        if kind == 3:
            return _exactly(connection, _exactly(connection, 1)[0]).decode()
        packed = _exactly(connection, 4 if kind == 1 else 16)
        return socket.inet_ntop(socket.AF_INET if kind == 1 else socket.AF_INET6, packed)


def _head(connection: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        if not part:
            raise EOFError
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    return head, body


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def _basic(value: str) -> str:
    return base64.b64decode(value.removeprefix("Basic ")).decode() if value else ""


# What the authorities of the web put into certificates, and what Python 3.13 asks of every chain (VERIFY_X509_STRICT).
CA_EXTENSIONS = (
    "basicConstraints=critical,CA:TRUE",
    "keyUsage=critical,keyCertSign,cRLSign",
    "subjectKeyIdentifier=hash",
)
SERVER_EXTENSIONS = (
    "basicConstraints=critical,CA:FALSE",
    "keyUsage=critical,digitalSignature",
    "extendedKeyUsage=serverAuth",
    "subjectKeyIdentifier=hash",
    "authorityKeyIdentifier=keyid:always",
)


@dataclass(frozen=True)
class Authority:
    """A certificate authority that nobody knows. `file` is what an operator would give as `network.ca_file`."""

    file: Path
    key: Path
    server_extensions: tuple[str, ...] = SERVER_EXTENSIONS
    _made: dict[tuple[str, ...], ssl.SSLContext] = field(default_factory=dict, repr=False)

    @classmethod
    def make(
        cls,
        folder: Path,
        extensions: Sequence[str] = CA_EXTENSIONS,
        server_extensions: Sequence[str] = SERVER_EXTENSIONS,
    ) -> Authority:
        """Other `extensions` make one as careless operators make them."""
        if not shutil.which("openssl"):
            pytest.skip("needs the openssl command to make certificates")
        made = cls(folder / "authority.pem", folder / "authority.key", tuple(server_extensions))
        # A config of its own: the one of the system would add extensions.
        config = folder / "authority.config"
        config.write_text("\n".join(["[req]", "distinguished_name=name", "[name]", "[extensions]", *extensions, ""]))
        options = ["-config", config, "-extensions", "extensions", "-keyout", made.key, "-out", made.file]
        _openssl("req -x509 -days 2 -subj /CN=authority", *options, new_key=True)
        return made

    def server(self, *subjects: str) -> ssl.SSLContext:
        """What a server of these names and addresses shows."""
        if subjects not in self._made:
            self._made[subjects] = self._signed(subjects)
        return self._made[subjects]

    def _signed(self, subjects: tuple[str, ...]) -> ssl.SSLContext:
        stem = self.file.parent / subjects[0].replace("*", "any").replace(":", "-")
        key, request, certificate, extras = (
            Path(f"{stem}.{suffix}") for suffix in ("key", "request", "pem", "extensions")
        )
        named = ",".join(f"{'IP' if _is_address(subject) else 'DNS'}:{subject}" for subject in subjects)
        extras.write_text("\n".join([f"subjectAltName={named}", *self.server_extensions, ""]))
        _openssl("req -new -subj /CN=server", "-keyout", key, "-out", request, new_key=True)
        signed = ["-CA", self.file, "-CAkey", self.key, "-extfile", extras, "-in", request, "-out", certificate]
        _openssl("x509 -req -days 2 -CAcreateserial", *signed)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        return context


def _is_address(subject: str) -> bool:
    return ":" in subject or subject.replace(".", "").isdecimal()


def _openssl(command: str, *arguments: str | Path, new_key: bool = False) -> None:
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"] if new_key else []
    whole: Sequence[str] = ["openssl", *command.split(), *curve, *map(str, arguments)]
    subprocess.run(whole, check=True, capture_output=True)


class TlsFront:
    """A server of the given certificate before one that speaks in the clear on `port`."""

    def __init__(self, context: ssl.SSLContext, port: int) -> None:
        self._context = context
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._handle, args=(connection,), daemon=True).start()

    def _handle(self, connection: socket.socket) -> None:
        with suppress(OSError), self._context.wrap_socket(connection, server_side=True) as secure:
            pipe(secure, socket.create_connection(("127.0.0.1", self._target)))
