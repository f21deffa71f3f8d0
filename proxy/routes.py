"""The endpoints, as ASGI applications of their own: no framework stands between the events and `send`. Handed requests
that the edge let in; each picks its dialect, lets the engine answer or forwards bytes, and delivers.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from .delivery import EventStream, send_failure, send_json, while_connected
from .dialects import chat
from .edge import Edge, read_body, shutting_down
from .errors import RequestError, failure, refuse
from .events import Event, Failed
from .house import House, Lane
from .inject import Decision, decide
from .request import ChatRequest
from .sse import encode
from .upstreams.base import Broken, Forwarding

_CALLERS = secrets.token_bytes(32)  # nothing that belongs to a caller outlives this process
SEARCH_HEADER = "x-groundwire-search"
_FORWARDED_UP = frozenset({"accept", "openai-beta", "traceparent", "tracestate", "x-title", "http-referer"})
_FORWARDED_PATHS = re.compile(r"(?:completions|embeddings|rerank|moderations|images/.+|audio/.+)")
_ENDS = (b"[DONE]", b'"finish_reason":"', b'"finish_reason": "', b'data: {"error"', b'data:{"error"')  # of a stream
_FORM_MODEL = re.compile(rb'name="model"\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]{1,200})\r\n')


class ChatCompletions:
    """`POST /v1/chat/completions`"""

    def __init__(self, house: House, edge: Edge) -> None:
        self._house = house
        self._edge = edge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        house = self._house
        headers = _headers(scope)
        raw = await read_body(receive, scope, house.config.server)
        request, lane = await self._route(chat.decode(raw))
        if credential := scope.get("credential", ""):
            request.secrets, request.caller = (credential,), _caller(credential)
        mode = house.config.tools.mode
        wish = headers.get(SEARCH_HEADER, "").strip().lower()
        decision = decide(request, mode, wish, bool(house.toolbox.specs))
        passed = {SEARCH_HEADER: decision.header}
        scope["notes"].append(f"search {decision.header}")
        up = _upward(headers)
        if not decision.offered and isinstance(lane.upstream, Forwarding):
            body = request.raw if mode == "off" else self._unsearched(request)
            forwarded = forward(self._edge, send, lane.upstream, "POST", "/chat/completions", up, body, passed)
            await while_connected(receive, forwarded)
        else:
            await while_connected(receive, self._answer(scope, send, request, lane, decision, up))

    async def _route(self, request: ChatRequest) -> tuple[ChatRequest, Lane]:
        """The upstream for the model. `:online` is a wish for search, unless the upstream lists that very name."""
        model = request.model.removesuffix(chat.SUFFIX)
        lane = self._house.lane_for(model)
        if model == request.model or not model or self._house.config.tools.mode == "off":
            return request, lane
        if any(listed["id"] == request.model for listed in await _models(lane)):
            return request, lane
        search = replace(request.search, asked=request.search.asked or "model_suffix")
        body = {**request.body, "model": model}
        return replace(request, model=model, body=body, search=search, changed=True), lane

    def _unsearched(self, request: ChatRequest) -> bytes:
        """What goes up when our tools do not: the client's bytes, less what only we understand."""
        echoes = self._house.echoes(request)
        if not request.changed and not echoes.changed:
            return request.raw
        return orjson.dumps({**request.body, "messages": echoes.messages})

    async def _answer(
        self, scope: Scope, send: Send, request: ChatRequest, lane: Lane, decision: Decision, up: Mapping[str, str]
    ) -> None:
        prepared = self._house.offer(request, decision)
        headers = {SEARCH_HEADER: decision.header}
        deliver = self._stream if request.stream else self._whole
        async with aclosing(self._house.engine.answer(request, prepared, lane.upstream, up)) as events:
            failed = await deliver(send, request, events, headers)
        if failed:
            scope["notes"].append(f"failed {failed.error['code']}")

    async def _stream(
        self, send: Send, request: ChatRequest, events: AsyncIterator[list[Event]], headers: Mapping[str, str]
    ) -> Failed | None:
        """Sends events as they come, and says what went wrong if anything did."""
        encoder = chat.Encoder(request, progress=self._house.config.tools.progress == "reasoning")
        stream = EventStream(send, headers)
        failed: Failed | None = None
        try:
            async with asyncio.timeout(self._house.config.server.request_timeout):
                async for batch in events:
                    failed = _failure_in(batch)
                    if failed and not stream.started:
                        stream.stop()
                        await send_failure(send, failed, headers)
                        return failed
                    if data := encoder.feed(batch):
                        await stream.write(data)
        except TimeoutError:
            failed = _too_long()
            if not stream.started:
                stream.stop()
                await send_failure(send, failed, headers)
                return failed
            await stream.write(encoder.feed([failed]))
        except asyncio.CancelledError:
            if self._edge.stopping and stream.started:
                await stream.write(encoder.feed([shutting_down()]))
                await stream.close()
            raise
        finally:
            stream.stop()
        await stream.close()
        return failed

    async def _whole(
        self, send: Send, request: ChatRequest, events: AsyncIterator[list[Event]], headers: Mapping[str, str]
    ) -> Failed | None:
        gathered: list[Event] = []
        try:
            async with asyncio.timeout(self._house.config.server.request_timeout):
                async for batch in events:
                    gathered += batch
        except TimeoutError:
            gathered = [_too_long()]
        failed = _failure_in(gathered)
        if failed:
            await send_failure(send, failed, headers)
        else:
            await send_json(send, 200, chat.fold(gathered, request), headers)
        return failed


