"""Traces: a span for each request, with one inside it for each question to a model, call of a tool and call of a
provider. A listener; handed what happens, hands spans to OpenTelemetry's SDK, which sends them from a thread. Loaded
only where the operator names a collector. No span holds what people wrote, unless `log.contents: true`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import orjson
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from providers.base import ProviderCall

from . import trace_names as names
from .contents import LONGEST_NAME, printable, whole_characters
from .counted import is_counted
from .log import without_secrets
from .observer import Hearer, Listener, Observer
from .steps import (
    TOOLS,
    Forwarded,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    ModelLeft,
    Operation,
    Step,
    Tokens,
    ToolBegan,
    ToolCalled,
)

_SECOND = 1_000_000_000  # nanoseconds
_LONGEST_CONTENT = 1000
_STORED = re.compile(r"(/v1/(?:responses|models|groundwire/requests))/[^/]+")
_NOWHERE = (0, 401, 404, 405)  # nothing was sent, the key was refused, or no such route
_PROPAGATOR = TraceContextTextMapPropagator()

Attributes = dict[str, AttributeValue]
Teller = Callable[["_Trace", Observer, Any], None]


class Traces(Listener):
    """`contents`: may spans hold what was searched for and opened?"""

    def __init__(self, tracer: Tracer, *, contents: bool = False) -> None:
        self._tracer = tracer
        self._contents = contents
        self._open: dict[Observer, _Trace] = {}

    def hearers(self) -> Mapping[type[Step], Hearer]:
        return {kind: partial(self._tell, teller) for kind, teller in _TELLERS.items()}

    def ended(self, request: Observer) -> None:
        if request in self._open or is_counted(request):
            trace = self._trace_of(request)
            del self._open[request]
            trace.end(request)

    def _tell(self, teller: Teller, request: Observer, step: Step) -> None:
        teller(self._trace_of(request), request, step)

    def _trace_of(self, request: Observer) -> _Trace:
        """Begun when there is something to tell: only then the client's headers have been read."""
        known = self._open.get(request)
        if known is None:
            known = self._open[request] = _Trace(self._tracer, request, contents=self._contents)
        return known


class _Trace:
    """The spans of one request."""

    def __init__(self, tracer: Tracer, request: Observer, *, contents: bool) -> None:
        self._tracer = tracer
        self._contents = contents
        self._watched = request
        self._start = time.time_ns() - round((time.perf_counter() - request.began) * _SECOND)
        parent = _PROPAGATOR.extract(request.trace_headers, Context())
        self._request = tracer.start_span(request.method, parent, SpanKind.SERVER, start_time=self._start)
        self._within = set_span_in_context(self._request, Context())
        self._records = self._request.is_recording()
        self._model: tuple[Span, str] | None = None  # the question under way, and to which model
        self._tools: list[_RunningTool] = []

    def asked(self, request: Observer, step: ModelAsked) -> None:
        self._close_model()
        model = _shown(step.model)
        attributes: Attributes = {names.OPERATION: names.CHAT, names.PROVIDER: step.upstream, names.MODEL: model}
        span = self._span(f"{names.CHAT} {model}", SpanKind.CLIENT, self._now(), attributes)
        self._model = span, model
        onward: dict[str, str] = {}
        _PROPAGATOR.inject(onward, set_span_in_context(span, Context()))
        request.onward = onward

    def answered(self, request: Observer, step: ModelAnswered) -> None:
        self._close_model(_of_tokens(step.tokens))

    def left(self, request: Observer, step: ModelLeft) -> None:
        self._close_model({**_of_tokens(step.tokens), names.OUTCOME: "left"})

    def forwarded(self, request: Observer, step: Forwarded) -> None:
        attributes: Attributes = {**_of_tokens(step.tokens), names.STATUS: step.status}
        if step.status >= 400:
            self._close_model({**attributes, names.ERROR: str(step.status)}, failed=True)
        else:
            self._rename(step.operation)
            self._close_model(attributes)

    def failed(self, request: Observer, step: ModelFailed) -> None:
        error = _shown(step.code) or str(step.status)
        self._close_model({names.STATUS: step.status, names.ERROR: error}, failed=True)

    def tool_began(self, request: Observer, step: ToolBegan) -> None:
        if self._records:
            self._tools.append(_RunningTool(step.tool, step.contents, self._tool_span(step.tool, step.contents)))

    def tool_called(self, request: Observer, step: ToolCalled) -> None:
        running = next((tool for tool in self._tools if tool.is_of(step)), None)
        if running is None:
            return
        self._tools.remove(running)
        self._close(running.span, {} if step.ok else {names.ERROR: "failed"}, failed=not step.ok)

    def provider_called(self, request: Observer, step: ProviderCall) -> None:
        if not self._records:
            return
        now = self._now()
        search = step.role == "search"
        operation = names.RETRIEVAL if search else names.READ
        attributes: Attributes = {
            names.DATA_SOURCE: step.provider,
            names.OUTCOME: step.outcome,
            names.CACHED: step.cached,
            names.SIZE: step.size,
        }
        if search:
            attributes[names.OPERATION] = operation
        if step.results is not None:
            attributes[names.RESULTS] = step.results
        if self._contents:
            attributes[names.QUERY if search else names.URL] = _shown(step.asked, _LONGEST_CONTENT)
        name, start = f"{operation} {step.provider}", now - round(step.seconds * _SECOND)
        span = self._span(name, SpanKind.CLIENT, start, attributes, self._tool_of(step))
        failed = not step.answered
        self._close(span, {names.ERROR: step.outcome} if failed else {}, failed=failed, now=now)

    def end(self, request: Observer) -> None:
        """What is still under way is broken off with its request."""
        broken_off: Attributes = {names.OUTCOME: _shown(request.outcome)}
        for tool in self._tools:
            self._close(tool.span, broken_off)
        self._close_model(broken_off)
        if not self._records:
            return
        route = _route(request)
        self._request.update_name(f"{request.method} {route}" if route else request.method)
        self._close(self._request, _of_request(request, route), failed=request.ending == "failed")

    def _rename(self, operation: Operation) -> None:
        """What was forwarded is known by its answer."""
        if self._model and operation != names.CHAT:
            span, model = self._model
            span.update_name(f"{operation or names.FORWARDED} {model}")
            span.set_attribute(names.OPERATION, operation or names.FORWARDED)

    def _tool_span(self, tool: str, contents: Sequence[Mapping[str, str]]) -> Span:
        attributes: Attributes = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL: tool,
            names.TOOL_TYPE: names.FUNCTION,
        }
        if self._contents:
            texts = [{name: whole_characters(text) for name, text in said.items()} for said in contents]
            attributes[names.ARGUMENTS] = _shown(orjson.dumps(texts).decode(), _LONGEST_CONTENT)
        return self._span(f"{names.EXECUTE_TOOL} {tool}", SpanKind.INTERNAL, self._now(), attributes)

    def _tool_of(self, call: ProviderCall) -> Span | None:
        """On whose behalf a provider was asked: of tools that run together, the one that asked for this very thing."""
        alike = [tool for tool in self._tools if tool.name == TOOLS[call.role]]
        exact = [tool for tool in alike if any(call.asked in texts.values() for texts in tool.contents)]
        return next((tool.span for tool in (*exact, *alike, *self._tools)), None)

    def _span(self, name: str, kind: SpanKind, start: int, attributes: Attributes, parent: Span | None = None) -> Span:
        within = set_span_in_context(parent, Context()) if parent else self._within
        return self._tracer.start_span(name, within, kind, attributes, start_time=start)

    def _close_model(self, attributes: Attributes | None = None, *, failed: bool = False) -> None:
        if self._model:
            span, _ = self._model
            self._model = None
            self._close(span, attributes or {}, failed=failed)

    def _close(self, span: Span, attributes: Attributes, *, failed: bool = False, now: int = 0) -> None:
        span.set_attributes(attributes)
        if failed:
            span.set_status(Status(StatusCode.ERROR))
        span.end(now or self._now())

    def _now(self) -> int:
        """By the clock that never goes back, so that no span ends before it began; nor after its request."""
        return self._start + round(self._watched.seconds * _SECOND)


