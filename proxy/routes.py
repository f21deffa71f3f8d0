"""The endpoints, as ASGI applications of their own: no framework stands between the events and `send`. Handed requests
that the edge let in; each picks its dialect, lets the engine answer or forwards bytes, and delivers.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from .delivery import EventStream, send_failure, send_json, while_connected
from .dialects import chat
from .edge import Edge, crashed, read_body, shutting_down, too_long
from .errors import RequestError, refuse
from .events import Event, Failed
from .forwarding import Passage, headers_of, upward
from .house import House, Lane
from .inject import Decision, decide
from .request import ChatRequest
from .upstreams.base import Forwarding

log = logging.getLogger("groundwire")

_CALLERS = secrets.token_bytes(32)  # nothing that belongs to a caller outlives this process
SEARCH_HEADER = "x-groundwire-search"


class ChatCompletions:
    """`POST /v1/chat/completions`"""

    def __init__(self, house: House, edge: Edge, passage: Passage) -> None:
        self._house = house
        self._edge = edge
        self._passage = passage

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = await read_body(receive, scope, self._house.config.server)
        await while_connected(receive, self._serve(scope, send, chat.decode(raw)))

    async def _serve(self, scope: Scope, send: Send, request: ChatRequest) -> None:
        house = self._house
        headers = headers_of(scope)
        request, lane = await self._route(request)
        if credential := scope.get("credential", ""):
            request.secrets, request.caller = (credential,), _caller(credential)
        mode = house.config.tools.mode
        wish = headers.get(SEARCH_HEADER, "").strip().lower()
        decision = decide(request, mode, wish, bool(house.toolbox.specs))
        passed = {SEARCH_HEADER: decision.header}
        scope["notes"].append(f"search {decision.header}")
        up = upward(headers)
        if not decision.offered and isinstance(lane.upstream, Forwarding):
            body = request.raw if mode == "off" else self._unsearched(request)
            await self._passage.forward(send, lane.upstream, "POST", "/chat/completions", up, body, passed)
        else:
            await self._answer(scope, send, request, lane, decision, up)

    async def _route(self, request: ChatRequest) -> tuple[ChatRequest, Lane]:
        """The upstream for the model. `:online` is a wish for search, unless the upstream lists that very name."""
        house, plain = self._house, request.model.removesuffix(chat.SUFFIX)
        if plain == request.model or not plain or house.config.tools.mode == "off":
            return request, house.lane_for(request.model)
        for lane in house.lanes:
            if lane.serves(request.model) and any(m["id"] == request.model for m in await _models(lane)):
                return request, lane
        search = replace(request.search, asked=request.search.asked or "model_suffix")
        body = {**request.body, "model": plain}
        return replace(request, model=plain, body=body, search=search, changed=True), house.lane_for(plain)

    def _unsearched(self, request: ChatRequest) -> bytes:
        """What goes up when our tools do not: the client's bytes, less what only we understand."""
        echoes = self._house.echoes(request)
        if not request.changed and not echoes.changed:
            return request.raw
        body = {**request.body, "messages": echoes.messages}
        if request.changed and "tools" not in body:  # what spoke of tools goes with the last of them
            body.pop("tool_choice", None)
            body.pop("parallel_tool_calls", None)
        return orjson.dumps(body)

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
            failed = too_long()
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
        except Exception:  # a fault of ours after the stream has begun: even that is said, never cut off silently
            if not stream.started:
                raise
            log.exception("a stream failed")
            failed = crashed()
            await stream.write(encoder.feed([failed]))
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
            gathered = [too_long()]
        failed = _failure_in(gathered)
        if failed:
            await send_failure(send, failed, headers)
        else:
            await send_json(send, 200, chat.fold(gathered, request), headers)
        return failed


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


async def _models(lane: Lane) -> list[dict[str, Any]]:
    """What the upstream lists; nothing if it cannot be asked, for one that is down must not hide the others."""
    try:
        return await lane.upstream.models()
    except RequestError:
        return []


def _failure_in(events: list[Event]) -> Failed | None:
    return next((event for event in events if isinstance(event, Failed)), None)


def _caller(credential: str) -> str:
    return hmac.digest(_CALLERS, credential.encode("latin-1"), "sha256").hex()
