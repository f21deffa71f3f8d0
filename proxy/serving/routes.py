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

from ..answering.offer import Decision, has_custom_tools, without_idle_choice
from ..dialects import chat
from ..house import House
from ..upstreams.fallback import FallbackPlan
from ..upstreams.transport import Forwarding
from ..values.errors import refuse
from ..values.request import ChatRequest
from . import preparation
from .delivery import SEARCH_HEADER, Delivery, send_json, while_connected
from .edge import Edge, read_body
from .forwarding import Forwarder
from .preparation import PreparedRequest


class ChatCompletions:
    """`POST /v1/chat/completions`"""

    def __init__(self, house: House, delivery: Delivery, forwarder: Forwarder) -> None:
        self._house = house
        self._delivery = delivery
        self._forwarder = forwarder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = await read_body(receive, scope, self._house.config.server)
        await while_connected(receive, self._serve(scope, send, chat.decode(raw)))

    async def _serve(self, scope: Scope, send: Send, request: ChatRequest) -> None:
        prepared = await preparation.prepare(self._house, scope, request)
        if prepared.decision.offered:
            await self._answer(scope, send, prepared.request, prepared.plan, prepared.decision)
        else:
            await self._pass_on(scope, send, prepared)

    async def _pass_on(self, scope: Scope, send: Send, prepared: PreparedRequest) -> None:
        """Without our tools bytes pass both ways, wherever the upstream speaks the client's own format."""
        request, plan, decision = prepared.request, prepared.plan, prepared.decision
        down = {SEARCH_HEADER: decision.header}
        for at, candidate in enumerate(plan.candidates):
            transport = candidate.upstream.transport
            if not isinstance(transport, Forwarding) or not candidate.upstream.takes_as_it_is(
                candidate.model, request.body
            ):
                _check_one_answer(request.body, candidate.upstream.name)
                await self._answer(scope, send, request, FallbackPlan(plan.candidates[at:]), decision)
                return
            final = prepared.mode == "off"  # then nothing is ours to change but the model's name
            body = _with_model(request.raw, candidate.model) if final else self._unsearched(request, candidate.model)
            last = at + 1 == len(plan.candidates)
            forwarder = self._forwarder.forward(
                send,
                transport,
                "POST",
                "/chat/completions",
                candidate.headers,
                body,
                down,
                stream=request.stream,
                last=last,
            )
            if await forwarder:
                return

    def _unsearched(self, request: ChatRequest, model: str) -> bytes:
        """What goes up when our tools do not: the client's bytes, less what only we understand."""
        cleaned = self._house.cleaned(request)
        if not request.changed and not cleaned.changed and model == request.model:
            return request.raw
        body = {**request.body, "model": model, "messages": cleaned.messages}
        return orjson.dumps(without_idle_choice(body) if request.changed else body)

    async def _answer(
        self, scope: Scope, send: Send, request: ChatRequest, plan: FallbackPlan, decision: Decision
    ) -> None:
        events = self._house.answer(request, decision, plan)
        answer = chat.AnswerWriter(request, progress=self._house.config.tools.progress == "reasoning")
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
        listed = await asyncio.gather(*(upstream.listed() for upstream in self._house.upstreams))
        found: dict[str, dict[str, Any]] = {}
        now = int(time.time())
        for upstream, models in zip(self._house.upstreams, listed, strict=True):
            named = [{"id": name} for name in upstream.config.models if not set("*?[") & set(name)]
            for model in [*models, *named]:
                if upstream.serves(model["id"]) and self._house.upstream_for(model["id"])[0] is upstream:
                    default = {"object": "model", "created": now, "owned_by": upstream.name}
                    found.setdefault(model["id"], {**default, **model})
        for alias, target in self._house.config.aliases.items():
            upstream, name = self._house.upstream_for(alias)
            about = found.get(target) or found.get(name) or {"object": "model", "created": now}
            found[alias] = {**about, "id": alias, "owned_by": upstream.name}
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
