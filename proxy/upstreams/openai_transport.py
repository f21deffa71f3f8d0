"""The fast transport: any server that speaks Chat Completions, over aiohttp. Handed a request body, hands on events per
network read; or forwards bytes both ways. Every exception of the HTTP client ends here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import aiohttp
import orjson
from yarl import URL

from ..values.errors import RequestError, as_error, failure
from ..values.events import Event, Failed
from ..values.sse import EventTooLong, SSEDecoder
from ..watching.contents import Contents
from .chunks import ChunkReader
from .failures import hung_up, key_refused, masked, masked_failure, timed_out, unreachable
from .repairs import ALL_ON
from .transport import Broken, Reply

log = logging.getLogger("groundwire")

CHAT = "/chat/completions"
_PROPS = "/props"
_FORWARDED_DOWN = frozenset(
    {"content-type", "content-disposition", "retry-after", "retry-after-ms", "x-should-retry", "openai-processing-ms"}
)
_HTTP_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)
_ANSWER_LIMIT = 64 * 1024 * 1024
_MODELS_AGE = 60.0
_MODELS_LIMIT = 10.0
_ERROR_LIMIT = 100_000
_LAST_BYTES = 0.05  # how long the end of a body is awaited, so that its connection can be used again


class OpenAITransport:
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
        off: frozenset[str] = ALL_ON,
    ) -> None:
        self.name = name
        self._base = base_url.rstrip("/")
        self._chat_url = URL(self._base + CHAT)  # parsed once: it is asked for all day
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "groundwire", **(headers or {})}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._secrets = (api_key,)
        self._connect_timeout = connect_timeout
        self._first_byte_timeout = first_byte_timeout
        self._idle_timeout = idle_timeout
        self._session: aiohttp.ClientSession | None = None
        self._models: tuple[float, list[dict[str, Any]] | Failed] = (0.0, [])
        self._off = off  # the repairs that are switched off

    async def stream(self, body: dict[str, Any], headers: Mapping[str, str]) -> AsyncGenerator[list[Event], None]:
        reader = ChunkReader(self._off)
        passed = "authorization" in headers
        try:
            async with await self._send("POST", CHAT, headers, orjson.dumps(body), self._patience(body)) as response:
                if failed := await self._refused(response, passed):
                    yield [failed]
                    return
                async with aclosing(self._events(response, reader, self._patience(body), passed)) as batches:
                    async for events in batches:
                        yield events
        except (*_HTTP_ERRORS, EventTooLong) as error:
            # Once the model has said that it is done, a connection that then breaks or hangs has lost nothing.
            if not reader.over:
                yield reader.flush() if reader.complete else [self._failure(error, begun=reader.begun)]

    async def _events(
        self, response: aiohttp.ClientResponse, reader: ChunkReader, patience: float | None, passed: bool
    ) -> AsyncGenerator[list[Event], None]:
        """An accepted answer, whatever it is labelled: a stream, one JSON body, or a page that is no answer at all."""
        data = await self._read(response, patience)
        while data.isspace() and (more := await self._read(response, self._idle_timeout)):
            data += more  # only what comes after the blanks says what this is
        if _is_json(response.content_type, data):
            yield self._ours(reader.feed_answer(await self._whole(response, data)), passed)
            return
        if _is_markup(data):
            yield [self._unreadable(data)]
            return
        decoder = SSEDecoder()
        while data:
            events = reader.feed(decoder.feed(data))
            if reader.over:
                yield self._ours(events, passed)
                await self._finish(response)
                return
            if events:
                yield events
            data = await self._read(response, self._idle_timeout)
        yield reader.flush(decoder.flush())

    def _patience(self, body: Mapping[str, Any]) -> float | None:
        """How long the first byte may take. An answer in one piece has no first byte before its last."""
        return self._first_byte_timeout if body.get("stream") else None

    @asynccontextmanager
    async def forward(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, *, streamed: bool = False
    ) -> AsyncIterator[Reply]:
        try:
            patience = self._first_byte_timeout if streamed else None
            response = await self._send(method, path, headers, body, patience)
        except _HTTP_ERRORS as error:
            yield _as_reply(self._failure(error, begun=False))
            return
        async with response:
            our_key = response.status in (401, 403) and "authorization" not in headers
            if our_key or 300 <= response.status < 400:
                try:
                    refused = await self._refused(response)
                except _HTTP_ERRORS as error:
                    refused = self._failure(error, begun=False)
                yield _as_reply(refused)
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
        if not asked or time.monotonic() - asked > _MODELS_AGE:
            known = await self._list_models()
            self._models = (time.monotonic(), known)
        if isinstance(known, Failed):
            raise RequestError(known)
        return known

    async def _list_models(self) -> list[dict[str, Any]] | Failed:
        try:
            async with asyncio.timeout(_MODELS_LIMIT), await self._send("GET", "/models", {}, b"") as response:
                if failed := await self._refused(response):
                    return failed
                answer = await self._whole(response, b"")
        except (*_HTTP_ERRORS, EventTooLong) as error:
            return self._failure(error, begun=False)
        data = answer.get("data") if isinstance(answer, dict) else None
        listed = [m for m in data or () if isinstance(m, dict) and isinstance(m.get("id"), str)]
        if listed and listed[0].get("owned_by") == "llamacpp":
            able = await self._template_takes_tools()
            listed = [{**model, "supports_tools": able} for model in listed]
        return listed

    async def _template_takes_tools(self) -> bool:
        """llama.cpp takes tools for every model and drops them where the chat template has no place for them."""
        with suppress(*_HTTP_ERRORS, EventTooLong):
            async with asyncio.timeout(_MODELS_LIMIT), await self._send("GET", _PROPS, {}, b"") as response:
                about = await self._whole(response, b"") if response.status == 200 else None
                able = about.get("chat_template_caps") if isinstance(about, dict) else None
                return not (isinstance(able, dict) and able.get("supports_tools") is False)
        return True

    async def aclose(self) -> None:
        if self._session:
            await self._session.close()

    async def _send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, patience: float | None = None
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout)
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
            jar = aiohttp.DummyCookieJar()
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=jar)
        kind = {"Content-Type": "application/json"} if body else {}
        # Encoded as it is: to decode and encode it again would undo the checks that a path has passed.
        base = self._base.removesuffix("/v1") if path == _PROPS else self._base
        target = self._chat_url if path == CHAT else URL(base + path, encoded=True)
        async with asyncio.timeout(patience):
            return await self._session.request(
                method, target, data=body or None, headers={**kind, **headers, **self._headers}, allow_redirects=False
            )

    async def _read(self, response: aiohttp.ClientResponse, limit: float | None) -> bytes:
        async with asyncio.timeout(limit):
            return await response.content.readany()

    async def _finish(self, response: aiohttp.ClientResponse) -> None:
        """Reads the last bytes of a body that has said everything: a connection left in its middle is lost."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_BYTES):
                while await response.content.readany():
                    pass

    async def _error_body(self, response: aiohttp.ClientResponse) -> bytes:
        parts, size = [], 0
        while size < _ERROR_LIMIT and (data := await self._read(response, self._idle_timeout)):
            parts.append(data)
            size += len(data)
        return b"".join(parts)

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        try:
            while data := await self._read(response, self._idle_timeout):
                yield data
        except _HTTP_ERRORS as error:
            raise Broken from error

    async def _error_chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """An error's body, which is short, without our key in it."""
        body = b"".join([data async for data in self._chunks(response)])
        yield masked(body.decode("latin-1"), self._secrets).encode("latin-1")

    async def _whole(self, response: aiohttp.ClientResponse, first: bytes) -> Any:
        parts, size = [first], len(first)
        while data := await self._read(response, self._idle_timeout):
            parts.append(data)
            size += len(data)
            if size > _ANSWER_LIMIT:
                raise EventTooLong
        try:
            return orjson.loads(b"".join(parts))
        except orjson.JSONDecodeError:
            return {"error": {"message": "The model's server sent an answer that is not valid JSON.", "code": 502}}

    async def _refused(self, response: aiohttp.ClientResponse, passed: bool = False) -> Failed | None:
        """The failure that a status other than 200 means. A client's own key that is refused stays its own affair."""
        status = response.status
        if status == 200:
            return None
        body = await self._error_body(response)
        if status in (401, 403) and not passed:
            return self._key_refused(status)
        if status < 400:
            return failure(502, f"The model's server answered with HTTP {status}.", code="upstream_bad_response")
        try:
            failed = as_error(orjson.loads(body), status)
        except orjson.JSONDecodeError:
            failed = None
        failed = failed or failure(status, f"The model's server answered with HTTP {status}.", retry=True)
        waits = {key: response.headers[key] for key in ("retry-after", "retry-after-ms") if key in response.headers}
        return masked_failure(replace(failed, status=status, headers={**failed.headers, **waits}), self._secrets)

    def _unreadable(self, first: bytes) -> Failed:
        said = masked(first.decode("utf-8", "replace"), self._secrets)
        log.warning("upstream %s: expected an answer, got %.200r", self.name, Contents(said))
        return failure(502, "The model's server sent a web page instead of an answer.", code="upstream_bad_response")

    def _key_refused(self, status: int) -> Failed:
        return key_refused(self.name, status, "OPENAI_API_KEY")

    def _ours(self, events: list[Event], passed: bool) -> list[Event]:
        """The last events of an answer. An error among them is dressed as if it had come with its own status."""

        def dressed(event: Event) -> Event:
            if not isinstance(event, Failed):
                return event
            ours = event.status in (401, 403) and not passed
            return self._key_refused(event.status) if ours else masked_failure(event, self._secrets)

        return [dressed(event) for event in events]

    def _failure(self, error: Exception, *, begun: bool) -> Failed:
        said = error if isinstance(error, OSError) else Contents(error)  # else the server's own bytes may be in it
        log.warning("upstream %s: %s: %s", self.name, type(error).__name__, said)
        if isinstance(error, TimeoutError):
            if isinstance(error, aiohttp.ConnectionTimeoutError):
                return failure(
                    504, f"Upstream '{self.name}' did not accept a connection in time.", code="upstream_timeout"
                )
            return timed_out(self.name)
        if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
            return failure(502, f"The certificate of upstream '{self.name}' is not valid.", code="upstream_tls")
        if isinstance(error, aiohttp.ClientConnectorError):
            return unreachable(self.name)
        if isinstance(error, EventTooLong):
            return failure(502, "The model's server sent more than an answer can hold.", code="upstream_bad_response")
        if begun or isinstance(error, aiohttp.ClientPayloadError):
            text = "The connection to the model's server broke before the answer was complete."
            return failure(502, text, code="upstream_truncated")
        return hung_up(self.name)


def _is_json(content_type: str, first: bytes) -> bool:
    """By the first byte where the server mislabels it: gateways answer JSON to a request for a stream, and back."""
    start = first.lstrip()[:1]
    return start in (b"{", b"[") or (content_type == "application/json" and start not in (b"d", b":", b"e", b"i", b"r"))


def _is_markup(first: bytes) -> bool:
    return first.lstrip()[:1] == b"<"


def _as_reply(failed: Failed | None) -> Reply:
    assert failed is not None
    body = orjson.dumps({"error": failed.error})

    async def chunks() -> AsyncIterator[bytes]:
        yield body

    return Reply(failed.status, {"content-type": "application/json", **failed.headers}, chunks())
