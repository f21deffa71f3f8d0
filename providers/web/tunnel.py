"""A connection through a proxy: the words that open it, as pure machines.

A handshake is a generator: it hands out what to send and how many bytes of the answer it needs (0: whatever comes), and
is handed those. It ends when what follows is the server's own, or raises `ProxyRefused`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from ipaddress import ip_address

from .egress import WANTS_CREDENTIALS, Proxy, authority

Handshake = Generator[tuple[bytes, int], bytes, None]

_LONGEST_HEAD = 16 * 1024
_READ_SIZE = 4096
_BAD_GATEWAY = 502
_FORBIDDEN = 403
_SOCKS = 5
_NO_AUTHENTICATION, _BY_PASSWORD = 0, 2
_CONNECT = 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_NOT_ALLOWED = 2  # SOCKS's reply where its rules forbid it


class ProxyRefused(Exception):
    """Carries HTTP's status for it, which also begins its text."""

    def __init__(self, status: int, what: str) -> None:
        super().__init__(f"{status} {what}")
        self.status = status


def handshake(proxy: Proxy, host: str, port: int) -> Handshake:
    if proxy.scheme == "socks5":
        return socks5(host, port, proxy.user, proxy.password)
    return connect(host, port, proxy.authorization)


def connect(host: str, port: int, authorization: str = "") -> Handshake:
    """CONNECT of HTTP (RFC 9110 §9.3.6)."""
    target = authority(host, port)
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if authorization:
        lines.append(f"Proxy-Authorization: {authorization}")
    answer = yield "\r\n".join([*lines, "", ""]).encode("ascii"), 0
    while b"\r\n\r\n" not in answer:
        if len(answer) > _LONGEST_HEAD:
            raise ProxyRefused(_BAD_GATEWAY, "its answer has no end")
        answer += yield b"", 0
    head, _, rest = answer.partition(b"\r\n\r\n")
    version, _, after = head.partition(b" ")
    if not version.startswith(b"HTTP/1.") or not after[:3].isdigit():
        raise ProxyRefused(_BAD_GATEWAY, "it does not speak HTTP")
    status = int(after[:3])
    if not 200 <= status < 300:
        raise ProxyRefused(status, "it refused to connect")
    if rest:  # the client speaks first in TLS and in HTTP: whoever is heard now is not the server
        raise ProxyRefused(_BAD_GATEWAY, "it spoke for the server")


def socks5(host: str, port: int, user: str = "", password: str = "") -> Handshake:
    """SOCKS 5 (RFC 1928) with a user and password if there are some (RFC 1929); a name is left for it to resolve."""
    methods = bytes([_NO_AUTHENTICATION, _BY_PASSWORD] if user else [_NO_AUTHENTICATION])
    answer = yield bytes([_SOCKS, len(methods)]) + methods, 2
    if answer[0] != _SOCKS:
        raise ProxyRefused(_BAD_GATEWAY, "it does not speak SOCKS 5")
    if answer[1] not in methods:
        raise ProxyRefused(WANTS_CREDENTIALS, "it wants to know who asks")
    if answer[1] == _BY_PASSWORD:
        login = b"".join(bytes([len(part)]) + part for part in (user.encode(), password.encode()))
        if (yield b"\x01" + login, 2)[1] != 0:
            raise ProxyRefused(WANTS_CREDENTIALS, "it does not know this user and password")
    reply = yield bytes([_SOCKS, _CONNECT, 0]) + _destination(host) + port.to_bytes(2), 4
    if reply[0] != _SOCKS:
        raise ProxyRefused(_BAD_GATEWAY, "it does not speak SOCKS 5")
    if reply[1] != 0:
        status = _FORBIDDEN if reply[1] == _NOT_ALLOWED else _BAD_GATEWAY
        raise ProxyRefused(status, f"it refused to connect (reply {reply[1]})")
    # Where it stands itself; nobody needs it, but it is in the way of the server's bytes.
    if reply[3] == _NAME:
        length = (yield b"", 1)[0]
    elif reply[3] in (_IPV4, _IPV6):
        length = 4 if reply[3] == _IPV4 else 16
    else:
        raise ProxyRefused(_BAD_GATEWAY, "it does not speak SOCKS 5")
    yield b"", length + 2


def _destination(host: str) -> bytes:
    try:
        packed = ip_address(host).packed
    except ValueError:
        name = host.encode("ascii")
        return bytes([_NAME, len(name)]) + name
    return bytes([_IPV4 if len(packed) == 4 else _IPV6]) + packed


async def shake_hands(
    shake: Handshake, send: Callable[[bytes], Awaitable[None]], receive: Callable[[int], Awaitable[bytes]]
) -> None:
    """Drives a handshake over anything that sends and receives."""

    async def answer(size: int) -> bytes:
        data = b""
        while not data or len(data) < size:
            part = await receive(size - len(data) if size else _READ_SIZE)
            if not part:
                raise ProxyRefused(_BAD_GATEWAY, "it hung up")
            data += part
        return data

    try:
        message, size = next(shake)
        while True:
            if message:
                await send(message)
            message, size = shake.send(await answer(size))
    except StopIteration:
        return