class Forward:
    """The other paths of an OpenAI server, for the upstream that serves the request's model."""

    def __init__(self, house: House, edge: Edge) -> None:
        self._house = house
        self._edge = edge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix("/v1/")
        if {".", "..", ""} & set(path.split("/")) or b"%2f" in scope["raw_path"].lower():
            raise refuse(404, "There is nothing at this path.", code="not_found")
        method = scope["method"]
        listed = [lane for lane in self._house.lanes if _lists(lane, path)]
        if not listed and not (method == "POST" and _FORWARDED_PATHS.fullmatch(path)):
            text = f"There is no {method} /v1/{path} here. List it in `upstreams[].forward` to pass it on."
            raise refuse(404, text, code="not_found")
        body = await read_body(receive, scope, self._house.config.server)
        model = _model_of(body)
        lane = self._house.lane_for(model) if model or not listed else listed[0]
        if not isinstance(lane.upstream, Forwarding):
            raise refuse(404, f"Upstream '{lane.upstream.name}' serves chat completions only.", code="not_found")
        headers = _headers(scope)
        up = _upward(headers)
        if "content-type" in headers:
            up["content-type"] = headers["content-type"]
        query = scope["query_string"].decode("latin-1")
        target = f"/{path}?{query}" if query else f"/{path}"
        await while_connected(receive, forward(self._edge, send, lane.upstream, method, target, up, body, {}))


class Models:
    """`GET /v1/models` and `GET /v1/models/{id}`"""

    def __init__(self, house: House) -> None:
        self._house = house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        models = await self._all()
        wanted = scope["path_params"].get("id")
        if wanted is None:
            await send_json(send, 200, orjson.dumps({"object": "list", "data": models}))
            return
        for model in models:
            if model["id"] == wanted:
                await send_json(send, 200, orjson.dumps(model))
                return
        text = f"The model '{wanted}' does not exist."
        raise refuse(404, text, param="model", code="model_not_found")

    async def _all(self) -> list[dict[str, Any]]:
        """Every model that a request could name: each upstream's own list, as far as its patterns reach."""
        listed = await asyncio.gather(*(_models(lane) for lane in self._house.lanes))
        found: dict[str, dict[str, Any]] = {}
        now = int(time.time())
        for lane, models in zip(self._house.lanes, listed, strict=True):
            for model in models:
                if lane.serves(model["id"]):
                    default = {"object": "model", "created": now, "owned_by": lane.upstream.name}
                    found.setdefault(model["id"], {**default, **model})
        return list(found.values())


class Health:
    """`GET /healthz`: alive. `GET /readyz`: ready to take work."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._edge.draining and scope["path"] == "/readyz":
            await send_json(send, 503, b'{"status":"draining"}')
        else:
            await send_json(send, 200, b'{"status":"ok"}')


async def forward(
    edge: Edge,
    send: Send,
    upstream: Forwarding,
    method: str,
    path: str,
    up: Mapping[str, str],
    body: bytes,
    down: Mapping[str, str],
) -> None:
    """Bytes both ways. A stream that breaks off ends in an error event, any other body in a broken connection."""
    async with upstream.forward(method, path, up, body) as reply:
        headers = {**reply.headers, **down}
        streamed = headers.get("content-type", "").startswith("text/event-stream")
        if streamed:
            headers |= {"cache-control": "no-cache", "x-accel-buffering": "no"}
        raw = [(key.encode("latin-1"), value.encode("latin-1", "replace")) for key, value in headers.items()]
        await send({"type": "http.response.start", "status": reply.status, "headers": raw})
        tail, complete = b"", not streamed
        try:
            async for data in reply.chunks:
                if not complete:
                    tail = tail[-40:] + data
                    complete = any(end in tail for end in _ENDS)
                await send({"type": "http.response.body", "body": data, "more_body": True})
        except Broken:
            if not streamed:
                raise
            complete = False
        except asyncio.CancelledError:
            if streamed and edge.stopping:
                await _end(send, shutting_down())
            raise
        text = "The model's server ended the answer before it was complete."
        await _end(send, None if complete else failure(502, text, code="upstream_truncated"))


async def _end(send: Send, failed: Failed | None) -> None:
    """The end of a forwarded body; of a stream, with an error event if it is not whole."""
    last = b"\n\n" + encode(chat.error_body(failed)) if failed else b""
    await send({"type": "http.response.body", "body": last})


async def _models(lane: Lane) -> list[dict[str, Any]]:
    """What the upstream lists; nothing if it cannot be asked, for one that is down must not hide the others."""
    try:
        return await lane.upstream.models()
    except RequestError:
        return []


def _failure_in(events: list[Event]) -> Failed | None:
    return next((event for event in events if isinstance(event, Failed)), None)


def _too_long() -> Failed:
    return failure(504, "The answer took longer than this server allows.", code="request_timeout")


def _headers(scope: Scope) -> dict[str, str]:
    return {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}


def _caller(credential: str) -> str:
    return hmac.digest(_CALLERS, credential.encode("latin-1"), "sha256").hex()


def _upward(headers: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in headers.items() if key in _FORWARDED_UP}


def _lists(lane: Lane, path: str) -> bool:
    return any(fnmatchcase("/v1/" + path, pattern) for pattern in lane.config.forward)


def _model_of(body: bytes) -> str:
    """The model that a forwarded body names, in JSON or in a form."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = _FORM_MODEL.search(body[:1_000_000])
        return found[1].decode("utf-8", "replace").strip() if found else ""
    model = parsed.get("model") if isinstance(parsed, dict) else None
    return model if isinstance(model, str) else ""
