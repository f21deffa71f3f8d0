"""What the services share: JSON over HTTP to a vendor's API, our words in theirs, and their rows in ours.

Handed a path and parameters by a service; hands on the decoded JSON object, or results and a page read from one. Every
status and exception of the wire is translated here, once, into `providers.errors`; a service adds only its own repairs.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import orjson
from pydantic import AfterValidator, SecretStr

from .base import MOST_HITS, Page, SearchQuery, SearchResult, SearchResults
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
from .web.body import ACCEPTED
from .web.clients import open_client, proxy_trouble
from .web.egress import DIRECT, WANTS_CREDENTIALS, Egress, Failing, happening

MAX_BODY = 4 * 1024 * 1024  # on the wire and decoded; far more than an honest answer has
# What an answer may be made of. The parser holds the interpreter's lock, so that no thread would help the others: a
# million empty lists in a row take it half a second.
MAX_PARTS = 100_000
MAX_ERROR = 65_536  # as much of an answer that is no success is looked at
DAYS = {"d": 1, "w": 7, "m": 31, "y": 366}
PERIODS = {"d": "day", "w": "week", "m": "month", "y": "year"}  # as most services call them
LONG_AGO = date(1990, 1, 1)  # where a service wants both ends of a range

MARKDOWN_LINK = re.compile(r"(?<!!)\[[^\[\]]{0,500}\]\(<?(https?://(?:[^\s()<>]|\([^\s()<>]{0,200}\))+)")
MARKDOWN_TITLE = re.compile(r"^# +(\S.*)$", re.M)
AGO = re.compile(r"(\d{1,3}|an?) (minute|hour|day|week|month|year)s? ago", re.I)
ENGLISH_DAY = re.compile(r"([a-z]{3})[a-z]*\.? (\d{1,2}), (\d{4}).*", re.I)
AGO_DAYS = {"minute": 1 / 1440, "hour": 1 / 24, "day": 1, "week": 7, "month": 30, "year": 365}

# What a service knows better than the table below: (status, body) → its own error, or None for the usual one.
Translate = Callable[[int, str], ProviderError | None]


def check_url(value: str) -> str:
    url = urlsplit(value)
    if url.scheme not in ("http", "https") or not url.hostname or url.port == 0:
        raise ValueError("it must look like https://host or http://host:port")
    return value


def check_base_url(value: str) -> str:
    return check_url(value).rstrip("/")


def check_key(value: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[!-~]+", value.get_secret_value()):
        raise ValueError("it must be printable ASCII without spaces")
    return value


BaseUrl = Annotated[str, AfterValidator(check_base_url)]
Key = Annotated[SecretStr, AfterValidator(check_key)]


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
        self._base_url = base_url.rstrip("/")
        self._egress = egress
        self._proxy = egress.proxy_to_url(base_url)
        self._timeout = timeout
        usual = {"User-Agent": "groundwire", "Accept": "application/json", "Accept-Encoding": ACCEPTED}
        self._headers = {**usual, **(headers or {})}
        self._translate = translate
        self._client: httpx.AsyncClient | None = None

    async def get(self, path: str, params: Mapping[str, str | int | Sequence[str]]) -> dict[str, Any]:
        return await self._call("GET", path, params=dict(params))

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """What is None in `body` is left out of it."""
        return await self._call("POST", path, json={key: value for key, value in body.items() if value is not None})

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def client(self) -> httpx.AsyncClient:
        """The service's own client: no other service ever sees its headers."""
        if self._client is None:
            made = await open_client(
                self._proxy,
                self._egress.ca_file,
                service=self._service,
                most=MAX_BODY,
                headers=self._headers,
                timeout=self._timeout,
            )
            # Two first calls may have waited together: the second takes the client that the first made.
            self._client = self._client or made
        return self._client

    @asynccontextmanager
    async def in_time(self) -> AsyncIterator[None]:
        """The time limit of one call; what goes wrong on the wire inside it becomes one of our errors."""
        try:
            # httpx counts between two reads; only this bounds a body that trickles.
            async with asyncio.timeout(self._timeout):
                yield
        except (TimeoutError, httpx.TimeoutException):
            raise TimedOut(f"{self._service} did not answer within {self._timeout:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            if self._proxy and (trouble := proxy_trouble(error)):
                raise self._stopped(trouble) from None
            # The text of httpx's errors may hold the address; its class says enough.
            raise Unavailable(f"{self._service} cannot be reached ({type(error).__name__})") from error

    def _stopped(self, trouble: Failing) -> ProxyFailed:
        assert self._proxy is not None
        sentence = f"the proxy before {self._service} {happening(trouble)}"
        return ProxyFailed(sentence, advice=self._proxy.remedy(trouble))

    def decode(self, response: httpx.Response) -> dict[str, Any]:
        """The JSON object in the body, whatever the content type says; a failure becomes one of our errors."""
        if response.is_success:
            if response.content.count(b"[") + response.content.count(b"{") > MAX_PARTS:
                raise Unavailable(f"{self._service} sent an answer of too many parts")
            value = _json(response.content)
            if isinstance(value, dict):
                return value
        said = response.content[:MAX_ERROR].decode(errors="replace")
        own = self._translate(response.status_code, said) if self._translate else None
        if own is None:
            raise self._usual_error(response)
        if own.retry_after is None and not isinstance(own, AuthFailed):  # no wait mends a key
            own.retry_after = _wait(response.headers, plan=isinstance(own, QuotaExceeded))
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
                _text(row.get("title")),
                row[url],
                " … ".join(filter(None, (_text(row.get(key)) for key in snippet))),
                next(filter(None, (as_day(row.get(key)) for key in date)), None),
                as_author(row.get(author)),
                as_score(row.get(score)),
            )
            for row in records(rows)[:MOST_HITS]
            if isinstance(row.get(url), str) and row[url]
        )
        if not hits and not _text(answer):
            raise NoResults(f"{self._service} found nothing")
        return SearchResults(hits, _text(answer))

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
        heading = MARKDOWN_TITLE.search(text)
        named = (link for link in links if isinstance(link, str)) if isinstance(links, list) else _links(text)
        return Page(
            url=url if isinstance(url, str) and _is_web(url) else asked,
            title=_text(title) or (heading[1].strip() if heading else ""),
            text=text,
            date=as_day(date),
            links=tuple(dict.fromkeys(filter(_is_web, named))),
        )

    async def _call(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        async with self.in_time():
            client = await self.client()
            response = await client.request(method, self._base_url + path, **arguments)
        return self.decode(response)

    def _usual_error(self, response: httpx.Response) -> ProviderError:
        if self._proxy and response.status_code == WANTS_CREDENTIALS:
            return self._stopped("credentials")
        meaning = _meaning(response.status_code)
        wait = _wait(response.headers, plan=meaning.error is QuotaExceeded) if meaning.passes else None
        text = meaning.sentence.format(who=self._service, status=response.status_code)
        return meaning.error(text, retry_after=wait, advice=meaning.advice)


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


def _wait(headers: httpx.Headers, *, plan: bool = False) -> float | None:
    """Retry-After, else a window of X-RateLimit-Reset, in seconds from now or since 1970.

    The first window is that of the rate; a used-up `plan` comes back with the last, if there is more than one.
    """
    wait = retry_after(headers.get("retry-after"))
    if wait is None:
        rate, *longer = headers.get("x-ratelimit-reset", "").split(",")
        reset = (longer[-1] if longer else "").strip() if plan else rate.strip()
        wait = float(reset) if reset.isdecimal() else None
        if wait is not None and wait > 1e9:
            wait = max(0.0, wait - datetime.now(UTC).timestamp())
    return wait


# Our words in theirs


def with_sites(query: SearchQuery) -> str:
    """The query's text with its domain filters as `site:` and `-site:`, for engines that have no parameter for them."""
    only = " OR ".join(f"site:{domain}" for domain in query.allowed_domains)
    but = " ".join(f"-site:{domain}" for domain in query.blocked_domains)
    grouped = f"({only})" if len(query.allowed_domains) > 1 else only
    return " ".join(part for part in (query.text, grouped, but) if part)


def days_of(query: SearchQuery, *, relative: bool = False) -> tuple[date | None, date | None]:
    """The first and the last day, if the query names one; its time range then narrows the first.

    `relative` is for a service without time ranges: for it the range alone makes a first day.
    """
    first, last = (date.fromisoformat(day) if day else None for day in (query.published_after, query.published_before))
    if query.time_range != "all" and (first or last or relative):
        start = datetime.now(UTC).date() - timedelta(days=DAYS[query.time_range])
        first = max(first, start) if first else start
    return first, last


def google_time(query: SearchQuery) -> str | None:
    """Google's `tbs`, which its resellers pass on."""
    first, last = days_of(query)
    if not first and not last:
        return None if query.time_range == "all" else f"qdr:{query.time_range}"
    ends = (first or LONG_AGO, last or datetime.now(UTC).date())
    return "cdr:1,cd_min:{},cd_max:{}".format(*(f"{day.month}/{day.day}/{day.year}" for day in ends))


# Their rows in ours


def part(value: object, *keys: str) -> Any:
    """What lies under these keys, one inside the other; None where one is missing or is no object."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def records(value: object) -> list[Mapping[str, Any]]:
    """The objects of a list; whatever else a service may have sent instead is none."""
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def error_part(body: str, *keys: str) -> Any:
    """What an error's body says under these keys, if it is JSON at all."""
    return part(_json(body), *keys)


def as_day(value: object) -> str | None:
    """YYYY-MM-DD from ISO 8601, RFC 1123, "May 1, 2026" or "3 days ago"; None from anything else."""
    if not isinstance(value, str):
        return None
    text = value.strip()
    if ago := AGO.match(text):
        count = int(ago[1]) if ago[1].isdecimal() else 1
        return (datetime.now(UTC) - timedelta(days=count * AGO_DAYS[ago[2].lower()])).date().isoformat()
    for read in (_iso, _english, parsedate_to_datetime):
        try:
            return read(text).date().isoformat()
        except (ValueError, OverflowError):
            continue
    return None


def as_author(value: object) -> str | None:
    """One name, or several in one line."""
    names = value if isinstance(value, list) else [value]
    return ", ".join(name.strip() for name in names if isinstance(name, str) and name.strip()) or None


def as_score(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _iso(text: str) -> datetime:
    return datetime.strptime(text[:10], "%Y-%m-%d")


def _english(text: str) -> datetime:
    return datetime.strptime(ENGLISH_DAY.sub(r"\1 \2 \3", text), "%b %d %Y")


def _json(body: str | bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        # It takes half an emoji, where a service cut a text in its midst: one such row must not cost the others.
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _text(value: object) -> str:
    """A text, or several as one; nothing from what is neither."""
    if isinstance(value, list):
        return " … ".join(item.strip() for item in value if isinstance(item, str) and item.strip())
    return value.strip() if isinstance(value, str) else ""


def _is_web(url: str) -> bool:
    return url.startswith(("https://", "http://"))


def _links(markdown: str) -> Iterable[str]:
    return (found[1] for found in MARKDOWN_LINK.finditer(markdown))
