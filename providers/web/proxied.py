"""The fetcher for the open web where pages are read through a proxy (`network.proxy_for_pages`). Handed a URL; judges
it as far as it can be judged from here, has the proxy reach it, and hands on a `Fetched` like any fetcher.

The proxy resolves the name, so what is checked here is not what is dialled: a name that is public for us and private
for the proxy goes through. What resolves here to a private address, or only has a private name, is refused; what
`allow_networks` allows, or `no_proxy` lists, is dialled by us and checked in full.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpcore

from ..errors import ProxyFailed, Unavailable
from ..records import dataclass
from .egress import WANTS_CREDENTIALS, Egress, Failing, Proxy, failing, happening
from .guard import Guard, Target
from .http import UNREACHABLE, Fetcher, Hop
from .page_wire import Pinned, asked, url_of
from .tunnel import ProxyRefused, handshake, shake_hands


@dataclass(frozen=True, slots=True)
class _ProxiedHop(Hop):
    proxy: Proxy


class ProxiedFetcher(Fetcher):
    def __init__(self, guard: Guard, egress: Egress, **options: Any) -> None:
        super().__init__(guard, ca_file=egress.ca_file, **options)
        self._egress = egress

    async def _admit(self, target: Target) -> Hop:
        proxy = self._egress.proxy_to(target.scheme, target.host, target.port)
        if proxy is None:
            return await super()._admit(target)
        try:
            hop = await super()._admit(target)
        except Unavailable:  # it does not resolve here, which in a closed network no public name does
            self._guard.admit_unresolved(target)
            return _ProxiedHop(target, "", True, proxy)
        return _ProxiedHop(target, "", True, proxy) if hop.public else hop

    @asynccontextmanager
    async def _get(self, hop: Hop, accept: bytes) -> AsyncIterator[httpcore.Response]:
        if not isinstance(hop, _ProxiedHop):
            async with super()._get(hop, accept) as response:
                yield response
            return
        proxy = hop.proxy
        certificates = await self.certificates()
        headers = self._said(hop.target, accept)
        async with Pinned(proxy.host, self._network) as pinned:
            network: httpcore.AsyncNetworkBackend = pinned
            if proxy.scheme != "socks5" and hop.target.scheme == "http":
                url = httpcore.URL(scheme=proxy.scheme, host=proxy.host, port=proxy.port, target=hop.target.url)
                if proxy.authorization:
                    headers.append((b"Proxy-Authorization", proxy.authorization.encode("ascii")))
            else:
                url = url_of(hop.target)
                network = Tunnel(proxy, certificates, pinned)
            with _of_the_proxy(proxy, pinned):
                async with asked(url, headers, certificates, network) as response:
                    if response.status == WANTS_CREDENTIALS:
                        raise ProxyRefused(response.status, "it wants to know who asks")
                    yield response


class Tunnel(httpcore.AsyncNetworkBackend):
    """Dials every host through `proxy`, which itself is dialled by `network`."""

    def __init__(self, proxy: Proxy, certificates: ssl.SSLContext, network: httpcore.AsyncNetworkBackend) -> None:
        self._proxy = proxy
        self._certificates = certificates
        self._network = network

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        proxy = self._proxy
        stream = await self._network.connect_tcp(proxy.host, proxy.port, timeout, local_address, socket_options)
        try:
            if proxy.scheme == "https":
                stream = await stream.start_tls(self._certificates, proxy.host, timeout)
            shake = handshake(proxy, host, port)
            await shake_hands(shake, lambda data: stream.write(data, timeout), lambda size: stream.read(size, timeout))
        except BaseException:
            await stream.aclose()
            raise
        return stream


@contextmanager
def _of_the_proxy(proxy: Proxy, network: Pinned) -> Iterator[None]:
    """What is the proxy's own trouble, which has nothing to do with the page. Its refusals have: they say no more than
    any page that cannot be reached."""
    kind: Failing
    try:
        yield
    except ProxyRefused as error:
        kind = failing(error.status)
        if kind == "refused":
            raise Unavailable(UNREACHABLE) from error
    except OSError as error:
        if network.connected or isinstance(error, TimeoutError):
            raise
        kind = "unreachable"
    else:
        return
    raise ProxyFailed(f"the proxy for pages {happening(kind)}", advice=proxy.remedy(kind)) from None
