"""The one fetcher for the open web: every page that is read, is read through here.

Handed a URL; waits for its turn, resolves it once per hop, asks the guard, dials exactly the checked address, follows
redirects by hand. Hands on a `Fetched` with at most `max_bytes` of body. Every exception of the network is translated
here. How one address is asked is `page_wire.py`'s, which is imported with the first page.
"""

from __future__ import annotations

import asyncio
import copy
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from ..deadlines import time_limit
from ..errors import BadRequest, NotAllowed, PageBlocked, TimedOut, Unavailable
from ..places import Places, PlacesByHost
from ..records import dataclass
from .answer import ReadTimeout
from .body import ACCEPTED, BadBody, BoundedBody
from .certificate_errors import certificate_trouble
from .certificates import trusted
from .guard import Guard, Target
from .names import resolve_host

if TYPE_CHECKING:
    import httpcore

Resolve = Callable[[str, int], Awaitable[list[str]]]


def release() -> str:
    """Which of ours this is; 0 where nothing is installed."""
    try:
        return version("groundwire")
    except PackageNotFoundError:
        return "0"


def _user_agent() -> str:
    """Who we are: no browser's name, so that a site may choose."""
    return f"Groundwire/{release()} (reads a page for a language model, when asked to)"


USER_AGENT = _user_agent()
# Markdown says the same in fewer words, where a site has it.
ACCEPT = b"text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, text/plain;q=0.8, */*;q=0.5"
ACCEPT_HTML = b"text/html, */*;q=0.5"
_NOT_ACCEPTABLE = 406
_MAX_REDIRECTS = 5
_RESOLVE_LIMIT = 3.0
REDIRECTS = frozenset({301, 302, 303, 307, 308})  # 300 offers a choice, and nobody here can choose
UNREACHABLE = "the page could not be reached"  # one sentence for every cause, or we would be a port scanner
_LATE = "the page did not answer in time"
_CROWDED = "too many pages are being read just now; try again in a moment"
_WAITING = 0.6  # of a page's time: who came in later than this would hardly get to the end
_OF_CALLER = 0.75  # of all places, so that one caller leaves some to others
_OF_REQUEST = 8


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
class Hop:
    target: Target
    address: str
    public: bool


def _with_page_wire(given: ssl.SSLContext | None, ca_file: str) -> ssl.SSLContext:
    """The certificates, when what asks for pages is imported too."""
    import_module(".page_wire", __package__)
    return given or trusted(ca_file)


