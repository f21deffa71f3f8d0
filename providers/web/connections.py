"""The connections to one server, a model's or a service's, on the way out that is its own. Handed an address and an
`Egress`; hands each question to a connection that is free, or to a new one: dialled directly, through an HTTP proxy or
through SOCKS.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from typing import Any

import aiohappyeyeballs
from yarl import URL

from ..deadlines import time_limit
from .answer import Answer, HungUp, WireError
from .certificates import trusted
from .egress import WANTS_CREDENTIALS, Egress, Failing, Proxy, failing
from .tunnel import ProxyRefused, handshake, shake_hands
from .wire import ClearWire, SecureWire, Wire

_KEPT = 30.0  # seconds that a connection is kept for the next question
_NAMES_KEPT = 10.0  # seconds that a name's addresses are
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS"})
_ROOM = 32 * 1024  # bytes that are read at once
_SECOND_TRY = 0.25  # seconds before the next address of a name is dialled beside the one before it


class NotConnected(OSError):
    """No connection came about."""


class NotTrusted(NotConnected):
    """The server's certificate, or how it speaks TLS."""


class ConnectTimeout(TimeoutError):
    """No connection came about in time."""


class ProxyFailed(WireError):
    """It was the proxy that stopped it."""

    def __init__(self, kind: Failing, said: object) -> None:
        super().__init__(str(said))
        self.kind = kind


class Connections:
    """`headers` go with every question, and win over those that come with one. A connection that nobody needs is kept
    for `kept` seconds. Where bodies stay `packed`, they are handed on as they came.
    """

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str],
        egress: Egress,
        connect_timeout: float,
        *,
        kept: float = _KEPT,
        packed: bool = False,
    ) -> None:
        url = URL(base_url)
        self._host, self._port = url.raw_host or "", url.port or 0
        self._secure = url.scheme == "https"
        self._proxy = egress.proxy_to(url.scheme, self._host, self._port)
        self._ca_file = egress.ca_file
        self._connect_timeout = connect_timeout
        self._keeps = kept
        self._packed = packed
        always = {"host": url.host_port_subcomponent or "", **{name.lower(): value for name, value in headers.items()}}
        # In the clear the proxy reads the request itself; in a tunnel it sees nothing of it.
        self._in_the_clear = self._proxy is not None and self._proxy.scheme != "socks5" and not self._secure
        if self._proxy and self._in_the_clear and self._proxy.authorization:
            always["proxy-authorization"] = self._proxy.authorization
        self._always = frozenset(always)
        self._head = "".join(_line(name, value) for name, value in always.items())
        self._origin = f"http://{url.host_port_subcomponent}" if self._in_the_clear else ""
        self._certificates: ssl.SSLContext | None = None
        self._room: memoryview | None = None  # of all wires: nobody has any before the first of them
        self._free: list[Wire] = []
        self._found: tuple[float, list[Any]] = (float("-inf"), [])  # the addresses of the name, and when they were
        self._sweeping: asyncio.TimerHandle | None = None

    async def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, patience: float | None
    ) -> Answer:
        """`target` is sent as it is. The first byte may take as long as `patience`."""
        lines = f"{method} {self._origin}{target} HTTP/1.1\r\n{self._head}"
        for name, value in headers.items():
            if name not in self._always:
                lines += _line(name, value)
        lines += f"content-length: {len(body)}\r\n\r\n" if body or method not in _BODILESS else "\r\n"
        question = (lines.encode(), body) if body else (lines.encode(),)
        bodiless = method == "HEAD"
        kept = self._kept()
        wire = kept or await self._connected()
        try:
            answer = await wire.ask(question, patience, bodiless=bodiless)
        except HungUp:  # one that was kept may have been closed while it was free: nothing can have been done
            if kept is None or method not in _REPEATABLE:
                raise
            wire = await self._connected()
            answer = await wire.ask(question, patience, bodiless=bodiless)
        if answer.status == WANTS_CREDENTIALS and self._in_the_clear:
            answer.close()
            raise ProxyFailed("credentials", "it wants to know who asks")
        if not self._packed:
            answer.unpack()
        return answer

    def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        while self._free:
            self._free.pop().abort()

    # Those that are free

    def _kept(self) -> Wire | None:
        while self._free:
            wire = self._free.pop()
            if wire.usable:
                return wire
        return None

    def _take_back(self, wire: Wire) -> None:
        loop = wire.loop
        wire.free_since = loop.time()
        self._free.append(wire)
        if self._sweeping is None:
            self._sweeping = loop.call_later(self._keeps, self._sweep)

    def _sweep(self) -> None:
        """Closes those that nobody has needed for a while."""
        self._sweeping = None
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self._keeps
        kept = [wire for wire in self._free if wire.usable and wire.free_since > oldest]
        for wire in self._free:
            if wire.free_since <= oldest:
                wire.abort()
        self._free = kept
        if kept:
            self._sweeping = loop.call_later(max(0.0, min(w.free_since for w in kept) - oldest), self._sweep)

    # New ones

    async def _connected(self) -> Wire:
        wire = self._new_wire()
        try:
            async with time_limit(self._connect_timeout, ConnectTimeout()):
                if self._secure and self._certificates is None:
                    self._certificates = await asyncio.to_thread(trusted, self._ca_file)
                await (self._dial_through(self._proxy, wire) if self._proxy else self._dial(wire))
        except ConnectTimeout:
            raise
        except ssl.SSLError as error:
            raise NotTrusted(str(error)) from error
        except OSError as error:
            raise NotConnected(error.errno, str(error)) from error
        return wire

    def _new_wire(self) -> Wire:
        if self._secure or (self._proxy is not None and self._proxy.scheme == "https"):
            return SecureWire(self._take_back)
        self._room = self._room or memoryview(bytearray(_ROOM))
        return ClearWire(self._take_back, self._room)

    async def _dial(self, wire: Wire) -> None:
        loop = asyncio.get_running_loop()
        asked, found = self._found
        if loop.time() - asked > _NAMES_KEPT:
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            self._found = (loop.time(), found)
        dialled = await aiohappyeyeballs.start_connection(found, happy_eyeballs_delay=_SECOND_TRY)
        await self._hand_over(dialled, wire)

    async def _hand_over(self, dialled: socket.socket, wire: Wire) -> None:
        loop = asyncio.get_running_loop()
        try:
            if isinstance(wire, SecureWire):
                transport, _ = await loop.create_connection(_Words, sock=dialled)
                wire.below(transport)
                await _secured(transport, wire, self._certificates, self._host.rstrip("."))
            else:
                await loop.create_connection(lambda: wire, sock=dialled)
        except BaseException:
            dialled.close()
            raise

    async def _dial_through(self, proxy: Proxy, wire: Wire) -> None:
        loop = asyncio.get_running_loop()
        believed = await asyncio.to_thread(trusted, self._ca_file) if proxy.scheme == "https" else None
        try:
            transport, words = await loop.create_connection(_Words, proxy.host, proxy.port)
            if isinstance(wire, SecureWire):
                wire.below(transport)
            if believed is not None:
                transport = await _secured(transport, words, believed, proxy.host)
        except OSError as error:
            raise ProxyFailed("unreachable", error) from error
        try:
            await self._pass_on(proxy, transport, words, wire)
        except ProxyRefused as error:
            transport.abort()
            raise ProxyFailed(failing(error.status), error) from None
        except BaseException:
            transport.abort()
            raise

    async def _pass_on(self, proxy: Proxy, transport: asyncio.Transport, words: _Words, wire: Wire) -> None:
        """From the proxy to the server behind it: from here on the connection is the wire's."""
        if not self._in_the_clear:
            shake = handshake(proxy, self._host, self._port)
            await shake_hands(shake, words.say, words.hear)
        if self._secure:
            await _secured(transport, wire, self._certificates, self._host.rstrip("."))
        else:
            transport.set_protocol(wire)
            wire.connection_made(transport)


