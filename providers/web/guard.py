"""Judges which addresses of the web may be read: the one parser of page URLs and our own lists of addresses.

Handed a URL, and later the addresses its name resolved to; hands on a `Target` and the address to dial, or refuses.
It never resolves and never dials. `ipaddress.is_global` is not used: it calls NAT64, multicast and more "global".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple, NoReturn
from urllib.parse import quote

from ..errors import BadRequest, NotAllowed
from ..records import dataclass
from ..urls import ascii_host, ipv6_host

Address = IPv4Address | IPv6Address

_MAX_URL = 8192
_SHORT = _MAX_URL // 12  # a character is twelve at the most once it is quoted
_MAX_NAME = 253
_MAX_AUTHORITY = _MAX_NAME + len(":65535")
_WEB_PORTS = frozenset({80, 443, 8080, 8443})  # on any other port we would be a port scanner
_DEFAULT_PORTS = {"http": 80, "https": 443}

_EXAMPLE = "a web address looks like https://example.com/page"
_UNWELCOME = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff]")  # controls, backslash, lone surrogates
_URL = re.compile(r"(https?)://([^/?#]+)([^#]*)(?:#.*)?", re.ASCII | re.IGNORECASE)  # ASCII, or ſ would be an s
_BRACKETED = re.compile(r"\[([0-9a-f:.]+)\](?::([0-9]*))?", re.ASCII | re.IGNORECASE)
_NAMED = re.compile(r"([^:\[\]]+)(?::([0-9]*))?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_SAFE_IN_PATH = "!$&'()*+,-./:;=?@[]_|~%"

_PRIVATE_SUFFIXES = (".localhost", ".local", ".internal", ".localdomain", ".home.arpa", ".onion")

_CLOSED_V4 = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier NAT, and one cloud's metadata
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure WireServer
        "169.254.0.0/16",  # link-local, metadata
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
# An allow list with holes: all that embeds an IPv4 address, is local or is not yet assigned lies outside by itself.
_OPEN_V6 = IPv6Network("2000::/3")
_CLOSED_V6 = tuple(
    IPv6Network(block)
    for block in (
        "2001::/23",  # Teredo, benchmarking, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)
_LOOPBACK: tuple[Address, ...] = (IPv4Address("127.0.0.1"), IPv6Address("::1"))
_NAT64 = IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Target:
    """A URL as we read it. `host` is an A-label name or an address without brackets; `url` has no fragment."""

    url: str
    scheme: str
    host: str
    port: int
    literal: bool


class _Site(NamedTuple):
    """What stands before the path of a URL."""

    scheme: str
    host: str
    port: int
    literal: bool


Place = Target | _Site  # what can be judged


class Guard:
    """Lets through the public web, and whatever lies inside `allow_networks` (CIDRs), there on any port and name.

    `own` are the addresses we listen on ourselves; they are never read. A wildcard stands for all of loopback.
    """

    def __init__(self, allow_networks: Sequence[str] = (), own: Sequence[tuple[str, int]] = ()) -> None:
        self._networks = tuple(ip_network(network, strict=False) for network in allow_networks)
        self._own = tuple((host.lower(), port) for host, port in own)

    def for_the_public(self) -> Guard:
        """The same guard without any `allow_networks`."""
        return Guard(own=self._own)

    def parse(self, url: str) -> Target:
        target = _read(url)
        if target.literal:
            self.admit(target, [target.host])
        elif not self._networks and not _is_web_name(target):
            _refuse()
        return target

    def admit(self, target: Target, addresses: Sequence[str]) -> str:
        """The address to dial, once every address that `target` resolved to has been found allowed."""
        judged = [_judged(target, address) for address in addresses]
        if not judged or not all(self._allows(target, address) for address in judged):
            _refuse()
        return addresses[0]

    def may_name(self, url: str) -> bool:
        """Whether an engine's result may lead there, by its looks alone: nothing is resolved, and a port is no matter,
        since naming a page is not reading it."""
        text = url.strip(" ").replace(" ", "%20")
        try:
            target = _read_parts(text)[0] if len(text) <= _SHORT else _read(text)
            if target.literal:
                address = _judged(target, target.host)
                return _is_internet(address) or self._allows(target, address)
        except (BadRequest, NotAllowed):
            return False
        if _is_localhost(target):  # a name that nobody has to resolve
            return any(self._allows(target, address) for address in _LOOPBACK)
        return bool(self._networks) or _is_public_name(target)

    def admit_unresolved(self, target: Target) -> None:
        """Refuses a name that does not resolve here, unless it looks like one of the public web: where a proxy resolves
        names, that is all there is to judge by."""
        if target.literal or not _is_web_name(target) or any(target.host == host for host, _ in self._own):
            _refuse()

    def is_public(self, target: Target, addresses: Sequence[str]) -> bool:
        """Whether it would be allowed without any `allow_networks`: only then may others hear of it."""
        return bool(addresses) and all(_is_public(target, _judged(target, address)) for address in addresses)

    def _allows(self, target: Place, address: Address) -> bool:
        if self._is_ourselves(target, address):
            return False
        return _is_public(target, address) or any(address in network for network in self._networks)

    def _is_ourselves(self, target: Place, address: Address) -> bool:
        hosts = {host for host, port in self._own if port == target.port}
        address = getattr(address, "ipv4_mapped", None) or address  # only Python 3.13 looks inside by itself
        if address.is_loopback and not hosts.isdisjoint({"", "0.0.0.0", "::", "localhost"}):  # noqa: S104
            return True
        return str(address) in hosts or target.host in hosts


def _refuse() -> NoReturn:
    raise NotAllowed("address not allowed")


def _is_public(target: Place, address: Address) -> bool:
    return _is_web_name(target) and _is_internet(address)


def _is_web_name(target: Place) -> bool:
    """What name and port alone can say: no name that only a private network gives out, no port but the web's."""
    return target.port in _WEB_PORTS and (target.literal or _is_public_name(target))