class Fetcher:
    """`network` makes the TCP connections; it is only ever handed addresses that the guard has admitted. At most
    `max_fetches` pages are under way at once, and `max_per_host` connections to one host; who waits longer than a part
    of `deadline` is sent away.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        resolve: Resolve = resolve_host,
        deadline: float = 15.0,
        max_bytes: int = 2_000_000,
        max_fetches: int = 64,
        max_per_host: int = 8,
        user_agent: str = USER_AGENT,
        ssl_context: ssl.SSLContext | None = None,
        ca_file: str = "",
        network: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        self._guard = guard
        self._resolve = resolve
        self._deadline = deadline
        self._max_bytes = max_bytes
        self._accept = ACCEPT
        self._headers = (
            (b"User-Agent", user_agent.encode("ascii")),
            (b"Accept-Encoding", ACCEPTED.encode()),
            (b"Connection", b"close"),
        )
        self._ssl_context = ssl_context
        self._ca_file = ca_file
        self._network = network
        of_caller = max(1, int(max_fetches * _OF_CALLER))
        self._pages: Places | None = Places(max_fetches, most_of_caller=of_caller, most_of_request=_OF_REQUEST)
        self._hosts = PlacesByHost(max_per_host)

    async def fetch(self, url: str) -> Fetched:
        async with self.fetching(url) as fetched:
            return fetched

    @asynccontextmanager
    async def fetching(self, url: str) -> AsyncIterator[Fetched]:
        """A page, with its place among all that are under way: whoever goes on to read it keeps that until the end, so
        that no more pages than places are held in memory."""
        async with AsyncExitStack() as held:
            with _translated():
                async with time_limit(self._deadline, TimedOut(_LATE)):
                    fetched = await self._follow(url, held)
            yield fetched

    def for_parts_of(self, page: Fetched) -> Fetcher:
        """The same fetcher, for what a page asks for besides itself. It has its place already; and to a public page the
        networks that only we may read are closed."""
        other = copy.copy(self)
        other._pages = None
        other._accept = b"*/*"
        if page.public:
            other._guard = self._guard.for_the_public()
        return other

    async def aclose(self) -> None:
        """Nothing stays open between two fetches; the method is there for whoever owns several clients."""

    async def is_public(self, url: str) -> bool:
        """Whether `url` may be told to a hosted reader: judged like the first hop of a fetch, but never dialled."""
        with _translated():
            return (await self._admit(self._guard.parse(url))).public

    async def _follow(self, url: str, held: AsyncExitStack) -> Fetched:
        public = True
        for redirects in range(_MAX_REDIRECTS + 1):
            target = self._guard.parse(url)
            async with AsyncExitStack() as connection:
                # The host's place comes first: who waits for a busy host keeps none from pages of others.
                await self._wait(connection, self._hosts.place(target.host))
                if self._pages and not redirects:
                    await self._wait(held, self._pages.place())
                hop = await self._admit(target)
                public = public and hop.public
                response = await self._ask(hop, connection)
                if response.status not in REDIRECTS:
                    return await self._take(target, response, public)
                url = _next_url(target, response)
        raise PageBlocked(f"the page redirects more than {_MAX_REDIRECTS} times")  # for others it may not: cookies

    async def _ask(self, hop: Hop, connection: AsyncExitStack) -> httpcore.Response:
        """What the hop answers. A site that has nothing of what we like best is asked once more, for HTML."""
        response = await connection.enter_async_context(self._get(hop, self._accept))
        if response.status != _NOT_ACCEPTABLE:
            return response
        return await connection.enter_async_context(self._get(hop, ACCEPT_HTML))

    async def _wait(self, holder: AsyncExitStack, place: AbstractAsyncContextManager[None]) -> None:
        async with time_limit(self._deadline * _WAITING, TimedOut(_CROWDED)):
            await holder.enter_async_context(place)

    async def _admit(self, target: Target) -> Hop:
        addresses = [target.host] if target.literal else await self._look_up(target)
        return Hop(target, self._guard.admit(target, addresses), self._guard.is_public(target, addresses))

    async def _look_up(self, target: Target) -> list[str]:
        try:
            async with asyncio.timeout(_RESOLVE_LIMIT):
                return await self._resolve(target.host, target.port)
        except OSError as error:  # no such name, or the limit
            raise Unavailable(UNREACHABLE) from error

    @asynccontextmanager
    async def _get(self, hop: Hop, accept: bytes) -> AsyncIterator[httpcore.Response]:
        certificates = await self.certificates()
        from .page_wire import Pinned, asked, url_of

        url, headers = url_of(hop.target), self._said(hop.target, accept)
        async with (
            Pinned(hop.address, self._network) as pinned,
            asked(url, headers, certificates, pinned) as response,
        ):
            yield response

    def _said(self, target: Target, accept: bytes) -> list[tuple[bytes, bytes]]:
        return [(b"Host", target.url.split("/", 3)[2].encode("ascii")), (b"Accept", accept), *self._headers]

    async def certificates(self) -> ssl.SSLContext:
        """In a thread, for who is answered meanwhile: with the first page there is much to read and to import."""
        return await asyncio.to_thread(_with_page_wire, self._ssl_context, self._ca_file)

    async def _take(self, target: Target, response: httpcore.Response, public: bool) -> Fetched:
        body = BoundedBody(_header(response, b"content-encoding"), self._max_bytes)
        async for chunk in response.aiter_stream():
            body.feed(chunk)
            if body.ended or body.over:
                break
        content, cut = body.flush()
        content_type, charset = _read_content_type(_header(response, b"content-type"))
        return Fetched(target.url, response.status, content_type, charset, content, cut, public)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except ReadTimeout as error:
        raise TimedOut(_LATE) from error
    except BadBody as error:
        raise Unavailable(f"the page {error}") from error
    except OSError as error:
        trouble = certificate_trouble(error)
        raise Unavailable(UNREACHABLE, advice=trouble.advice if trouble else "") from error


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
