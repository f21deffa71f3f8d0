"""The wire to a service, on the way out that is its own. Handed a proxy or none; hands on a transport of httpx that
takes nothing from the environment, and says what an error of it has to do with the proxy.
"""

from __future__ import annotations

import asyncio
import importlib
import ssl

import httpcore
import httpx

from .egress import Failing, Proxy, failing
from .http import known_certificates
from .transport import BoundedTransport
from .tunnel import Tunnel, status_of


async def open_wire(proxy: Proxy | None, ca_file: str, *, service: str, most: int) -> BoundedTransport:
    """To this service, whose answers have at most so many bytes."""
    certificates = await asyncio.to_thread(_made_ready, ca_file)
    return BoundedTransport(_wire(proxy, certificates), service, most)


def _made_ready(ca_file: str) -> ssl.SSLContext:
    """In a thread, for who answers meanwhile: the certificates, and aiohttp, which nobody needs before."""
    importlib.import_module(".pooled", __package__)
    return known_certificates(ca_file)


def _wire(proxy: Proxy | None, certificates: ssl.SSLContext) -> httpx.AsyncBaseTransport:
    if proxy is None:
        from .pooled import PooledTransport

        return PooledTransport(certificates)
    if proxy.scheme == "socks5":
        return _over_socks(proxy, certificates)
    return httpx.AsyncHTTPTransport(verify=certificates, trust_env=False, proxy=_as_httpx(proxy, certificates))


def proxy_trouble(error: Exception) -> Failing | None:
    """What an error says about the proxy on the way, None if it is about the service behind it."""
    if isinstance(error, httpx.ProxyError):
        return failing(status_of(error))
    if isinstance(error, httpx.ConnectError) and not _is_about_certificates(error):
        return "unreachable"  # nobody else was dialled
    return None


def _is_about_certificates(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _as_httpx(proxy: Proxy, certificates: ssl.SSLContext) -> httpx.Proxy:
    """httpx knows by itself when to tunnel through an HTTP proxy and when to ask it in the clear."""
    login = (proxy.user, proxy.password) if proxy.user else None
    believed = certificates if proxy.scheme == "https" else None
    return httpx.Proxy(f"{proxy.scheme}://{proxy.address}", auth=login, ssl_context=believed)


def _over_socks(proxy: Proxy, certificates: ssl.SSLContext) -> httpx.AsyncHTTPTransport:
    """httpx's own transport takes no dialler when it is made, so it is given the pool that has one."""
    transport = httpx.AsyncHTTPTransport(verify=certificates, trust_env=False)
    tunnel = Tunnel(proxy, certificates, httpcore.AnyIOBackend())
    transport._pool = httpcore.AsyncConnectionPool(ssl_context=certificates, network_backend=tunnel)
    return transport
