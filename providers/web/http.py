"""The one fetcher for the open web: every page that is read, is read through here.

Handed a URL; resolves it once per hop, asks the guard, dials exactly the checked address, follows redirects by hand.
Hands on a `Fetched` with at most `max_bytes` of body. Every exception of the network is translated here.

Why httpcore and not httpx: httpx would parse the URL a second time, follow its environment and inflate without bound.
"""

from __future__ import annotations

import asyncio
import copy
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cache
from urllib.parse import urljoin

import httpcore
import httpx

from ..errors import BadRequest, NotAllowed, PageBlocked, TimedOut, Unavailable
from .guard import Guard, Target

Resolve = Callable[[str, int], Awaitable[list[str]]]

USER_AGENT = "Mozilla/5.0 (compatible; Groundwire)"
_MAX_REDIRECTS = 5
_RESOLVE_LIMIT = 3.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})  # 300 offers a choice, and nobody here can choose
_UNREACHABLE = "the page could not be reached"  # one sentence for every cause, or we would be a port scanner


@dataclass(frozen=True, slots=True)
class Fetched:
    """A page as it came. `cut` if more of it was left behind; not `public` if any hop was an allowed network's."""

    url: str
    status: int
    content_type: str
    charset: str
    body: bytes
    cut: bool
    public: bool


@dataclass(frozen=True, slots=True)
class _Hop:
    target: Target
    address: str
    public: bool


async def resolve_host(host: str, port: int) -> list[str]:
    """All addresses of a name, in the order the system prefers; getaddrinfo blocks, so it runs in a thread."""
    answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in answers]


@cache
def known_certificates() -> ssl.SSLContext:
    """The authorities that we believe, read once: the bundle takes long enough to stall a loop or slow a start."""
    return httpx.create_ssl_context()


