"""The endpoints, as ASGI applications of their own: no framework stands between the events and `send`. Handed requests
that the edge let in; each picks its dialect, lets the engine answer or forwards bytes, and delivers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from ..answering.inject import Decision, has_custom_tools, without_idle_choice
from ..dialects import chat
from ..house import House
from ..upstreams.base import Forwarding
from ..upstreams.road import Road
from ..values.errors import refuse
from ..values.request import ChatRequest
from . import reception
from .delivery import SEARCH_HEADER, Delivery, send_json, while_connected
from .edge import Edge, read_body
from .forwarding import Passage
from .reception import Received


class ChatCompletions:
    """`POST /v1/chat/completions`"""

    def __init__(self, house: House, delivery: Delivery, passage: Passage) -> None:
        self._house = house
        self._delivery = delivery
        self._passage = passage

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = await read_body(receive, scope, self._house.config.server)
        await while_connected(receive, self._serve(scope, send, chat.decode(raw)))

    async def _serve(self, scope: Scope, send: Send, request: ChatRequest) -> None:
        received = await reception.receive(self._house, scope, request)
        if received.decision.offered:
            await self._answer(scope, send, received.request, received.road, received.decision)
        else:
            await self._pass_on(scope, send, received)

    async def _pass_on(self, scope: Scope, send: Send, received: Received) -> None:
        """Without our tools bytes pass both ways, wherever the upstream speaks the client's own format."""
        request, road, decision = received.request, received.road, received.decision
        down = {SEARCH_HEADER: decision.header}
        for at, stop in enumerate(road.stops):
            upstream = stop.lane.upstream
            if not isinstance(upstream, Forwarding) or not stop.lane.takes_as_it_is(stop.model, request.body):
                _check_one_answer(request.body, stop.lane.name)
                await self._answer(scope, send, request, Road(road.stops[at:]), decision)
                return
            final = received.mode == "off"  # then nothing is ours to change but the model's name
            body = _with_model(request.raw, stop.model) if final else self._unsearched(request, stop.model)
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
        return orjson.dumps(without_idle_choice(body) if request.changed else body)

    async def _answer(self, scope: Scope, send: Send, request: ChatRequest, road: Road, decision: Decision) -> None:
        events = self._house.answer(request, decision, road)
        answer = chat.Answer(request, progress=self._house.config.tools.progress == "reasoning")
        await self._delivery.deliver(scope, send, events, answer, decision.header, stream=request.stream)


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
        listed = await asyncio.gather(*(lane.listed() for lane in self._house.lanes))
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
