"""The endpoint of a dialect whose requests models answer, as an ASGI application of its own: no framework stands
between the events and `send`. Handed requests that the edge let in; lets the engine answer, or forwards bytes, and
delivers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from ..answering.engine import Engine
from ..answering.offer import has_custom_tools, without_idle_choice
from ..answering.preparation import Preparation, PreparedRequest, without_our_calls
from ..config.settings import ServerConfig
from ..context import RequestContext, context_of
from ..upstreams.transport import Forwarding
from ..values.dialect import Decoded
from ..values.errors import refuse
from ..values.request import SEARCH_HEADER
from .bodies import read_body
from .delivery import Delivery, while_connected
from .forwarding import ForwardedRequest, Forwarder

_ONLY_AS_BYTES = ("logprobs", "audio", "functions")


class AnswerRoute:
    def __init__(
        self, server: ServerConfig, preparation: Preparation, engine: Engine, delivery: Delivery, forwarder: Forwarder
    ) -> None:
        self._server = server
        self._preparation = preparation
        self._engine = engine
        self._delivery = delivery
        self._forwarder = forwarder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = context_of(scope)
        raw = await read_body(receive, scope, self._server)
        await while_connected(receive, self._serve(context, send, raw), context.observer)

    async def _serve(self, context: RequestContext, send: Send, raw: bytes) -> None:
        decoded = await context.dialect.decode(raw, context.caller.owner)
        prepared = await self._preparation.prepare(decoded.request, context)
        passed = False
        while not passed and self._takes_bytes(decoded, prepared):
            passed = await self._forward(context, send, decoded, prepared)
        if not passed:
            await self._answer(context, send, decoded, prepared)

    def _takes_bytes(self, decoded: Decoded, prepared: PreparedRequest) -> bool:
        """Without our tools bytes pass both ways, wherever the upstream speaks the client's own format."""
        if prepared.decision.offered or not decoded.forward_to:
            return False
        candidate = prepared.plan.current
        upstream = candidate.upstream
        if isinstance(upstream.transport, Forwarding) and upstream.takes_as_it_is(
            candidate.model, prepared.request.body
        ):
            return True
        _check_one_answer(prepared.request.body, upstream.name)
        return False

    async def _forward(self, context: RequestContext, send: Send, decoded: Decoded, prepared: PreparedRequest) -> bool:
        candidate = prepared.plan.current
        body = self._unsearched(prepared, candidate.model)
        down = {SEARCH_HEADER: prepared.decision.header}
        request = ForwardedRequest(
            "POST", decoded.forward_to, body, candidate.headers, down, stream=prepared.request.stream
        )
        return await self._forwarder.forward(context, send, prepared.plan, request)

    async def _answer(self, context: RequestContext, send: Send, decoded: Decoded, prepared: PreparedRequest) -> None:
        decision = prepared.decision
        hidden = decoded.hidden_turns and not decision.offered
        request = without_our_calls(prepared.request) if hidden else prepared.request
        offer = self._preparation.offer(request, offered=decision.offered)
        events = self._engine.answer(request, offer, prepared.plan, context)
        await self._delivery.deliver(context, send, events, decoded.writer(), decision.header, stream=request.stream)

    def _unsearched(self, prepared: PreparedRequest, model: str) -> bytes:
        """What goes up when our tools do not: the client's bytes, less what only we understand."""
        request = prepared.request
        if prepared.mode == "off":  # then nothing is ours to change but the model's name
            return _with_model(request.raw, model)
        cleaned = self._preparation.cleaned(request)
        if not request.changed and not cleaned.changed and model == request.model:
            return request.raw
        body = {**request.body, "model": model, "messages": cleaned.messages}
        return orjson.dumps(without_idle_choice(body) if request.changed else body)


def _check_one_answer(body: Mapping[str, Any], upstream: str) -> None:
    """What only bytes can carry: several answers, the odds of tokens, sound, calls that are no functions."""
    asked = next((name for name in _ONLY_AS_BYTES if body.get(name)), "")
    if has_custom_tools(body):
        asked = "tools"
    if (body.get("n") or 1) != 1:
        asked = "n"
    if asked:
        text = f"`{asked}` does not work with upstream '{upstream}': leave it out."
        raise refuse(400, text, param=asked, code="unsupported_parameter")


def _with_model(raw: bytes, model: str) -> bytes:
    """The client's bytes, with another name for the model only if it must be."""
    body = orjson.loads(raw)
    return raw if body["model"] == model else orjson.dumps({**body, "model": model})