class _RunningTool:
    def __init__(self, name: str, contents: Sequence[Mapping[str, str]], span: Span) -> None:
        self.name = name
        self.contents = contents
        self.span = span

    def is_of(self, step: ToolCalled) -> bool:
        """Its beginning and its end tell of the very same contents."""
        return self.name == step.tool and self.contents is step.contents


def _of_tokens(tokens: Tokens) -> Attributes:
    if tokens.none:
        return {}
    counted: Attributes = {names.INPUT_TOKENS: tokens.input, names.OUTPUT_TOKENS: tokens.output}
    return {**counted, names.ESTIMATED: True} if tokens.estimated else counted


def _of_request(request: Observer, route: str) -> Attributes:
    """What is not known, or nothing, is left out."""
    summary = request.summary
    told: Attributes = {
        names.METHOD: request.method,
        names.PATH: _shown(request.path),
        names.ROUTE: route,
        names.STATUS: request.status,
        names.REQUEST_ID: request.id,
        names.KEY: request.caller,
        names.DIALECT: request.dialect,
        names.SEARCH: summary.search,
        names.REASON: summary.reason,
        names.ROUNDS: summary.rounds,
        names.RETRIES: summary.retries,
        names.CITATIONS: summary.citations,
        names.COST: round(summary.cost, 8),
        names.QUEUED: summary.queued,
        names.FIRST_CONTENT: summary.first_content or 0,
        names.OUTCOME: _shown(request.outcome),
        names.ERROR: _shown(request.outcome) if request.ending == "failed" else "",
    }
    return {name: value for name, value in told.items() if value not in ("", 0)}


def _route(request: Observer) -> str:
    """The path without the ids in it; empty where nothing is served there, or nobody looked whether something is."""
    return "" if request.status in _NOWHERE else _shown(_STORED.sub(r"\1/{id}", request.path))


def _shown(text: str, longest: int = LONGEST_NAME) -> str:
    return without_secrets(printable(text, longest))


_TELLERS: dict[type[Step], Teller] = {
    ModelAsked: _Trace.asked,
    ModelAnswered: _Trace.answered,
    ModelLeft: _Trace.left,
    ModelFailed: _Trace.failed,
    Forwarded: _Trace.forwarded,
    ToolBegan: _Trace.tool_began,
    ToolCalled: _Trace.tool_called,
    ProviderCall: _Trace.provider_called,
}
