"""The connections to services below httpx: aiohttp's pool, at a fraction of what httpx's own costs in time.

Handed a request by httpx; hands back its answer, whose body is read as it comes. Every exception of aiohttp becomes the
one of httpx that says the same.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import httpx
from multidict import CIMultiDict
from yarl import URL

_PIECE = 64 * 1024
_KEPT = 5.0  # seconds that an idle connection is kept: services close theirs soon, and a stale one costs a try
_MOST = 100  # connections of one service
# What aiohttp would add of its own; what httpx set is sent, and nothing else.
_NOT_ADDED = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class PooledTransport(httpx.AsyncBaseTransport):
    """`certificates` are those that are believed."""

    def __init__(self, certificates: ssl.SSLContext) -> None:
        self._certificates = certificates
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.AsyncByteStream)
        body = b"".join([part async for part in request.stream])
        with _translated(request):
            answer = await self._open().request(
                request.method,
                URL(str(request.url), encoded=True),
                headers=_headers(request),
                data=body or None,
                timeout=_timeout(request),
                allow_redirects=False,
            )
        extensions = {"http_version": b"HTTP/1.1", "reason_phrase": (answer.reason or "").encode("latin-1", "replace")}
        return httpx.Response(
            answer.status, headers=list(answer.raw_headers), stream=_Body(answer, request), extensions=extensions
        )

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        """Made with the first request: aiohttp wants a running loop."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._certificates, limit=_MOST, keepalive_timeout=_KEPT),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=_NOT_ADDED,
                auto_decompress=False,
                trust_env=False,
                read_bufsize=_PIECE,
            )
        return self._session


class _Body(httpx.AsyncByteStream):
    def __init__(self, answer: aiohttp.ClientResponse, request: httpx.Request) -> None:
        self._answer = answer
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _translated(self._request):
            async for piece in self._answer.content.iter_any():
                yield piece

    async def aclose(self) -> None:
        """What was read to its end goes back to the pool; what was not is closed."""
        if self._answer.content.at_eof():
            self._answer.release()
        else:
            self._answer.close()


def _headers(request: httpx.Request) -> CIMultiDict[str]:
    return CIMultiDict((name.decode("ascii"), value.decode("latin-1")) for name, value in request.headers.raw)


def _timeout(request: httpx.Request) -> aiohttp.ClientTimeout:
    said: dict[str, Any] = request.extensions.get("timeout") or {}
    return aiohttp.ClientTimeout(
        total=None, connect=said.get("pool"), sock_connect=said.get("connect"), sock_read=said.get("read")
    )


# The more exact one stands first.
_SAME: tuple[tuple[type[BaseException], type[httpx.RequestError]], ...] = (
    (aiohttp.ConnectionTimeoutError, httpx.ConnectTimeout),
    (aiohttp.SocketTimeoutError, httpx.ReadTimeout),
    (TimeoutError, httpx.ReadTimeout),
    (aiohttp.ClientConnectorError, httpx.ConnectError),
    (aiohttp.ClientSSLError, httpx.ConnectError),
    (aiohttp.NonHttpUrlClientError, httpx.UnsupportedProtocol),
    (aiohttp.InvalidURL, httpx.UnsupportedProtocol),
    (aiohttp.ClientPayloadError, httpx.RemoteProtocolError),
    (aiohttp.ClientResponseError, httpx.RemoteProtocolError),
    (aiohttp.ServerDisconnectedError, httpx.RemoteProtocolError),
    (aiohttp.ClientError, httpx.ReadError),
    (OSError, httpx.ReadError),
)


@contextmanager
def _translated(request: httpx.Request) -> Iterator[None]:
    try:
        yield
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        same = next(ours for theirs, ours in _SAME if isinstance(error, theirs))
        raise same(type(error).__name__, request=request) from error
