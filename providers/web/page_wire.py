"""How one address is asked for a page. Handed the address that the guard has admitted, and what to send; hands on what
httpcore reads from there. What goes wrong on the way becomes the exception of Python that says the same.

Why httpcore and not httpx: httpx would parse the URL a second time, follow its environment and inflate without bound.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import httpcore

from .answer import ReadTimeout
from .guard import Target


def url_of(target: Target) -> httpcore.URL:
    path = target.url.split("/", 3)[3]
    return httpcore.URL(scheme=target.scheme, host=target.host, port=target.port, target=f"/{path}")


@asynccontextmanager
async def asked(
    url: httpcore.URL,
    headers: Sequence[tuple[bytes, bytes]],
    certificates: ssl.SSLContext,
    network: httpcore.AsyncNetworkBackend,
) -> AsyncIterator[httpcore.Response]:
    """A connection of its own for each question, so none is ever reused for a name that now resolves elsewhere."""
    connection = httpcore.AsyncHTTPConnection(url.origin, ssl_context=certificates, network_backend=network)
    with _translated():
        async with connection.stream("GET", url, headers=headers) as response:
            yield response


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except httpcore.TimeoutException as error:
        raise ReadTimeout from error
    except (httpcore.NetworkError, httpcore.ProtocolError) as error:
        raise OSError(str(error)) from error


class Pinned(httpcore.AsyncNetworkBackend):
    """Dials one address whatever name it is asked for (the name stays for TLS), and owns the socket to the end.
    `network` makes the TCP connection: the system's own, unless another is given.

    httpcore forgets a socket whose handshake is cancelled; here it is closed all the same.
    """

    def __init__(self, address: str, network: httpcore.AsyncNetworkBackend | None) -> None:
        self._address = address
        self._network = network or httpcore.AnyIOBackend()
        self._stream: httpcore.AsyncNetworkStream | None = None

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self._stream = await self._network.connect_tcp(self._address, port, timeout, local_address, socket_options)
        return self._stream

    @property
    def connected(self) -> bool:
        return self._stream is not None

    async def __aenter__(self) -> Pinned:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._stream is not None:
            await self._stream.aclose()
