"""The web application: the routes, behind the edge. Handed a config, hands the server an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import Receive, Scope, Send

from ..callers.flushing import Flushing
from ..callers.keys import ClientKeys
from ..callers.limiter import Limiter
from ..callers.usage import UsageBook
from ..config.settings import Config
from ..context import context_of
from ..dialects.chat import ChatDialect
from ..dialects.engine_dialect import EngineDialect
from ..dialects.mcp import McpDialect
from ..dialects.messages.dialect import MessagesDialect
from ..dialects.messages.last_models import LastModels
from ..dialects.responses.dialect import ResponsesDialect
from ..dialects.responses.state import ResponseState
from ..house import House
from ..values.dialect import Dialect
from ..values.errors import failure
from ..watching.health import Health
from ..watching.lag import LoopLag
from ..watching.log import RequestLog, lines_dropped
from ..watching.metrics import Metrics
from ..watching.optional_listeners import OptionalListeners
from ..watching.prices import PriceList
from ..watching.publishing import Publishing
from ..watching.recent_requests import RecentRequests
from .admission import Admission
from .answer_route import AnswerRoute
from .background import BackgroundAnswers
from .delivery import Delivery, send_body, send_failure
from .edge import Edge
from .endpoint import Endpoint
from .forward_route import ForwardRoute
from .forwarding import Forwarder
from .health_report import HealthReportRoute
from .later import Later
from .mcp_route import McpRoute
from .messages_routes import CountTokensRoute
from .models_route import VERSION, ModelsRoute
from .open_connections import OpenConnections
from .responses_routes import StoredResponses
from .routes import Routes
from .status_routes import HealthRoute, MetricsRoute
from .worker_board import BoardRow

_MESSAGES, _MODELS, _VERSION = "/v1/messages", "/v1/models", VERSION.encode()
_ENGINES = ("/search", "/extract", "/compat/openwebui")  # where we pass for a search engine


def build(config: Config, connections: OpenConnections | None = None, row: BoardRow | None = None) -> Edge:
    """The application as a server runs it. Its parts are closed when the server stops. `connections` are counted; `row`
    is that of one of several workers."""
    optional = OptionalListeners(config, anonymous=lambda: not keys.required)
    metrics = Metrics(
        **({} if row is None else _of_all_workers(row)),
        log_dropped=lines_dropped,
        audit_dropped=optional.audit_dropped,
        connections=lambda: 0 if connections is None else len(connections),
        turned_away=lambda: 0 if connections is None else connections.turned_away,
        waiting=lambda: admission.waiting + house.upstreams.waiting,
    )
    house = House(config, cooled_down=metrics.cooled_down, places=row, workers=row.of if row else 1)
    lag = LoopLag(metrics.lagged)
    publishing = None
    if row is not None:
        metrics.take_over(row.counts_before())
        publishing = Publishing(metrics, row.write_counts)

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        await house.store.secret()  # says in the log, once, if a shared store is not there
        await house.hear_neighbours()
        house.start_indexes()
        lag.start()
        flushing.start()
        if publishing:
            publishing.start()
        yield
        lag.stop()
        await background.aclose()
        if publishing:
            publishing.stop()
        await flushing.stop()
        await mcp.aclose()
        await house.aclose()
        await optional.aclose()

    responses = ResponseState(house.store)
    dialects: dict[str, Dialect] = {
        "/v1/chat/completions": ChatDialect(progress=config.tools.progress == "reasoning"),
        "/v1/responses": ResponsesDialect(responses),
        _MESSAGES: MessagesDialect(house.store, LastModels(house.upstreams, house.store)),
    }
    keys = ClientKeys(
        config.server.keys,
        house.store.secret,
        groups=config.server.groups,
        any_owner=house.upstreams.take_client_keys,
    )
    health_seen = Health()
    limiter = Limiter(house.store.counters)
    usage = UsageBook(house.store.usage, anonymous=lambda: not keys.required)
    recent = RecentRequests(house.store.requests, contents=config.log.contents, anonymous=lambda: not keys.required)
    flushing = Flushing(limiter.flush, usage.flush, house.store.requests.flush)
    forwarder = Forwarder(lambda: edge.stopping)
    delivery = Delivery(lambda: edge.stopping)
    background = BackgroundAnswers(delivery)
    answer = AnswerRoute(config.server, house.preparation, house.engine, delivery, forwarder, background)
    models = ModelsRoute(house.upstreams, house.preparation, list_online=config.tools.list_online)
    health = HealthRoute(lambda: edge.draining)
    stored = StoredResponses(responses, lambda: edge.stopping)
    mcp = McpRoute(house)
    page = Later("page_route:PageRoute") if config.server.playground else None
    endpoints = [
        *(Endpoint(path, answer, methods=["POST"]) for path in dialects),
        Endpoint("/v1/responses/{id}", stored, methods=["GET", "DELETE"]),
        Endpoint("/v1/responses/{id}/input_items", stored, methods=["GET"]),
        Endpoint("/v1/responses/{id}/cancel", stored, methods=["POST"]),
        Endpoint("/v1/messages/count_tokens", CountTokensRoute(config.server), methods=["POST"]),
        Endpoint("/v1/search", Later("tool_routes:SearchRoute", house), methods=["POST"]),
        Endpoint("/v1/open", Later("tool_routes:OpenRoute", house), methods=["POST"]),
        Endpoint("/v1/alpha/search", Later("alpha_search_route:AlphaSearchRoute", house), methods=["POST"]),
        Endpoint("/search", Later("tavily_routes:TavilySearchRoute", house), methods=["POST"]),
        Endpoint("/search", Later("searxng_route:SearxngRoute", house), methods=["GET"]),
        Endpoint("/", Later("searxng_route:SearxngRoute", house, page or _nothing_here), methods=["GET"]),
        *([Endpoint("/page/{name:path}", page, methods=["GET"])] if page else ()),
        Endpoint("/extract", Later("tavily_routes:TavilyExtractRoute", house), methods=["POST"]),
        Endpoint("/compat/openwebui/search", Later("openwebui_routes:OpenWebuiSearchRoute", house), methods=["POST"]),
        Endpoint("/compat/openwebui/load", Later("openwebui_routes:OpenWebuiLoadRoute", house), methods=["POST"]),
        Endpoint("/mcp", mcp, methods=["POST"]),
        Endpoint("/v1/models", models, methods=["GET"]),
        Endpoint("/v1/models/{id:path}", models, methods=["GET"]),
        Endpoint("/healthz", health, methods=["GET"]),
        Endpoint("/readyz", health, methods=["GET"]),
        Endpoint("/metrics", MetricsRoute(metrics), methods=["GET"]),
        Endpoint("/openapi.json", Later("openapi_route:OpenapiRoute"), methods=["GET"]),
        Endpoint("/v1/groundwire/usage", Later("usage_route:UsageRoute", usage), methods=["GET"]),
        Endpoint("/v1/groundwire/health", HealthReportRoute(house, health_seen), methods=["GET"]),
        Endpoint("/v1/groundwire/requests", Later("requests_route:RequestsRoute", recent), methods=["GET"]),
        Endpoint("/v1/groundwire/requests/{id}", Later("requests_route:RequestRoute", recent), methods=["GET"]),
        Endpoint("/v1/{path:path}", ForwardRoute(house.upstreams, config.server, forwarder)),
    ]
    admission = Admission(Routes(endpoints, _nothing_here, lifespan), config.server, row)
    edge = Edge(
        admission,
        config.server,
        keys,
        _DialectOfPath({**dialects, **dict.fromkeys(_ENGINES, EngineDialect()), "/mcp": McpDialect()}),
        [RequestLog(config.log), metrics, limiter, usage, recent, health_seen, *optional.listeners],
        limiter=limiter,
        prices=PriceList(config.prices),
    )
    return edge


def _of_all_workers(row: BoardRow) -> dict[str, Any]:
    return {"workers": lambda: row.workers, "restarts": lambda: row.restarts, "others": row.counts_of_others}


class _DialectOfPath:
    """The dialect of a path: what stands below an endpoint speaks like it, all else like Chat Completions. Only the
    list of models is one path for two APIs, which a header tells apart."""

    def __init__(self, dialects: dict[str, Dialect]) -> None:
        self._dialects = dialects
        self._other = ChatDialect(name="http")

    def __call__(self, path: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> Dialect:
        if path.startswith(_MODELS) and any(name == _VERSION for name, _ in headers):
            path = _MESSAGES
        known = self._dialects.get(path)
        return known or next((d for base, d in self._dialects.items() if path.startswith(base + "/")), self._other)


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        if scope["path"] == "/" and scope["method"] == "HEAD":  # how some programs look whether anybody is there
            await send_body(send, 200, b"", {})
            return
        context = context_of(scope)
        context.observer.fail("not_found")
        text = f"There is nothing at {scope['path']}. The API lives under /v1, for example /v1/chat/completions."
        if scope["path"] != "/" and scope["path"].endswith("/"):
            text += " Leave out the slash at the end."
        await send_failure(send, context.dialect, failure(404, text, code="not_found"))
