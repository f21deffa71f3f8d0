"""The fast transport: any server that speaks Chat Completions, over connections of our own. Handed a request body,
hands on events per network read; or forwards bytes both ways. Every exception of the connections ends here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import orjson
from yarl import URL

from providers.web.egress import DIRECT, Egress

from ..config.secrets import header_secrets
from ..values.errors import RequestError, as_error, failure, too_large
from ..values.events import Event, Failed
from ..values.first_bytes import is_json, is_markup
from ..values.secrets import masked
from ..values.sse import EventTooLong
from ..watching.contents import Contents
from .answer_body import HTTP_ERRORS, MOST_ANSWER, AnswerBody
from .chunk_stream import ChunkStream
from .chunks import ChunkReader
from .connections import Connections, ConnectTimeout, NotConnected, NotTrusted, ProxyFailed
from .failures import (
    ADVICE,
    hung_up,
    key_refused,
    lacks_descriptors,
    masked_failure,
    not_trusted,
    overloaded,
    proxy_failed,
    timed_out,
    unreachable,
)
from .repairs import ALL_ON
from .server_json import parse
from .transport import Broken, Reply
from .wire import Answer, BrokenOff, NotHTTP

log = logging.getLogger("groundwire")

CHAT = "/chat/completions"
_PROPS = "/props"
_FORWARDED_DOWN = frozenset(
    {
        b"content-type",
        b"content-disposition",
        b"retry-after",
        b"retry-after-ms",
        b"x-should-retry",
        b"openai-processing-ms",
    }
)
_JSON = {"content-type": "application/json"}
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
        base = base_url.rstrip("/")
        self._path = URL(base).raw_path.rstrip("/")
        always = {"accept-encoding": "identity", "user-agent": "groundwire"}
        always |= {name.lower(): value for name, value in (headers or {}).items()}
        if api_key:
            always["authorization"] = f"Bearer {api_key}"
        self._connections = Connections(base, always, egress, connect_timeout)
        self._secrets = (api_key, *header_secrets(headers or {}), *egress.secrets)
        self._first_byte_timeout = first_byte_timeout
        self._idle_timeout = idle_timeout
        self._max_answer = max_answer
        self._models: tuple[float, list[dict[str, Any]] | Failed] = (0.0, [])
        self._off = off  # the repairs that are switched off

    async def stream(
        self, body: dict[str, Any], headers: Mapping[str, str], names: Collection[str] = ()
    ) -> AsyncGenerator[list[Event], None]:
        reader = ChunkReader(self._off, names)
        passed, patience = headers.get("authorization", ""), self._patience(body)
        try:
            with await self._send("POST", CHAT, headers, orjson.dumps(body), patience) as response:
                if failed := await self._refused(response, passed):
                    yield [failed]
                    return
                answer = self._body(response)
                data = await answer.first(patience)
                if is_json(response.media_type, data) or is_markup(data):
                    yield await self._whole(response, data, reader, passed)
                    return
                # Not in a generator of its own: every piece of an answer passes here, and each one would cost.
                stream = ChunkStream(reader)
                while data:
                    events = stream.feed(data)
                    if reader.over:
                        yield self._ours(events, passed)
                        await answer.finish()
                        return
                    if events:
                        yield events
                    data = answer.counted(await response.read(self._idle_timeout))
                yield stream.flush()
        except (*HTTP_ERRORS, EventTooLong) as error:
            # Once the model has said that it is done, a connection that then breaks or hangs has lost nothing.
            if not reader.over:
                yield reader.flush() if reader.complete else [self._failure(error, begun=reader.begun)]

    async def _whole(self, response: Answer, first: bytes, reader: ChunkReader, passed: str) -> list[Event]:
        """An accepted answer that is no stream, whatever it is labelled: one JSON body, or a page that is none."""
        if not is_json(response.media_type, first):
            return [self.unreadable(first, passed)]
        answer = parse(await self._body(response).whole(first))
        if answer is None:
            return [_bad_response("The model's server sent an answer that is not valid JSON.")]
        return self._ours(reader.feed_answer(answer), passed)

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
        with response:
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
            async with asyncio.timeout(_MODELS_LIMIT):
                with await self._send("GET", "/models", {}, b"") as response:
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
            async with asyncio.timeout(_MODELS_LIMIT):
                with await self._send("GET", _PROPS, {}, b"") as response:
                    about = parse(await self._body(response).whole()) if response.status == 200 else None
                    return about if isinstance(about, dict) else {}
        return {}

    async def aclose(self) -> None:
        self._connections.close()

    async def _send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, patience: float | None = None
    ) -> Answer:
        base = self._path.removesuffix("/v1") if path == _PROPS else self._path
        sent = {"accept": "*/*", **_JSON, **headers} if body else {"accept": "*/*", **headers}
        return await self._connections.ask(method, base + path, sent, body, patience)

    def _body(self, response: Answer) -> AnswerBody:
        return AnswerBody(response, self._max_answer, self._idle_timeout)

    async def _chunks(self, response: Answer) -> AsyncIterator[bytes]:
        try:
            while True:
                data = await response.read(self._idle_timeout)
                if not data:
                    return
                yield data
        except HTTP_ERRORS as error:
            raise Broken(self._failure(error, begun=True)) from error

    async def _refused(self, response: Answer, passed: str = "") -> Failed | None:
        """The failure that a status other than 200 means."""
        if response.status == 200:
            return None
        return self._refusal(response, await self._body(response).error(), passed)

    def _refusal(self, response: Answer, body: bytes, passed: str) -> Failed:
        """What an error says. A client's own key that is refused (`passed`) stays its own affair."""
        status = response.status
        if status in (401, 403) and not passed:
            return self._key_refused(status)
        if status < 400:
            return _bad_response(f"The model's server answered with HTTP {status}.")
        failed = as_error(parse(body), status) or failure(
            status, f"The model's server answered with HTTP {status}.", retry=True
        )
        advice = {key: said for key in ADVICE if (said := response.header(key.encode()))}
        failed = replace(failed, status=status, headers={**failed.headers, **advice})
        return masked_failure(failed, self._known(passed))

    async def _error_reply(self, response: Answer, passed: str) -> Reply:
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
        if isinstance(error, ProxyFailed):
            return proxy_failed(self.name, error.kind, error)
        if isinstance(error, ConnectTimeout):
            text = f"Upstream '{self.name}' did not accept a connection in time."
            return failure(504, text, code="upstream_timeout")
        if isinstance(error, TimeoutError):
            return timed_out(self.name)
        if isinstance(error, NotTrusted):
            return not_trusted(self.name)
        if isinstance(error, NotConnected):
            return overloaded() if lacks_descriptors([error]) else unreachable(self.name)
        if isinstance(error, EventTooLong):
            return too_large()
        if isinstance(error, NotHTTP):
            return _bad_response("The model's server sent an answer that is not valid HTTP, or too many headers.")
        if begun or isinstance(error, BrokenOff):
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


def _headers_down(response: Answer) -> dict[str, str]:
    told = (key for key in response.headers if key in _FORWARDED_DOWN or key.startswith(b"x-ratelimit-"))
    return {key.decode("latin-1"): response.header(key) for key in told}


def _own_reply(failed: Failed) -> Reply:
    """A failure in our own words, as if a server had sent it."""
    said = orjson.dumps({"error": failed.error})
    return Reply(failed.status, {"content-type": "application/json", **failed.headers}, _once(said), failed)


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body
