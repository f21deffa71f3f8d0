"""The endpoint of a dialect whose requests models answer, as an ASGI application of its own: no framework stands
between the events and `send`. Handed requests that the edge let in; lets the engine answer, or forwards bytes, and
delivers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from providers.apart import in_thread
from providers.records import dataclass

from ..answering.engine import Engine
from ..answering.offer import Offer, has_custom_tools, without_idle_choice
from ..answering.preparation import Preparation, PreparedRequest, without_our_calls
from ..config.settings import ServerConfig
from ..context import RequestContext, context_of
from ..dialects.responses.background import BackgroundWriter
from ..values.dialect import Decoded
from ..values.errors import RequestError, refuse
from ..values.events import EventBatches
from ..values.patient_json import loads
from ..values.request import SEARCH_HEADER, ChatRequest
from .admission import next_turn_of
from .background import Asking, BackgroundAnswers
from .bodies import read_body
from .delivery import Delivery, while_connected
from .event_stream import EventStream
from .forwarded_answer import ForwardedRequest
from .forwarding import Forwarder
from .trace import is_wanted, traced

_VERSIONS = ("anthropic-version", "anthropic-beta")
_ONLY_AS_BYTES = ("logprobs", "audio", "functions")
_BEYOND_EVENTS = frozenset({"n", "tools", *_ONLY_AS_BYTES})  # the fields that may ask for what events cannot carry


@dataclass(slots=True)
class _Asked:
    """One question that is ready to be answered. `stream` is None where a whole answer is wanted."""

    context: RequestContext
    send: Send
    decoded: Decoded
    prepared: PreparedRequest
    query: bytes  # of the address that was asked
    stream: EventStream | None = None


class AnswerRoute:
    def __init__(
        self,
        server: ServerConfig,
        preparation: Preparation,
        engine: Engine,
        delivery: Delivery,
        forwarder: Forwarder,
        background: BackgroundAnswers,
    ) -> None:
        self._server = server
        self._preparation = preparation
        self._engine = engine
        self._delivery = delivery
        self._forwarder = forwarder
        self._background = background

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = context_of(scope)
        raw = await read_body(receive, scope, self._server)
        decoded = await context.dialect.decode(raw, context.caller.owner, context.caller.former)
        if context.observer.transcript is not None:
            context.observer.transcript.ask(decoded.request.body["messages"], context.caller.secrets)
        if decoded.background:
            await self._serve_in_background(Asking(context, receive, send, next_turn_of(scope)), decoded)
        else:
            work = self._serve(context, send, decoded, scope["query_string"])
            await while_connected(receive, work, context.observer)

    async def _serve_in_background(self, asking: Asking, decoded: Decoded) -> None:
        prepared = await self._preparation.prepare(decoded.request, asking.context)
        writer = decoded.writer()
        assert isinstance(writer, BackgroundWriter)
        events = await self._events(asking.context, decoded, prepared)
        await self._background.answer(asking, events, writer, prepared.decision.header)

    async def _serve(self, context: RequestContext, send: Send, decoded: Decoded, query: bytes) -> None:
        prepared = await self._preparation.prepare(decoded.request, context)
        if decoded.accepted:
            await decoded.accepted()
        asked = _Asked(context, send, decoded, prepared, query)
        if not prepared.request.stream:
            await self._answer(asked)
            return
        stream = asked.stream = EventStream(send, {SEARCH_HEADER: prepared.decision.header}, ping=context.dialect.ping)
        try:
            await self._answer(asked)
        except RequestError as error:
            if not stream.started:
                raise
            context.observer.fail(error.failed.error.get("code"))
            await stream.end(context.dialect.error_event(error.failed))
        finally:
            stream.stop()

    async def _answer(self, asked: _Asked) -> None:
        """Without our tools bytes pass both ways, wherever the upstream speaks the client's own format."""
        context, decoded, prepared = asked.context, asked.decoded, asked.prepared
        if decoded.forward_to and not prepared.decision.offered:
            forward = self._forward_as_sent if decoded.as_sent else self._forward
            while await self._takes_bytes(decoded, prepared):
                if await forward(asked):
                    return
        events = await self._events(context, decoded, prepared)
        if is_wanted(context, decoded):
            events = traced(events, context.observer)
        decided = prepared.decision.header
        await self._delivery.deliver(context, asked.send, events, decoded.writer(), decided, asked.stream)

    async def _takes_bytes(self, decoded: Decoded, prepared: PreparedRequest) -> bool:
        candidate = prepared.plan.current
        upstream = candidate.upstream
        if decoded.as_sent:
            speaks = bool(upstream.forwarding) and upstream.config.messages
            if not speaks or not prepared.request.is_long:
                return speaks and self._holds_nothing_of_ours(prepared)
            return await in_thread(self._holds_nothing_of_ours, prepared)
        if upstream.forwarding and upstream.takes_as_it_is(candidate.model, prepared.request.body):
            return True
        if asked := _only_as_bytes(prepared.request.body):
            text = f"`{asked}` does not work with upstream '{upstream.name}': leave it out."
            raise refuse(400, text, param=asked, code="unsupported_parameter")
        return False

    def _holds_nothing_of_ours(self, prepared: PreparedRequest) -> bool:
        """Where the mode is off even a wish for search is for the upstream."""
        if prepared.mode == "off":
            return True
        return not prepared.request.search.asked and not self._preparation.cleaned(prepared.request).changed

    async def _forward_as_sent(self, asked: _Asked) -> bool:
        """The client's very bytes, and the upstream's; of the request only the model's name may change."""
        prepared = asked.prepared
        candidate = prepared.plan.current
        make, given = _with_model, (prepared.request.raw, candidate.model)
        body = await in_thread(make, *given) if prepared.request.is_long else make(*given)
        versions = {name: value for name, value in asked.context.headers.items() if name in _VERSIONS}
        down = {SEARCH_HEADER: prepared.decision.header}
        query = asked.query.decode("latin-1")
        path = f"{asked.decoded.forward_to}?{query}" if query else asked.decoded.forward_to
        request = ForwardedRequest("POST", path, body, {**candidate.headers, **versions}, down)
        return await self._forwarder.forward(asked.context, asked.send, prepared.plan, request, asked.stream)

    async def _forward(self, asked: _Asked) -> bool:
        decoded, prepared = asked.decoded, asked.prepared
        candidate = prepared.plan.current
        make, given = self._unsearched, (prepared, candidate.model)
        body = await in_thread(make, *given) if prepared.request.is_long else make(*given)
        down = {SEARCH_HEADER: prepared.decision.header}
        writer = None if _only_as_bytes(prepared.request.body) else decoded.writer
        request = ForwardedRequest("POST", decoded.forward_to, body, candidate.headers, down, writer)
        return await self._forwarder.forward(asked.context, asked.send, prepared.plan, request, asked.stream)

    async def _events(self, context: RequestContext, decoded: Decoded, prepared: PreparedRequest) -> EventBatches:
        decision = prepared.decision
        hidden = decoded.hidden_turns and not decision.offered
        make, given = self._offer, (prepared.request, context, decision.offered, hidden)
        request, offer = await in_thread(make, *given) if prepared.request.is_long else make(*given)
        return self._engine.answer(request, offer, prepared.plan, context)

    def _offer(
        self, given: ChatRequest, context: RequestContext, offered: bool, hidden: bool
    ) -> tuple[ChatRequest, Offer]:
        request = without_our_calls(given) if hidden else given
        return request, self._preparation.offer(request, context.caller, offered)

    def _unsearched(self, prepared: PreparedRequest, model: str) -> bytes:
        """What goes up when our tools do not: the client's bytes, less what only we understand."""
        request = prepared.request
        if prepared.mode == "off":  # then nothing is ours to change but the model's name
            return request.raw if model == request.model else _with_model(request.raw, model)
        cleaned = self._preparation.cleaned(request)
        if not request.changed and not cleaned.changed and model == request.model:
            return request.raw
        body = {**request.body, "model": model, "messages": cleaned.messages}
        return orjson.dumps(without_idle_choice(body) if request.changed else body)


def _with_model(raw: bytes, model: str) -> bytes:
    """The client's very bytes, unless the model has another name there."""
    sent = loads(raw)
    return raw if sent["model"] == model else orjson.dumps({**sent, "model": model})


def _only_as_bytes(body: Mapping[str, Any]) -> str:
    """What it asks for that events cannot carry: several answers, the odds of tokens, sound, calls of no function."""
    if _BEYOND_EVENTS.isdisjoint(body):
        return ""
    if (body.get("n") or 1) != 1:
        return "n"
    if has_custom_tools(body):
        return "tools"
    return next((name for name in _ONLY_AS_BYTES if body.get(name)), "")
