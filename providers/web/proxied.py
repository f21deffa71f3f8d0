"""The fetcher for the open web where pages are read through a proxy (`network.proxy_for_pages`). Handed a URL; judges
it as far as it can be judged from here, has the proxy reach it, and hands on a `Fetched` like any fetcher.

The proxy resolves the name, so what is checked here is not what is dialled: a name that is public for us and private
for the proxy goes through. What resolves here to a private address, or only has a private name, is refused; what
`allow_networks` allows, or `no_proxy` lists, is dialled by us and checked in full.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import httpcore

from ..errors import ProxyFailed, Unavailable
from .egress import WANTS_CREDENTIALS, Egress, Failing, Proxy, failing, happening
from .guard import Guard, Target
from .http import UNREACHABLE, Fetcher, Hop, Pinned
from .tunnel import ProxyRefused, Tunnel


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
        certificates = await self._certificates()
        async with Pinned(proxy.host, self._network) as network:
            url, headers = self._request(hop.target, accept)
            if proxy.scheme != "socks5" and hop.target.scheme == "http":
                url = httpcore.URL(scheme=proxy.scheme, host=proxy.host, port=proxy.port, target=hop.target.url)
                if proxy.authorization:
                    headers.append((b"Proxy-Authorization", proxy.authorization.encode("ascii")))
                connection = httpcore.AsyncHTTPConnection(url.origin, ssl_context=certificates, network_backend=network)
            else:
                tunnel = Tunnel(proxy, certificates, network)
                connection = httpcore.AsyncHTTPConnection(url.origin, ssl_context=certificates, network_backend=tunnel)
            with _of_the_proxy(proxy, network):
                async with connection.stream("GET", url, headers=headers) as response:
                    if response.status == WANTS_CREDENTIALS:
                        raise ProxyRefused(response.status, "it wants to know who asks")
                    yield response


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
    except httpcore.ConnectError:
        if network.connected:
            raise
        kind = "unreachable"
    else:
        return
    raise ProxyFailed(f"the proxy for pages {happening(kind)}", advice=proxy.remedy(kind)) from None
