"""LiteLLM's HTTP session, on the way out that is an upstream's own. Handed an `Egress`; hands on an aiohttp session
whose connections go directly, through an HTTP proxy or through SOCKS, by the address of each request.

HTTP proxies are aiohttp's own trade; it is told which one by a middleware, so that no password stands in a URL that an
error may show. SOCKS it does not know: there the connector dials.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import aiohappyeyeballs
import aiohttp
from yarl import URL

from providers.web.certificates import trusted
from providers.web.egress import WANTS_CREDENTIALS, Egress, Proxy, failing
from providers.web.tunnel import ProxyRefused, handshake, shake_hands

from ..values.events import Failed
from .failures import proxy_failed

_READ_BUFFER = 16 * 1024  # bytes that may wait for a slow client before the model's server has to
_AUTHORIZATION = "Proxy-Authorization"


def open_session(egress: Egress, connect_timeout: float) -> aiohttp.ClientSession:
    options: dict[str, Any] = {"limit": 0, "keepalive_timeout": 30, "ssl": trusted(egress.ca_file)}
    # `connect` too: looking up the name is no part of `sock_connect`, nor is being let through by a proxy.
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout, connect=connect_timeout)
    plain = egress.http is None and egress.https is None
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(**options) if plain else _Connector(egress, **options),
        timeout=timeout,
        cookie_jar=aiohttp.DummyCookieJar(),
        middlewares=() if plain else (_Route(egress),),
        read_bufsize=_READ_BUFFER,
    )


def proxy_failure(upstream: str, error: BaseException) -> Failed | None:
    """The failure, if it is the proxy's on the way to an upstream."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return proxy_failed(upstream, failing(error.status), error)
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return proxy_failed(upstream, "unreachable", error)
    return None


class _Route:
    """Names the HTTP proxy of each request, if it has one."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        proxy = _proxy_of(self._egress, request)
        if proxy is None or proxy.scheme == "socks5":
            return await handler(request)
        login = {_AUTHORIZATION: proxy.authorization} if proxy.authorization else {}
        # In a tunnel it is for the proxy alone; in the clear the proxy reads the request itself, and takes it out.
        request.update_proxy(URL(f"{proxy.scheme}://{proxy.address}"), None, login)
        if not request.is_ssl():
            request.headers.update(login)
        response = await handler(request)
        if response.status == WANTS_CREDENTIALS:
            response.close()
            raise aiohttp.ClientHttpProxyError(response.request_info, (), status=response.status, message="refused")
        return response


class _Connector(aiohttp.TCPConnector):
    """Dials through SOCKS where the egress says so."""

    def __init__(self, egress: Egress, **options: Any) -> None:
        super().__init__(**options)
        self._egress = egress

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> Any:
        proxy = _proxy_of(self._egress, req)
        if proxy is None or proxy.scheme != "socks5":
            return await super()._create_connection(req, traces, timeout)
        async with asyncio.timeout(timeout.sock_connect):
            dialled = await self._dial(proxy, req)
        believed = self._get_ssl_context(req)
        name = (req.server_hostname or req.host) if believed else None
        _, protocol = await self._wrap_existing_connection(
            self._factory, req=req, timeout=timeout, sock=dialled, ssl=believed, server_hostname=name
        )
        return protocol

    async def _dial(self, proxy: Proxy, request: aiohttp.ClientRequest) -> socket.socket:
        loop = asyncio.get_running_loop()
        dialled = None
        try:
            found = await loop.getaddrinfo(proxy.host, proxy.port, type=socket.SOCK_STREAM)
            dialled = connection = await aiohappyeyeballs.start_connection(found)
            shake = handshake(proxy, request.url.raw_host or "", request.port or 0)
            await shake_hands(
                shake,
                lambda data: loop.sock_sendall(connection, data),
                lambda size: loop.sock_recv(connection, size),
            )
        except BaseException as error:
            if dialled is not None:
                dialled.close()
            if isinstance(error, ProxyRefused):
                about = request.request_info
                raise aiohttp.ClientHttpProxyError(about, (), status=error.status, message="refused") from None
            if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                raise aiohttp.ClientProxyConnectionError(request.connection_key, error) from error
            raise
        return connection


def _proxy_of(egress: Egress, request: aiohttp.ClientRequest) -> Proxy | None:
    url = request.url
    return egress.proxy_to(url.scheme, url.raw_host or "", url.port or 0)