async def _secured(
    transport: asyncio.Transport, protocol: Wire | _Words, believed: ssl.SSLContext | None, name: str
) -> asyncio.Transport:
    """The same connection, with TLS from here on."""
    assert believed is not None
    try:
        secured = await asyncio.get_running_loop().start_tls(transport, protocol, believed, server_hostname=name)
    except TypeError as error:  # asyncio trips in TLS within TLS, over the very error that it wants to raise
        transport.abort()
        raise error.__context__ if isinstance(error.__context__, ssl.SSLError) else error from None
    except BaseException:
        transport.abort()
        raise
    assert secured is not None
    protocol.connection_made(secured)
    return secured


class _Words(asyncio.Protocol):
    """What is said to a proxy before it lets us through."""

    def __init__(self) -> None:
        self._heard = b""
        self._over = False
        self._more = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport

    def data_received(self, data: bytes) -> None:
        self._heard += data
        self._more.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._over = True
        self._more.set()

    async def say(self, data: bytes) -> None:
        self._transport.write(data)

    async def hear(self, size: int) -> bytes:
        """What has come, `size` bytes at the most; nothing at the end."""
        while not self._heard and not self._over:
            self._more.clear()
            await self._more.wait()
        heard, self._heard = self._heard[:size], self._heard[size:]
        return heard


def _line(name: str, value: str) -> str:
    if "\n" in value or "\r" in value or "\0" in value:
        raise ValueError(f"the header {name} holds a line break")
    return f"{name}: {value}\r\n"
