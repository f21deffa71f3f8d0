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
from .events import Event, Failed, SearchedFirst
from .forwarding import Passage, headers_of, upward
from .house import House
from .inject import Decision, decide, has_custom_tools
from .request import ChatRequest
from .sse import PING
from .upstreams.base import Forwarding
from .upstreams.lane import Lane
from .upstreams.road import Road

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
        request = await self._without_suffix(request)
        road = house.road(request.model, upward(headers), scope["client_key"])
        stop = road.here
        own, passed = scope.get("credential", ""), stop.headers.get("authorization", "").removeprefix("Bearer ")
        request.secrets = tuple(filter(None, (own, passed)))
        request.caller = _caller(own or passed) if own or passed else ""
        mode = stop.settings.mode or house.config.tools.mode
        wish = headers.get(SEARCH_HEADER, "").strip().lower()
        decision = decide(request, mode, wish, bool(house.toolbox.specs))
        scope["notes"].append(f"search {decision.header}")
        if decision.offered:
            searched = [stop for stop in road.stops if stop is road.here or stop.settings.mode != "off"]
            await self._answer(scope, send, request, Road(searched), decision)
        else:
            await self._pass_on(scope, send, request, road, decision, as_it_is=mode == "off")

    async def _without_suffix(self, request: ChatRequest) -> ChatRequest:
        """`:online` is a wish for search, unless the upstream lists that very name."""
        house, plain = self._house, request.model.removesuffix(chat.SUFFIX)
        if plain == request.model or not plain:
            return request
        lane, name = house.lane_for(plain)
        if (lane.config.of(name).mode or house.config.tools.mode) == "off":
            return request
        for lane in house.lanes:
            if lane.serves(request.model) and any(m["id"] == request.model for m in await _models(lane)):
                return request
        search = replace(request.search, asked=request.search.asked or "model_suffix")
        body = {**request.body, "model": plain}
        return replace(request, model=plain, body=body, search=search, changed=True)

    async def _pass_on(
        self, scope: Scope, send: Send, request: ChatRequest, road: Road, decision: Decision, *, as_it_is: bool
    ) -> None:
        """Without our tools bytes pass both ways, wherever the upstream speaks the client's own format."""
        down = {SEARCH_HEADER: decision.header}
        for at, stop in enumerate(road.stops):
            upstream = stop.lane.upstream
            if not isinstance(upstream, Forwarding) or not stop.lane.takes_as_it_is(stop.model, request.body):
                _check_one_answer(request.body, stop.lane.name)
                await self._answer(scope, send, request, Road(road.stops[at:]), decision)
                return
            body = _with_model(request.raw, stop.model) if as_it_is else self._unsearched(request, stop.model)
            last = at + 1 == len(road.stops)
            passage = self._passage.forward(
                send, upstream, "POST", "/chat/completions", stop.headers, body, down, stream=request.stream, last=last
            )
            if await passage:
                return

    def _unsearched(self, request: ChatRequest, model: str) -> bytes:
        """What goes up when our tools do not: the client's bytes, less what only we understand."""
        echoes = self._house.echoes(request)
        if not request.changed and not echoes.changed and model == request.model:
            return request.raw
        body = {**request.body, "model": model, "messages": echoes.messages}
        if request.changed and "tools" not in body:  # what spoke of tools goes with the last of them
            body.pop("tool_choice", None)
            body.pop("parallel_tool_calls", None)
        return orjson.dumps(body)

    async def _answer(self, scope: Scope, send: Send, request: ChatRequest, road: Road, decision: Decision) -> None:
        prepared = self._house.offer(request, decision)
        headers = {SEARCH_HEADER: decision.header}
        deliver = self._stream if request.stream else self._whole
        async with aclosing(self._house.engine.answer(request, prepared, road)) as events:
            failed = await deliver(send, request, events, headers)
        if headers[SEARCH_HEADER] != decision.header:
            scope["notes"].append(f"search {headers[SEARCH_HEADER]}")
        if failed:
            scope["notes"].append(f"failed {failed.error['code']}")

    async def _stream(
        self, send: Send, request: ChatRequest, events: AsyncIterator[list[Event]], headers: dict[str, str]
    ) -> Failed | None:
        """Sends events as they come, and says what went wrong if anything did."""
        encoder = chat.Encoder(request, progress=self._house.config.tools.progress == "reasoning")
        stream = EventStream(send, headers)
        failed: Failed | None = None
        try:
            async with asyncio.timeout(self._house.config.server.request_timeout):
                async for batch in events:
                    if isinstance(batch[0], SearchedFirst):
                        headers[SEARCH_HEADER] = _searched_first(batch[0], headers[SEARCH_HEADER])
                        stream.headers |= headers
                        if batch[0].searched:  # the model is asked late: the client hears that we are at work
                            await stream.write(PING)
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
        self, send: Send, request: ChatRequest, events: AsyncIterator[list[Event]], headers: dict[str, str]
    ) -> Failed | None:
        gathered: list[Event] = []
        try:
            async with asyncio.timeout(self._house.config.server.request_timeout):
                async for batch in events:
                    if isinstance(batch[0], SearchedFirst):
                        headers[SEARCH_HEADER] = _searched_first(batch[0], headers[SEARCH_HEADER])
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
            named = [{"id": name} for name in lane.config.models if not set("*?[") & set(name)]
            for model in [*models, *named]:
                if lane.serves(model["id"]) and self._house.lane_for(model["id"])[0] is lane:
                    default = {"object": "model", "created": now, "owned_by": lane.name}
                    found.setdefault(model["id"], {**default, **model})
        for alias, target in self._house.config.aliases.items():
            lane, name = self._house.lane_for(alias)
            about = found.get(target) or found.get(name) or {"object": "model", "created": now}
            found[alias] = {**about, "id": alias, "owned_by": lane.name}
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


def _searched_first(event: SearchedFirst, decided: str) -> str:
    """What the answer's header says of a search that came before the question."""
    return f"{decided}; searched=first" if event.searched else f"off; reason={event.reason}"


def _check_one_answer(body: Mapping[str, Any], upstream: str) -> None:
    """What only bytes can carry: several answers, the odds of tokens, sound, calls that are no functions."""
    several = "n" if (body.get("n") or 1) != 1 else "tools" if has_custom_tools(body) else ""
    if asked := several or next((name for name in ("logprobs", "audio", "functions") if body.get(name)), ""):
        text = f"`{asked}` does not work with upstream '{upstream}': leave it out."
        raise refuse(400, text, param=asked, code="unsupported_parameter")


def _with_model(raw: bytes, model: str) -> bytes:
    """The client's bytes, with another name for the model only if it must be."""
    body = orjson.loads(raw)
    return raw if body["model"] == model else orjson.dumps({**body, "model": model})


def _failure_in(events: list[Event]) -> Failed | None:
    return next((event for event in events if isinstance(event, Failed)), None)


def _caller(credential: str) -> str:
    return hmac.digest(_CALLERS, credential.encode("latin-1"), "sha256").hex()
