"""The fast transport: any server that speaks Chat Completions, over aiohttp. Handed a request body, hands on events per
network read; or forwards bytes both ways. Every exception of the HTTP client ends here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import aiohttp
import orjson
from yarl import URL

from providers.web.egress import DIRECT, Egress

from ..config.secrets import header_secrets
from ..values.errors import RequestError, as_error, failure, too_large
from ..values.events import Event, Failed
from ..values.first_bytes import is_json, is_markup
from ..values.secrets import masked
from ..values.sse import EventTooLong, SSEDecoder
from ..watching.contents import Contents
from .answer_body import HTTP_ERRORS, MOST_ANSWER, AnswerBody
from .chunks import ChunkReader
from .failures import (
    ADVICE,
    hung_up,
    key_refused,
    lacks_descriptors,
    masked_failure,
    not_trusted,
    overloaded,
    timed_out,
    unreachable,
)
from .repairs import ALL_ON
from .server_json import parse
from .session import open_session, proxy_failure
from .transport import Broken, Reply

log = logging.getLogger("groundwire")

CHAT = "/chat/completions"
_PROPS = "/props"
_FORWARDED_DOWN = frozenset(
    {"content-type", "content-disposition", "retry-after", "retry-after-ms", "x-should-retry", "openai-processing-ms"}
)
_MODELS_AGE = 60.0
_MODELS_LIMIT = 10.0


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
        max_answer: int = MOST_ANSWER,
        off: frozenset[str] = ALL_ON,
        egress: Egress = DIRECT,
    ) -> None:
        self.name = name
        self._egress = egress
        self._base = base_url.rstrip("/")
        self._chat_url = URL(self._base + CHAT)  # parsed once: it is asked for all day
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "groundwire", **(headers or {})}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._secrets = (api_key, *header_secrets(headers or {}), *egress.secrets)
        self._connect_timeout = connect_timeout
        self._first_byte_timeout = first_byte_timeout
        self._idle_timeout = idle_timeout
        self._max_answer = max_answer
        self._session: aiohttp.ClientSession | None = None
        self._models: tuple[float, list[dict[str, Any]] | Failed] = (0.0, [])
        self._off = off  # the repairs that are switched off

    async def stream(
        self, body: dict[str, Any], headers: Mapping[str, str], names: Collection[str] = ()
    ) -> AsyncGenerator[list[Event], None]:
        reader = ChunkReader(self._off, names)
        passed = headers.get("authorization", "")
        try:
            async with await self._send("POST", CHAT, headers, orjson.dumps(body), self._patience(body)) as response:
                if failed := await self._refused(response, passed):
                    yield [failed]
                    return
                async with aclosing(self._events(response, reader, self._patience(body), passed)) as batches:
                    async for events in batches:
                        yield events
        except (*HTTP_ERRORS, EventTooLong) as error:
            # Once the model has said that it is done, a connection that then breaks or hangs has lost nothing.
            if not reader.over:
                yield reader.flush() if reader.complete else [self._failure(error, begun=reader.begun)]

    async def _events(
        self, response: aiohttp.ClientResponse, reader: ChunkReader, patience: float | None, passed: str
    ) -> AsyncGenerator[list[Event], None]:
        """An accepted answer, whatever it is labelled: a stream, one JSON body, or a page that is no answer at all."""
        body = self._body(response)
        data = await body.first(patience)
        if is_json(response.content_type, data):
            answer = parse(await body.whole(data))
            if answer is None:
                yield [_bad_response("The model's server sent an answer that is not valid JSON.")]
            else:
                yield self._ours(reader.feed_answer(answer), passed)
            return
        if is_markup(data):
            yield [self.unreadable(data, passed)]
            return
        decoder = SSEDecoder()
        while data:
            events = reader.feed(decoder.feed(data))
            if reader.over:
                yield self._ours(events, passed)
                await body.finish()
                return
            if events:
                yield events
            data = await body.read()
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
        except HTTP_ERRORS as error:
            yield _own_reply(self._failure(error, begun=False))
            return
        async with response:
            if response.status < 300:
                yield Reply(response.status, _headers_down(response), self._chunks(response))
            else:
                yield await self._error_reply(response, headers.get("authorization", ""))

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
                answer = parse(await self._body(response).whole())
        except (*HTTP_ERRORS, EventTooLong) as error:
            return self._failure(error, begun=False)
        data = answer.get("data") if isinstance(answer, dict) else None
        listed = [m for m in data or () if isinstance(m, dict) and isinstance(m.get("id"), str)]
        if listed and listed[0].get("owned_by") == "llamacpp":
            about = _about_llama_cpp(await self._props())
            listed = [{**model, **about} for model in listed]
        return listed

    async def _props(self) -> dict[str, Any]:
        """What llama.cpp says of itself."""
        with suppress(*HTTP_ERRORS, EventTooLong):
            async with asyncio.timeout(_MODELS_LIMIT), await self._send("GET", _PROPS, {}, b"") as response:
                about = parse(await self._body(response).whole()) if response.status == 200 else None
                return about if isinstance(about, dict) else {}
        return {}

    async def aclose(self) -> None:
        if self._session:
            await self._session.close()

    async def _send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, patience: float | None = None
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            self._session = open_session(self._egress, self._connect_timeout)
        kind = {"Content-Type": "application/json"} if body else {}
        # Encoded as it is: to decode and encode it again would undo the checks that a path has passed.
        base = self._base.removesuffix("/v1") if path == _PROPS else self._base
        target = self._chat_url if path == CHAT else URL(base + path, encoded=True)
        async with asyncio.timeout(patience):
            return await self._session.request(
                method, target, data=body or None, headers={**kind, **headers, **self._headers}, allow_redirects=False
            )

    def _body(self, response: aiohttp.ClientResponse) -> AnswerBody:
        return AnswerBody(response, self._max_answer, self._idle_timeout)

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        try:
            while True:
                async with asyncio.timeout(self._idle_timeout):
                    data = await response.content.readany()
                if not data:
                    return
                yield data
        except HTTP_ERRORS as error:
            raise Broken(self._failure(error, begun=True)) from error

    async def _refused(self, response: aiohttp.ClientResponse, passed: str = "") -> Failed | None:
        """The failure that a status other than 200 means."""
        if response.status == 200:
            return None
        return self._refusal(response, await self._body(response).error(), passed)

    def _refusal(self, response: aiohttp.ClientResponse, body: bytes, passed: str) -> Failed:
        """What an error says. A client's own key that is refused (`passed`) stays its own affair."""
        status = response.status
        if status in (401, 403) and not passed:
            return self._key_refused(status)
        if status < 400:
            return _bad_response(f"The model's server answered with HTTP {status}.")
        failed = as_error(parse(body), status) or failure(
            status, f"The model's server answered with HTTP {status}.", retry=True
        )
        advice = {key: response.headers[key] for key in ADVICE if key in response.headers}
        failed = replace(failed, status=status, headers={**failed.headers, **advice})
        return masked_failure(failed, self._known(passed))

    async def _error_reply(self, response: aiohttp.ClientResponse, passed: str) -> Reply:
        """An error's own bytes, without our key in them; ours where it is our own affair or has nothing to say."""
        body = await self._body(response).error()
        failed = self._refusal(response, body, passed)
        if not body or failed.status != response.status:
            return _own_reply(failed)
        headers = {**_headers_down(response), **failed.headers}
        return Reply(response.status, headers, _once(self.without_key(body, passed)), failed)

    def unreadable(self, first: bytes, passed: str) -> Failed:
        said = masked(first.decode("utf-8", "replace"), self._known(passed))
        log.warning("upstream %s: expected an answer, got %.200r", self.name, Contents(said))
        return _bad_response("The model's server sent a web page instead of an answer.")

    def _key_refused(self, status: int) -> Failed:
        return key_refused(self.name, status, "OPENAI_API_KEY")

    def _ours(self, events: list[Event], passed: str) -> list[Event]:
        """The last events of an answer, an error among them dressed."""
        return [self.dressed(event, passed) if isinstance(event, Failed) else event for event in events]

    def dressed(self, failed: Failed, passed: str) -> Failed:
        ours = failed.status in (401, 403) and not passed
        return self._key_refused(failed.status) if ours else masked_failure(failed, self._known(passed))

    def without_key(self, data: bytes, passed: str) -> bytes:
        return masked(data.decode("latin-1"), self._known(passed)).encode("latin-1")

    def _known(self, passed: str) -> tuple[str, ...]:
        """The secrets that a server was sent, and may repeat: ours, and the key that the client brought."""
        return (*self._secrets, passed.removeprefix("Bearer "))

    def _failure(self, error: Exception, *, begun: bool) -> Failed:
        # The server's own bytes may be in it, and a proxy's, which may repeat what it was sent.
        said = error if isinstance(error, OSError) else Contents(masked(str(error), self._secrets))
        log.warning("upstream %s: %s: %s", self.name, type(error).__name__, said)
        if stopped := proxy_failure(self.name, error):
            return stopped
        if isinstance(error, TimeoutError):
            if isinstance(error, aiohttp.ConnectionTimeoutError):
                return failure(
                    504, f"Upstream '{self.name}' did not accept a connection in time.", code="upstream_timeout"
                )
            return timed_out(self.name)
        if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
            return not_trusted(self.name)
        if isinstance(error, aiohttp.ClientConnectorError):
            return overloaded() if lacks_descriptors([error]) else unreachable(self.name)
        if isinstance(error, EventTooLong):
            return too_large()
        if isinstance(error, aiohttp.ClientResponseError):
            return _bad_response("The model's server sent an answer that is not valid HTTP, or too many headers.")
        if begun or isinstance(error, aiohttp.ClientPayloadError):
            text = "The connection to the model's server broke before the answer was complete."
            return failure(502, text, code="upstream_truncated", retry=True)
        return hung_up(self.name)


def _about_llama_cpp(props: Mapping[str, Any]) -> dict[str, Any]:
    """It takes tools for every model and drops them where the chat template has no place for them; and a request gets
    the context of a slot, which may be a part of what the model is loaded with."""
    able, slot = props.get("chat_template_caps"), props.get("default_generation_settings")
    context = slot.get("n_ctx") if isinstance(slot, dict) else None
    takes_tools = not (isinstance(able, dict) and able.get("supports_tools") is False)
    return {"supports_tools": takes_tools, **({"slot_context": context} if isinstance(context, int) else {})}


def _bad_response(text: str) -> Failed:
    return failure(502, text, code="upstream_bad_response")


def _headers_down(response: aiohttp.ClientResponse) -> dict[str, str]:
    named = ((key.lower(), value) for key, value in response.headers.items())
    return {key: value for key, value in named if key in _FORWARDED_DOWN or key.startswith("x-ratelimit-")}


def _own_reply(failed: Failed) -> Reply:
    """A failure in our own words, as if a server had sent it."""
    said = orjson.dumps({"error": failed.error})
    return Reply(failed.status, {"content-type": "application/json", **failed.headers}, _once(said), failed)


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body