def _is_public_name(target: Place) -> bool:
    return "." in target.host and not target.host.endswith(_PRIVATE_SUFFIXES)


def _is_localhost(target: Place) -> bool:
    return target.host == "localhost" or target.host.endswith(".localhost")


def _is_internet(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in block for block in _CLOSED_V4)
    isatap = int(address) >> 32 & 0xFCFFFFFF == 0x00005EFE
    return address in _OPEN_V6 and not isatap and not any(address in block for block in _CLOSED_V6)


def _judged(target: Place, address: str) -> Address:
    """The address to judge: behind a DNS64 the answer for every IPv4 site is 64:ff9b:: plus that site's address.

    Only as an answer: nobody links to a page by such a literal.
    """
    try:
        judged = ip_address(address)
    except ValueError:
        _refuse()
    if isinstance(judged, IPv6Address):
        if judged.scope_id is not None:
            _refuse()
        if judged in _NAT64 and not target.literal:
            return IPv4Address(int(judged) & 0xFFFFFFFF)
    return judged


def _read(url: str) -> Target:
    site, rest = _read_parts(url.strip(" "))
    authority = f"[{site.host}]" if ":" in site.host else site.host
    if site.port != _DEFAULT_PORTS[site.scheme]:
        authority = f"{authority}:{site.port}"
    path = quote(rest if rest.startswith("/") else f"/{rest}", safe=_SAFE_IN_PATH)
    normal = f"{site.scheme}://{authority}{path}"
    if len(normal) > _MAX_URL:
        raise BadRequest(f"the URL is longer than {_MAX_URL} characters")
    return Target(normal, site.scheme, site.host, site.port, site.literal)


def _read_parts(text: str) -> tuple[_Site, str]:
    """The site, and what stands behind it."""
    if len(text) > _MAX_URL:
        raise BadRequest(f"the URL is longer than {_MAX_URL} characters")
    if _UNWELCOME.search(text):
        _refuse()
    if " " in text:
        raise BadRequest(f"the URL holds a space, which is written %20; {_EXAMPLE}")
    parts = _URL.fullmatch(text)
    if parts is None:
        raise BadRequest(f"not the URL of a web page; {_EXAMPLE}")
    if len(parts[2]) > _MAX_AUTHORITY:
        _refuse()
    return _read_site(parts[1], parts[2]), parts[3]


@lru_cache(1024)  # the hits of a search are mostly of few sites
def _read_site(scheme: str, authority: str) -> _Site:
    scheme = scheme.lower()
    if bracketed := _BRACKETED.fullmatch(authority):
        host, literal, digits = ipv6_host(bracketed[1]), True, bracketed[2]
    elif named := _NAMED.fullmatch(authority):
        host, digits = ascii_host(named[1]), named[2]
        literal = _is_ipv4(host)
    else:
        _refuse()
    if not host:
        _refuse()
    return _Site(scheme, host, _read_port(digits) if digits else _DEFAULT_PORTS[scheme], literal)


def _read_port(digits: str) -> int:
    if len(digits) > 5 or not 0 < int(digits) < 65536:
        _refuse()
    return int(digits)


def _is_ipv4(name: str) -> bool:
    """A name that ends in a number is an address, for browsers and libc alike; only its plain form is taken."""
    if not _NUMBER.fullmatch(name.rpartition(".")[2]):
        return False
    try:
        IPv4Address(name)
    except ValueError:
        _refuse()
    return True
