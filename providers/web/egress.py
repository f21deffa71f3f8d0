"""The way out: which proxy a connection goes through, if any, and which certificates are believed besides the system's.

Handed what the config and the environment say of proxies; hands on a `Proxy` for an address, or none. It never dials.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import field, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Annotated, Literal
from urllib.parse import quote, unquote, urlsplit

from pydantic import AfterValidator, SecretStr

from ..records import dataclass

Scheme = Literal["http", "https", "socks5"]
Failing = Literal["unreachable", "credentials", "refused"]

_SCHEMES: dict[str, Scheme] = {"http": "http", "https": "https", "socks5": "socks5", "socks5h": "socks5"}
_PORTS: dict[Scheme, int] = {"http": 80, "https": 443, "socks5": 1080}
_WEB_PORTS = {"http": 80, "https": 443}
_EXAMPLE = "http://proxy.example:3128, https://user:password@proxy.example or socks5://127.0.0.1:1080"
_LONGEST = 255  # of a user or a password: RFC 1929 has one byte for each length
_ENTRY = re.compile(r"(\[[^\[\]]+\]|[^\[\]:]+)(?::([0-9]{1,5}))?")
_NAME = re.compile(r"\*|[\w-]+(?:\.[\w-]+)*", re.ASCII)

WANTS_CREDENTIALS = 407


@dataclass(frozen=True, slots=True)
class Proxy:
    """`origin` is where the operator set it, for sentences. Names are always resolved by the proxy."""

    scheme: Scheme
    host: str
    port: int
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    origin: str = field(default="`network.proxy`", compare=False)

    @classmethod
    def read(cls, url: str, origin: str = "`network.proxy`") -> Proxy:
        """A `ValueError` says what is wrong with the URL without showing it: it may hold a password."""
        scheme = _SCHEMES.get(url.partition("://")[0].lower())
        if scheme is None or not url.isprintable() or " " in url:
            raise ValueError(f"must be the URL of a proxy, such as {_EXAMPLE}")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            host, port = "", None
        if not host or port == 0 or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ValueError("must be scheme://user:password@host:port; in a password, special characters are %XX")
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        _check_credentials(scheme, user, password)
        return cls(scheme, host, port or _PORTS[scheme], user, password, origin)

    @property
    def address(self) -> str:
        """Host and port, as sentences and heads write them."""
        return authority(self.host, self.port)

    @property
    def authorization(self) -> str:
        """The value of `Proxy-Authorization`; empty where the proxy asks nobody."""
        if not self.user:
            return ""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every form in which the password goes out."""
        if not self.password:
            return ()
        return self.password, quote(self.password, safe=""), self.authorization.removeprefix("Basic ")

    @property
    def url(self) -> str:
        """With everything in it, for a library that takes nothing else."""
        login = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}@" if self.user else ""
        return f"{'socks5h' if self.scheme == 'socks5' else self.scheme}://{login}{self.address}"

    def remedy(self, failing: Failing) -> str:
        """The one thing to do, for an operator."""
        if failing == "credentials":
            return (
                f"set a user and a password that it accepts in {self.origin}: {self.scheme}://user:password@host:port"
            )
        if failing == "refused":
            return f"let the proxy {self.address} pass this host, or list the host in `network.no_proxy`"
        return f"see that the proxy {self.address} runs and that this machine reaches it, or correct {self.origin}"


def _check_credentials(scheme: Scheme, user: str, password: str) -> None:
    if password and not user:
        raise ValueError("must have a user before its password, as in http://user:password@host:port")
    if scheme == "socks5" and max(len(user.encode()), len(password.encode())) > _LONGEST:
        raise ValueError(f"must have a user and a password of at most {_LONGEST} bytes: SOCKS knows no longer ones")
    if not (user + password).isprintable() or (scheme != "socks5" and ":" in user):
        raise ValueError("must have a user without colons, and nothing unprintable in user and password")


def check_proxy(value: SecretStr) -> SecretStr:
    if url := value.get_secret_value():
        Proxy.read(url)
    return value


ProxyUrl = Annotated[SecretStr, AfterValidator(check_proxy)]