class Fetcher:
    """`network` makes the TCP connections; it is only ever handed addresses that the guard has admitted."""

    def __init__(
        self,
        guard: Guard,
        *,
        resolve: Resolve = resolve_host,
        deadline: float = 15.0,
        max_bytes: int = 2_000_000,
        user_agent: str = USER_AGENT,
        ssl_context: ssl.SSLContext | None = None,
        network: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        self._guard = guard
        self._resolve = resolve
        self._deadline = deadline
        self._max_bytes = max_bytes
        self._headers = (
            (b"User-Agent", user_agent.encode("ascii")),
            (b"Accept", b"text/html,application/xhtml+xml,text/plain;q=0.9,application/pdf;q=0.9,*/*;q=0.5"),
            (b"Accept-Encoding", b"identity, gzip"),
            (b"Connection", b"close"),
        )
        self._ssl_context = ssl_context
        self._network = network or httpcore.AnyIOBackend()

    async def fetch(self, url: str) -> Fetched:
        with _translated():
            async with asyncio.timeout(self._deadline):
                return await self._follow(url)

    def for_the_public(self) -> Fetcher:
        """The same fetcher, for what a public page asks for: the networks that only we may read are closed to it."""
        other = copy.copy(self)
        other._guard = self._guard.for_the_public()
        return other

    async def aclose(self) -> None:
        """Nothing stays open between two fetches; the method is there for whoever owns several clients."""

    async def is_public(self, url: str) -> bool:
        """Whether `url` may be told to a hosted reader: judged like the first hop of a fetch, but never dialled."""
        with _translated():
            return (await self._admit(url)).public

    async def _follow(self, url: str) -> Fetched:
        public = True
        for _ in range(_MAX_REDIRECTS + 1):
            hop = await self._admit(url)
            public = public and hop.public
            async with self._get(hop) as response:
                if response.status not in _REDIRECTS:
                    return await self._take(hop.target, response, public)
                url = _next_url(hop.target, response)
        raise PageBlocked(f"the page redirects more than {_MAX_REDIRECTS} times")  # for others it may not: cookies

    async def _admit(self, url: str) -> _Hop:
        target = self._guard.parse(url)
        addresses = [target.host] if target.literal else await self._look_up(target)
        return _Hop(target, self._guard.admit(target, addresses), self._guard.is_public(target, addresses))

    async def _look_up(self, target: Target) -> list[str]:
        try:
            async with asyncio.timeout(_RESOLVE_LIMIT):
                return await self._resolve(target.host, target.port)
        except OSError as error:  # no such name, or the limit
            raise Unavailable(_UNREACHABLE) from error

    @asynccontextmanager
    async def _get(self, hop: _Hop) -> AsyncIterator[httpcore.Response]:
        target = hop.target
        _, _, authority, path = target.url.split("/", 3)
        url = httpcore.URL(scheme=target.scheme, host=target.host, port=target.port, target=f"/{path}")
        async with _Pinned(hop.address, self._network) as pinned:
            # A connection of its own for each hop, so none is ever reused for a name that now resolves elsewhere.
            certificates = self._ssl_context or await asyncio.to_thread(known_certificates)
            connection = httpcore.AsyncHTTPConnection(url.origin, ssl_context=certificates, network_backend=pinned)
            headers = [(b"Host", authority.encode("ascii")), *self._headers]
            async with connection.stream("GET", url, headers=headers) as response:
                yield response

    async def _take(self, target: Target, response: httpcore.Response, public: bool) -> Fetched:
        body = _Body(_header(response, b"content-encoding"), self._max_bytes)
        async for chunk in response.aiter_stream():
            body.feed(chunk)
            if body.full:
                break
        content, cut = body.flush()
        content_type, charset = _read_content_type(_header(response, b"content-type"))
        return Fetched(target.url, response.status, content_type, charset, content, cut, public)


class _Pinned(httpcore.AsyncNetworkBackend):
    """Dials one address whatever name it is asked for (the name stays for TLS), and owns the socket to the end.

    httpcore forgets a socket whose handshake is cancelled; here it is closed all the same.
    """

    def __init__(self, address: str, network: httpcore.AsyncNetworkBackend) -> None:
        self._address = address
        self._network = network
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

    async def __aenter__(self) -> _Pinned:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._stream is not None:
            await self._stream.aclose()


class _Body:
    """Collects a body, inflating as it comes: never more than `limit` bytes from the wire nor `limit` decoded."""

    def __init__(self, encoding: str, limit: int) -> None:
        encodings = [name for part in encoding.split(",") if (name := part.strip().lower()) not in ("", "identity")]
        if encodings not in ([], ["gzip"], ["x-gzip"]):
            raise Unavailable("the page came in an encoding that was not asked for")
        self._inflate = zlib.decompressobj(wbits=31) if encodings else None
        self._limit = limit
        self._wire = 0
        self._data = bytearray()

    @property
    def full(self) -> bool:
        ended = self._inflate is not None and self._inflate.eof
        return ended or self._is_over()

    def feed(self, chunk: bytes) -> None:
        self._wire += len(chunk)
        if self._inflate is not None:
            # One byte beyond the limit tells a body that was cut from one that just fits.
            room = self._limit + 1 - len(self._data)
            try:
                chunk = self._inflate.decompress(chunk, room)
            except zlib.error as error:
                raise Unavailable("the page is not the gzip it claims to be") from error
        self._data += chunk

    def flush(self) -> tuple[bytes, bool]:
        """What fits of the body, and whether that is not all of it."""
        unfinished = self._inflate is not None and self._wire > 0 and not self._inflate.eof
        return bytes(self._data[: self._limit]), self._is_over() or unfinished

    def _is_over(self) -> bool:
        return max(self._wire, len(self._data)) > self._limit


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (TimeoutError, httpcore.TimeoutException) as error:
        raise TimedOut("the page did not answer in time") from error
    except (OSError, httpcore.NetworkError, httpcore.ProtocolError) as error:
        raise Unavailable(_UNREACHABLE) from error


def _next_url(target: Target, response: httpcore.Response) -> str:
    location = _header(response, b"location").replace(" ", "%20")
    if not location:
        raise BadRequest("the page redirects to nowhere")
    try:
        return urljoin(target.url, location)
    except ValueError as error:
        raise NotAllowed("address not allowed") from error


def _header(response: httpcore.Response, name: bytes) -> str:
    values = [value for key, value in response.headers if key.lower() == name]
    return b",".join(values).decode("utf-8", "replace").strip()


def _read_content_type(header: str) -> tuple[str, str]:
    kind, *parameters = header.lower().split(";")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset":
            return kind.strip(), value.strip(" \"'")
    return kind.strip(), ""
