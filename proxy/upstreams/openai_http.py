"""The fast lane: any server that speaks Chat Completions, over aiohttp. Handed a request body, hands on events per
network read; or forwards bytes both ways. Every exception of the HTTP client ends here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import orjson

from ..errors import RequestError, as_error, failure
from ..events import Event, Failed
from ..sse import EventTooLong, SSEDecoder
from .base import Broken, Reply
from .chunks import ChunkReader

log = logging.getLogger("groundwire")

_FORWARDED_DOWN = frozenset(
    {"content-type", "content-disposition", "retry-after", "retry-after-ms", "x-should-retry", "openai-processing-ms"}
)
_HTTP_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)
_ANSWER_LIMIT = 64 * 1024 * 1024
_MODELS_AGE = 60.0
_SHORTEST_SECRET = 16  # shorter ones are words like `ollama`, put there because some client wants a key


class OpenAIUpstream:
    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        connect_timeout: float = 5.0,
        first_byte_timeout: float = 120.0,
        idle_timeout: float = 60.0,
    ) -> None:
        self.name = name
        self._base = base_url.rstrip("/")
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "groundwire", **(headers or {})}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._secret = api_key if len(api_key) >= _SHORTEST_SECRET else ""
        self._connect_timeout = connect_timeout
        self._first_byte_timeout = first_byte_timeout
        self._idle_timeout = idle_timeout
        self._session: aiohttp.ClientSession | None = None
        self._models: tuple[float, list[dict[str, Any]]] = (0.0, [])

    async def stream(self, body: dict[str, Any], headers: Mapping[str, str]) -> AsyncGenerator[list[Event], None]:
        reader = ChunkReader()
        try:
            async with await self._send("POST", "/chat/completions", headers, orjson.dumps(body)) as response:
                failed = await self._refused(response)
                if failed:
                    yield [failed]
                    return
                first = await self._read(response)
                if _is_json(response.content_type, first):
                    yield self._without_key(reader.feed_answer(await self._whole(response, first)))
                    return
                if _is_markup(first):
                    yield [self._unreadable(first)]
                    return
                decoder, data = SSEDecoder(), first
                while data:
                    events = reader.feed(decoder.feed(data))
                    if reader.over:
                        yield self._without_key(events)
                        return
                    if events:
                        yield events
                    data = await self._read(response)
                yield reader.flush(decoder.flush())
        except (*_HTTP_ERRORS, EventTooLong) as error:
            # Once the model has said that it is done, a connection that then breaks or hangs has lost nothing.
            yield reader.flush() if reader.complete else [self._failure(error, begun=reader.begun)]

    @asynccontextmanager
    async def forward(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> AsyncIterator[Reply]:
        try:
            response = await self._send(method, path, headers, body)
        except _HTTP_ERRORS as error:
            yield _as_reply(self._failure(error, begun=False))
            return
        async with response:
            if response.status in (401, 403) or 300 <= response.status < 400:
                yield _as_reply(await self._refused(response))
                return
            down = {
                key.lower(): value
                for key, value in response.headers.items()
                if key.lower() in _FORWARDED_DOWN or key.lower().startswith("x-ratelimit-")
            }
            chunks = self._chunks(response) if response.status < 400 else self._error_chunks(response)
            yield Reply(response.status, down, chunks)

    async def models(self) -> list[dict[str, Any]]:
        """What the server lists, remembered for a minute. Raises `RequestError` where it cannot be asked."""
        asked, known = self._models
        if asked and time.monotonic() - asked < _MODELS_AGE:
            return known
        try:
            async with await self._send("GET", "/models", {}, b"") as response:
                failed = await self._refused(response)
                answer = None if failed else await self._whole(response, b"")
        except (*_HTTP_ERRORS, EventTooLong) as error:
            failed = self._failure(error, begun=False)
        if failed:
            raise RequestError(failed)
        data = answer.get("data") if isinstance(answer, dict) else None
        found = [m for m in data or () if isinstance(m, dict) and isinstance(m.get("id"), str)]
        self._models = (time.monotonic(), found)
        return found

    async def aclose(self) -> None:
        if self._session:
            await self._session.close()

    async def _send(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> aiohttp.ClientResponse:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout)
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
            jar = aiohttp.DummyCookieJar()
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=jar)
        sent = {"Content-Type": "application/json", **headers, **self._headers} if body else self._headers
        async with asyncio.timeout(self._first_byte_timeout):
            return await self._session.request(
                method, self._base + path, data=body or None, headers=sent, allow_redirects=False
            )

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        async with asyncio.timeout(self._idle_timeout):
            return await response.content.readany()

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        try:
            while data := await self._read(response):
                yield data
        except _HTTP_ERRORS as error:
            raise Broken from error

    async def _error_chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """An error's body, which is short, without our key in it."""
        body = b"".join([data async for data in self._chunks(response)])
        yield body.replace(self._secret.encode(), b"***") if self._secret else body

    async def _whole(self, response: aiohttp.ClientResponse, first: bytes) -> Any:
        parts, size = [first], len(first)
        while data := await self._read(response):
            parts.append(data)
            size += len(data)
            if size > _ANSWER_LIMIT:
                raise EventTooLong
        try:
            return orjson.loads(b"".join(parts))
        except orjson.JSONDecodeError:
            return {"error": {"message": "The model's server sent an answer that is not valid JSON.", "code": 502}}

    async def _refused(self, response: aiohttp.ClientResponse) -> Failed | None:
        """The failure that a status other than 200 means."""
        status = response.status
        if status == 200:
            return None
        body = await response.content.read(100_000)
        if status in (401, 403):
            text = (
                f"The model's server refused the key that Groundwire holds for upstream '{self.name}' (HTTP {status}). "
                "Set `api_key` of this upstream in the config file, or OPENAI_API_KEY."
            )
            return failure(502, text, code="upstream_auth")
        if status < 400:
            return failure(502, f"The model's server answered with HTTP {status}.", code="upstream_bad_response")
        try:
            failed = as_error(orjson.loads(body), status)
        except orjson.JSONDecodeError:
            failed = None
        failed = failed or failure(status, f"The model's server answered with HTTP {status}.", retry=True)
        waits = {key: response.headers[key] for key in ("retry-after", "retry-after-ms") if key in response.headers}
        return self._masked_failure(Failed(status, failed.error, {**failed.headers, **waits}))

    def _unreadable(self, first: bytes) -> Failed:
        log.warning(
            "upstream %s: expected an answer, got %.200r", self.name, self._masked(first.decode("utf-8", "replace"))
        )
        return failure(502, "The model's server sent a web page instead of an answer.", code="upstream_bad_response")

    def _masked(self, text: str) -> str:
        """Servers like to repeat a key that they complain about."""
        return text.replace(self._secret, "***") if self._secret else text

    def _masked_failure(self, failed: Failed) -> Failed:
        error = {key: self._masked(value) if isinstance(value, str) else value for key, value in failed.error.items()}
        return replace(failed, error=error)

    def _without_key(self, events: list[Event]) -> list[Event]:
        """The last events of an answer: if it ends in an error, in one that does not show our key."""
        return [self._masked_failure(event) if isinstance(event, Failed) else event for event in events]

    def _failure(self, error: Exception, *, begun: bool) -> Failed:
        log.warning("upstream %s: %s: %s", self.name, type(error).__name__, error)
        if isinstance(error, TimeoutError):
            if isinstance(error, aiohttp.ConnectionTimeoutError):
                return failure(
                    504, f"Upstream '{self.name}' did not accept a connection in time.", code="upstream_timeout"
                )
            return failure(504, f"Upstream '{self.name}' did not answer in time.", code="upstream_timeout")
        if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
            return failure(502, f"The certificate of upstream '{self.name}' is not valid.", code="upstream_tls")
        if isinstance(error, aiohttp.ClientConnectorError):
            text = f"Could not connect to upstream '{self.name}'. Is it running, and is its `base_url` right?"
            return failure(502, text, code="upstream_unreachable", retry=True)
        if isinstance(error, EventTooLong):
            return failure(502, "The model's server sent more than an answer can hold.", code="upstream_bad_response")
        if begun or isinstance(error, aiohttp.ClientPayloadError):
            text = "The connection to the model's server broke before the answer was complete."
            return failure(502, text, code="upstream_truncated")
        return failure(
            502, f"Upstream '{self.name}' closed the connection without an answer.", code="upstream_unreachable"
        )


def _is_json(content_type: str, first: bytes) -> bool:
    """By the first byte where the server mislabels it: gateways answer JSON to a request for a stream, and back."""
    start = first.lstrip()[:1]
    return start in (b"{", b"[") or (content_type == "application/json" and start not in (b"d", b":", b"e"))


def _is_markup(first: bytes) -> bool:
    return first.lstrip()[:1] == b"<"


def _as_reply(failed: Failed | None) -> Reply:
    assert failed is not None
    body = orjson.dumps({"error": failed.error})

    async def chunks() -> AsyncIterator[bytes]:
        yield body

    return Reply(failed.status, {"content-type": "application/json", **failed.headers}, chunks())