def failing(status: int) -> Failing:
    """What the status says with which a proxy refuses; those of SOCKS are translated into HTTP's."""
    return "credentials" if status == WANTS_CREDENTIALS else "refused"


def happening(kind: Failing) -> str:
    """What a proxy does then, as the end of a sentence. Without its own words: they may repeat what it was sent."""
    return {
        "unreachable": "cannot be reached",
        "credentials": "does not accept our user and password, or wants some",
        "refused": "does not let this connection through",
    }[kind]


def authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True)
class _Exception:
    """One entry of a no-proxy list."""

    name: str = ""  # with all its subdomains
    network: IPv4Network | IPv6Network | None = None
    port: int | None = None

    def covers(self, host: str, address: IPv4Address | IPv6Address | None, port: int) -> bool:
        if self.port not in (None, port):
            return False
        if self.network is not None:
            return address is not None and address in self.network
        return self.name == "*" or host == self.name or host.endswith(f".{self.name}")


@dataclass(frozen=True, slots=True)
class Bypass:
    """Which hosts are reached without the proxy: `NO_PROXY`'s rules. No name is resolved for it."""

    entries: tuple[_Exception, ...] = ()
    loopback: bool = False  # is this machine reached without it?

    @classmethod
    def read(cls, entries: Iterable[str], *, loopback: bool = False) -> Bypass:
        return cls(tuple(_read_exception(entry) for entry in entries), loopback)

    def covers(self, host: str, port: int) -> bool:
        host = host.lower().strip("[]").rstrip(".")
        address = _address(host)
        if self.loopback and (host == "localhost" or host.endswith(".localhost") or _is_loopback(address)):
            return True
        return any(entry.covers(host, address, port) for entry in self.entries)


def check_exception(value: str) -> str:
    _read_exception(value)
    return value


def _read_exception(text: str) -> _Exception:
    """`example.org`, `.example.org`, `*.example.org`, `*`, `10.0.0.0/8`, `::1`; each but a network may have `:port`."""
    entry = text.strip().lower()
    with suppress(ValueError):
        return _Exception(network=ip_network(entry, strict=False))
    parts = _ENTRY.fullmatch(entry)
    host, digits = parts.groups() if parts else ("", None)
    port = int(digits) if digits else None
    if address := _address(host.strip("[]")):
        return _Exception(network=ip_network(address), port=port)
    name = host.removeprefix("*.").removeprefix(".").removesuffix(".")
    if not _NAME.fullmatch(name):
        raise ValueError("must be a host, a domain such as .example.org, or a network such as 10.0.0.0/8")
    return _Exception(name, port=port)


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(host)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _is_loopback(address: IPv4Address | IPv6Address | None) -> bool:
    return address is not None and address.is_loopback


@dataclass(frozen=True, slots=True)
class Egress:
    """How connections get out: through which proxy, by the scheme of what is reached, and whose word is taken."""

    http: Proxy | None = None
    https: Proxy | None = None
    bypass: Bypass = Bypass()
    ca_file: str = ""  # more authorities, besides the system's

    def proxy_to(self, scheme: str, host: str, port: int) -> Proxy | None:
        proxy = self.http if scheme == "http" else self.https
        return None if proxy is None or self.bypass.covers(host, port) else proxy

    def proxy_to_url(self, url: str) -> Proxy | None:
        parts = urlsplit(url)
        return self.proxy_to(parts.scheme, parts.hostname or "", parts.port or _WEB_PORTS.get(parts.scheme, 0))

    def said(self, proxy: SecretStr | None, origin: str) -> Egress:
        """The way of one provider or upstream: nothing said is this way; "" is none; a proxy of its own is for
        every address, this machine's too."""
        if proxy is None:
            return self
        url = proxy.get_secret_value()
        own = Proxy.read(url, origin) if url else None
        return replace(self, http=own, https=own, bypass=Bypass())

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(secret for proxy in (self.http, self.https) if proxy for secret in proxy.secrets)

    @property
    def plain(self) -> bool:
        """Is it what everybody would do without being told?"""
        return self.http is None and self.https is None and not self.ca_file


DIRECT = Egress()
