"""The web application: routes on FastAPI, behind the edge. Handed a config, hands the server an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ..callers.keys import ClientKeys
from ..config.settings import Config
from ..context import context_of
from ..dialects.chat import ChatDialect
from ..dialects.responses.dialect import ResponsesDialect
from ..dialects.responses.state import ResponseState
from ..house import House
from ..values.dialect import Dialect
from ..values.errors import failure
from ..watching.lag import LoopLag
from ..watching.log import RequestLog
from ..watching.metrics import Metrics
from .answer_route import AnswerRoute
from .delivery import Delivery, send_failure
from .edge import Edge
from .forward_route import ForwardRoute
from .forwarding import Forwarder
from .responses_routes import StoredResponses
from .status_routes import HealthRoute, MetricsRoute, ModelsRoute
from .tool_routes import OpenRoute, SearchRoute


def build(config: Config) -> Edge:
    """The application as a server runs it. Its parts are closed when the server stops."""
    metrics = Metrics()
    house = House(config, cooled_down=metrics.cooled_down)
    lag = LoopLag(metrics.lagged)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await house.store.secret()  # says in the log, once, if a shared store is not there
        lag.start()
        yield
        lag.stop()
        await house.aclose()

    app = FastAPI(title="Groundwire", openapi_url=None, docs_url=None, redoc_url=None, lifespan=lifespan)
    responses = ResponseState(house.store)
    dialects: dict[str, Dialect] = {
        "/v1/chat/completions": ChatDialect(progress=config.tools.progress == "reasoning"),
        "/v1/responses": ResponsesDialect(responses),
    }
    keys = ClientKeys(config.server.keys, house.store.secret, any_owner=house.upstreams.take_client_keys)
    # Past FastAPI's own error pages and exit stacks: the edge answers for what goes wrong, and costs a tenth of them.
    edge = Edge(app.router, config.server, keys, _DialectOfPath(dialects), [RequestLog(config.log), metrics])
    forwarder = Forwarder(lambda: edge.stopping)
    delivery = Delivery(lambda: edge.stopping)
    answer = AnswerRoute(config.server, house.preparation, house.engine, delivery, forwarder)
    models, health = ModelsRoute(house.upstreams), HealthRoute(lambda: edge.draining)
    stored = StoredResponses(responses)
    # Plain Starlette routes on ASGI applications: FastAPI's own machinery would cost twice as much per request.
    app.router.routes += [
        *(Route(path, answer, methods=["POST"]) for path in dialects),
        Route("/v1/responses/{id}", stored, methods=["GET", "DELETE"]),
        Route("/v1/responses/{id}/input_items", stored, methods=["GET"]),
        Route("/v1/search", SearchRoute(house), methods=["POST"]),
        Route("/v1/open", OpenRoute(house), methods=["POST"]),
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/models/{id:path}", models, methods=["GET"]),
        Route("/healthz", health, methods=["GET"]),
        Route("/readyz", health, methods=["GET"]),
        Route("/metrics", MetricsRoute(metrics), methods=["GET"]),
        Route("/v1/{path:path}", ForwardRoute(house.upstreams, config.server, forwarder)),
    ]
    app.router.default = _nothing_here
    return edge


class _DialectOfPath:
    """The dialect of a path: what stands below an endpoint speaks like it, all else like Chat Completions."""

    def __init__(self, dialects: dict[str, Dialect]) -> None:
        self._dialects = dialects
        self._other = ChatDialect(name="http")

    def __call__(self, path: str) -> Dialect:
        known = self._dialects.get(path)
        return known or next((d for base, d in self._dialects.items() if path.startswith(base + "/")), self._other)


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        context = context_of(scope)
        context.observer.fail("not_found")
        text = f"There is nothing at {scope['path']}. The API lives under /v1, for example /v1/chat/completions."
        await send_failure(send, context.dialect, failure(404, text, code="not_found"))
