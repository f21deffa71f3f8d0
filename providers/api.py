"""What the services share: JSON over HTTP to a vendor's API, and the `site:` words that most engines understand.

Handed a path and parameters by a service; hands on the decoded JSON object. Every status and every exception of the
wire is translated here, once, into `providers.errors`; a service adds only its own quirks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx
import orjson
from pydantic import AfterValidator

from .base import SearchQuery
from .errors import AuthFailed, BadRequest, ProviderError, QuotaExceeded, RateLimited, TimedOut, Unavailable
from .web.http import known_certificates

MAX_BODY = 8 * 1024 * 1024

# What a service knows better than the table below: (status, body) → its own error, or None for the usual one.
Translate = Callable[[int, str], ProviderError | None]


def check_base_url(value: str) -> str:
    url = urlsplit(value)
    if url.scheme not in ("http", "https") or not url.hostname or url.port == 0:
        raise ValueError("it must look like https://host or http://host:port")
    return value


BaseUrl = Annotated[str, AfterValidator(check_base_url)]


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
    ) -> None:
        self._service = service
        self._base_url = base_url.rstrip("/")
        self._timeout = timeout
        self._headers = {"User-Agent": "groundwire", "Accept": "application/json", **(headers or {})}
        self._translate = translate
        self._client: httpx.AsyncClient | None = None

    async def get(self, path: str, params: Mapping[str, str | int]) -> dict[str, Any]:
        return await self._call("GET", path, params=dict(params))

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._call("POST", path, json=dict(body))

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _call(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        try:
            # httpx counts between two reads; only this bounds a body that trickles.
            async with asyncio.timeout(self._timeout):
                response, body = await self._exchange(method, path, **arguments)
        except (TimeoutError, httpx.TimeoutException):
            raise TimedOut(f"{self._service} did not answer within {self._timeout:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            # The text of httpx's errors may hold the address; its class says enough.
            raise Unavailable(f"{self._service} cannot be reached ({type(error).__name__})") from error
        return self._decode(response, body)

    async def _exchange(self, method: str, path: str, **arguments: Any) -> tuple[httpx.Response, bytes]:
        if self._client is None:
            certificates = await asyncio.to_thread(known_certificates)
            # Two first calls may have waited together: the second takes the client that the first made.
            self._client = self._client or httpx.AsyncClient(
                headers=self._headers,
                timeout=self._timeout,
                verify=certificates,
                trust_env=False,
                follow_redirects=False,
            )
        async with self._client.stream(method, self._base_url + path, **arguments) as response:
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_BODY:
                    raise Unavailable(f"{self._service} sent more than {MAX_BODY // 2**20} MB")
            return response, bytes(body)

    def _decode(self, response: httpx.Response, body: bytes) -> dict[str, Any]:
        """The JSON object in the body, whatever the content type says; a failure becomes one of our errors."""
        if response.is_success:
            try:
                value = orjson.loads(body)
            except orjson.JSONDecodeError:
                value = None
            if isinstance(value, dict):
                return value
        own = self._translate(response.status_code, body.decode(errors="replace")) if self._translate else None
        raise own or self._usual_error(response)

    def _usual_error(self, response: httpx.Response) -> ProviderError:
        status = response.status_code
        who = self._service
        if response.is_success:
            return Unavailable(f"{who} sent an answer that is not the expected JSON")
        if status in (401, 403):
            return AuthFailed(f"{who} refused the key (status {status})")
        if status == 402:
            return QuotaExceeded(f"the plan at {who} is used up (status 402)")
        if status == 429:
            wait = retry_after(response.headers.get("retry-after"))
            return RateLimited(f"{who} is rate-limiting us (status 429)", retry_after=wait)
        if status in (400, 422):
            return BadRequest(f"{who} refused the request as invalid (status {status})")
        if status < 500:
            return Unavailable(f"{who} answered with status {status}; check its base_url")
        wait = retry_after(response.headers.get("retry-after"))
        return Unavailable(f"{who} is having trouble (status {status})", retry_after=wait)


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


def with_sites(query: SearchQuery) -> str:
    """The query's text with its domain filters as `site:` and `-site:`, for engines that have no parameter for them."""
    only = " OR ".join(f"site:{domain}" for domain in query.allowed_domains)
    but = " ".join(f"-site:{domain}" for domain in query.blocked_domains)
    grouped = f"({only})" if len(query.allowed_domains) > 1 else only
    return " ".join(part for part in (query.text, grouped, but) if part)
