"""JSON over HTTP to a vendor's API, the same for all services. A query in a service's words is `queries.py`'s, what a
service sends in ours `rows.py`'s.

Handed a path and parameters by a service; hands on the decoded JSON object, or results and a page read from one. Every
status and exception of the wire is translated here, once, into `providers.errors`; a service adds only its own repairs.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote_plus

from pydantic import SecretStr
from yarl import URL

from .base import MOST_HITS, Page, SearchResult, SearchResults
from .deadlines import Deadline, time_limit
from .errors import (
    AuthFailed,
    BadRequest,
    NoResults,
    PageBlocked,
    ProviderError,
    ProxyFailed,
    QuotaExceeded,
    RateLimited,
    TimedOut,
    Unavailable,
)
from .rows import as_author, as_day, as_score, is_web, links_in, parsed, records, text_in
from .web import connections
from .web.answer import ReadTimeout, WireError
from .web.body import ACCEPTED
from .web.certificate_errors import certificate_trouble
from .web.egress import DIRECT, WANTS_CREDENTIALS, Egress, Failing, happening
from .web.plain import first_heading
from .web.service_wire import ServiceAnswer, ServiceWire

if TYPE_CHECKING:
    import httpx

MAX_BODY = 4 * 1024 * 1024  # on the wire and decoded; far more than an honest answer has
# What an answer may be made of. The parser holds the interpreter's lock, so that no thread would help the others: a
# million empty lists in a row take it half a second.
MAX_PARTS = 100_000
MAX_ERROR = 65_536  # as much of an answer that is no success is looked at
# What the connections raise, and no more: any other `OSError` or `TimeoutError` is not the service's doing.
_WRONG = (WireError, ReadTimeout, connections.ConnectTimeout, connections.NotConnected)
_JSON = {"content-type": "application/json"}
_WORDS = re.compile(r"[A-Za-z0-9_.~ -]*")  # nothing of it is quoted but the blanks

# What a service knows better than the table below: (status, body) → its own error, or None for the usual one.
Translate = Callable[[int, str], ProviderError | None]


class ServiceApi:
    """`service` is the vendor's name as people know it; it begins every error text."""

    def __init__(
        self,
        service: str,
        base_url: str,
        *,
        timeout: float,
        headers: Mapping[str, str] | None = None,
        translate: Translate | None = None,
        egress: Egress = DIRECT,
    ) -> None:
        self._service = service
        self.base_url = base_url
        self._path = URL(base_url).raw_path.rstrip("/")
        self._egress = egress
        self._proxy = egress.proxy_to_url(base_url)
        self._timeout = timeout
        usual = {"User-Agent": "groundwire", "Accept": "application/json", "Accept-Encoding": ACCEPTED}
        self._headers = {**usual, **(headers or {})}
        self._translate = translate
        self._wire = self._open_wire(self._headers)
        self._sdk_wire: ServiceWire | None = None

    async def get(self, path: str, params: Mapping[str, str | int | Sequence[str]]) -> dict[str, Any]:
        query = _query_string(params)
        return await self._call("GET", f"{path}?{query}" if query else path, {}, b"")

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """What is None in `body` is left out of it."""
        said = {key: value for key, value in body.items() if value is not None}
        written = json.dumps(said, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return await self._call("POST", path, _JSON, written.encode())

    async def aclose(self) -> None:
        self._wire.close()
        if self._sdk_wire is not None:
            self._sdk_wire.close()

    def client(self) -> httpx.AsyncClient:
        """For a vendor's SDK: the service's own, so that no other service ever sees its headers."""
        import httpx

        from .web.sdk_transport import SdkTransport

        self._sdk_wire = self._open_wire({})  # it sends what the SDK says, and nothing else
        return httpx.AsyncClient(
            headers=self._headers,
            timeout=self._timeout,
            trust_env=False,
            follow_redirects=False,
            transport=SdkTransport(self._sdk_wire, self.base_url),
        )

    def _open_wire(self, headers: Mapping[str, str]) -> ServiceWire:
        timeout = self._timeout
        return ServiceWire(self._service, self.base_url, headers, self._egress, timeout=timeout, most=MAX_BODY)

    @asynccontextmanager
    async def in_time(self, *of_sdk: type[Exception]) -> AsyncIterator[None]:
        """The time limit of one call over a vendor's SDK; what goes wrong on the wire inside it becomes one of our
        errors, and so do those `of_sdk`."""
        wrong: tuple[type[Exception], ...] = (*_WRONG, *of_sdk)
        try:
            async with time_limit(self._timeout, self._late()):
                yield
        except wrong as error:
            raise self._trouble(error) from None

    def _trouble(self, error: Exception) -> ProviderError:
        if isinstance(error, TimeoutError):
            return self._late()
        if isinstance(error, connections.ProxyFailed):
            trouble = certificate_trouble(error)
            return self._stopped(
                error.kind, f"has a certificate that is not valid: {trouble.problem}" if trouble else ""
            )
        if trouble := certificate_trouble(error):
            return Unavailable(f"{self._service} {trouble.sentence}", advice=trouble.advice)
        # The text of such an error may hold the address; its class says enough.
        return Unavailable(f"{self._service} cannot be reached ({type(error).__name__})")

    def _late(self) -> TimedOut:
        return TimedOut(f"{self._service} did not answer within {self._timeout:g} s")

    def _stopped(self, trouble: Failing, happened: str = "") -> ProxyFailed:
        assert self._proxy is not None
        sentence = f"the proxy before {self._service} {happened or happening(trouble)}"
        return ProxyFailed(sentence, advice=self._proxy.remedy(trouble))

    def decode(self, answer: ServiceAnswer) -> dict[str, Any]:
        """The JSON object in the body, whatever the content type says; a failure becomes one of our errors."""
        content = answer.content
        if 200 <= answer.status < 300:
            # A part takes a byte: most answers are too short to hold so many.
            if len(content) > MAX_PARTS and content.count(b"[") + content.count(b"{") > MAX_PARTS:
                raise Unavailable(f"{self._service} sent an answer of too many parts")
            value = parsed(content)
            if isinstance(value, dict):
                return value
        said = content[:MAX_ERROR].decode(errors="replace")
        own = self._translate(answer.status, said) if self._translate else None
        if own is None:
            raise self._usual_error(answer)
        if own.retry_after is None and not isinstance(own, AuthFailed):  # no wait mends a key
            own.retry_after = _wait(answer, plan=isinstance(own, QuotaExceeded))
        raise own

    def found(
        self,
        rows: object,
        *,
        snippet: Sequence[str],
        url: str = "url",
        date: Sequence[str] = ("date",),
        author: str = "author",
        score: str = "score",
        answer: object = "",
    ) -> SearchResults:
        """Rows of JSON as results, with the names of their keys; a row without an address is left out."""
        hits = tuple(
            SearchResult(
                text_in(row.get("title")),
                row[url],
                " … ".join(filter(None, (text_in(row.get(key)) for key in snippet))),
                next(filter(None, (as_day(row.get(key)) for key in date)), None),
                as_author(row.get(author)),
                as_score(row.get(score)),
            )
            for row in records(rows)[:MOST_HITS]
            if isinstance(row.get(url), str) and row[url]
        )
        if not hits and not text_in(answer):
            raise NoResults(f"{self._service} found nothing")
        return SearchResults(hits, text_in(answer))

    def page(
        self,
        asked: str,
        text: object,
        *,
        url: object = None,
        title: object = None,
        date: object = None,
        links: object = None,
    ) -> Page:
        """A page from what a reader gave for the URL `asked`; without text there is no page."""
        if not isinstance(text, str) or not text.strip():
            raise PageBlocked(f"{self._service} found no readable text on the page")
        named = (link for link in links if isinstance(link, str)) if isinstance(links, list) else links_in(text)
        return Page(
            url=url if isinstance(url, str) and is_web(url) else asked,
            title=text_in(title) or first_heading(text),
            text=text,
            date=as_day(date),
            links=tuple(dict.fromkeys(filter(is_web, named))),
        )

    async def _call(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        deadline = Deadline(loop, loop.time() + self._timeout)
        try:
            with deadline:
                answer = await self._wire.ask(method, self._path + path, headers, body)
        except _WRONG as error:
            raise self._trouble(error) from None
        except TimeoutError:
            if not deadline.expired:
                raise
            raise self._late() from None
        return self.decode(answer)

    def _usual_error(self, answer: ServiceAnswer) -> ProviderError:
        if self._proxy and answer.status == WANTS_CREDENTIALS:
            return self._stopped("credentials")
        meaning = _meaning(answer.status)
        wait = _wait(answer, plan=meaning.error is QuotaExceeded) if meaning.passes else None
        text = meaning.sentence.format(who=self._service, status=answer.status)
        return meaning.error(text, retry_after=wait, advice=meaning.advice)


def _query_string(params: Mapping[str, str | int | Sequence[str]]) -> str:
    """Names of parameters are words of ours and need no quoting. One that has several values is said several times."""
    fields = []
    for name, value in params.items():
        for one in (value,) if isinstance(value, str | int) else value:
            fields.append(f"{name}={_quoted(str(one))}")
    return "&".join(fields)


def _quoted(text: str) -> str:
    """As `quote_plus`, which takes a dozen calls for what most queries are: words and blanks."""
    return text.replace(" ", "+") if _WORDS.fullmatch(text) else quote_plus(text)


class _Meaning(NamedTuple):
    """What a status says about a service. `passes`: it may be over after a while, and the answer may say when."""

    error: type[ProviderError]
    sentence: str
    passes: bool
    advice: str = ""


_INVALID = _Meaning(BadRequest, "{who} refused the request as invalid (status {status})", False)
_REFUSED = _Meaning(AuthFailed, "{who} refused the key (status {status})", False)
_LATE = _Meaning(TimedOut, "{who} ran out of time itself (status {status})", True)
_MEANINGS = {
    400: _INVALID,
    401: _REFUSED,
    402: _Meaning(QuotaExceeded, "the plan at {who} is used up (status {status})", True),
    403: _REFUSED,
    408: _LATE,
    422: _INVALID,
    429: _Meaning(RateLimited, "{who} is rate-limiting us (status {status})", True),
    504: _LATE,
}
_NOT_JSON = _Meaning(Unavailable, "{who} sent an answer that is not the expected JSON", False)
_ELSEWHERE = _Meaning(Unavailable, "{who} answered with status {status}", False, "check its base_url")
_TROUBLE = _Meaning(Unavailable, "{who} is having trouble (status {status})", True)


def _meaning(status: int) -> _Meaning:
    if status in _MEANINGS:
        return _MEANINGS[status]
    if 200 <= status < 300:
        return _NOT_JSON
    return _ELSEWHERE if status < 500 else _TROUBLE


def bearer(key: SecretStr | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key.get_secret_value()}"} if key else {}


def retry_after(value: str | None) -> float | None:
    """Seconds from a Retry-After header, which is a number of seconds or a date (RFC 9110 §10.2.3)."""
    if not value:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    if when.tzinfo is None:  # "-0000" means UTC of unknown locality
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())


def _wait(answer: ServiceAnswer, *, plan: bool = False) -> float | None:
    """Retry-After, else a window of X-RateLimit-Reset, in seconds from now or since 1970.

    The first window is that of the rate; a used-up `plan` comes back with the last, if there is more than one.
    """
    wait = retry_after(answer.header(b"retry-after"))
    if wait is None:
        rate, *longer = answer.header(b"x-ratelimit-reset").split(",")
        reset = (longer[-1] if longer else "").strip() if plan else rate.strip()
        wait = float(reset) if reset.isdecimal() else None
        if wait is not None and wait > 1e9:
            wait = max(0.0, wait - datetime.now(UTC).timestamp())
    return wait
