"""The web application: routes on FastAPI, behind the edge. Handed a config, hands the server an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ..config.settings import Config
from ..dialects.responses.state import ResponseState
from ..house import House
from ..values.errors import failure
from .delivery import Delivery, send_failure
from .edge import Edge
from .forwarding import Forward, Forwarder
from .responses_routes import Responses, StoredResponses
from .routes import ChatCompletions, Health, Models
from .tool_routes import Open, Search


def build(config: Config) -> Edge:
    """The application as a server runs it. Its parts are closed when the server stops."""
    house = House(config)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await house.store.secret()  # says in the log, once, if a shared store is not there
        yield
        await house.aclose()

    app = FastAPI(title="Groundwire", openapi_url=None, docs_url=None, redoc_url=None, lifespan=lifespan)
    # Past FastAPI's own error pages and exit stacks: the edge answers for what goes wrong, and costs a tenth of them.
    edge = Edge(app.router, config.server)
    forwarder = Forwarder(edge, config.server.request_timeout)
    delivery = Delivery(config.server.request_timeout, lambda: edge.stopping)
    models, health = Models(house), Health(edge)
    state = ResponseState(house.store)
    kept = StoredResponses(house, state)
    # Plain Starlette routes on ASGI applications: FastAPI's own machinery would cost twice as much per request.
    app.router.routes += [
        Route("/v1/chat/completions", ChatCompletions(house, delivery, forwarder), methods=["POST"]),
        Route("/v1/responses", Responses(house, delivery, state), methods=["POST"]),
        Route("/v1/responses/{id}", kept, methods=["GET", "DELETE"]),
        Route("/v1/responses/{id}/input_items", kept, methods=["GET"]),
        Route("/v1/search", Search(house), methods=["POST"]),
        Route("/v1/open", Open(house), methods=["POST"]),
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/models/{id:path}", models, methods=["GET"]),
        Route("/healthz", health, methods=["GET"]),
        Route("/readyz", health, methods=["GET"]),
        Route("/v1/{path:path}", Forward(house, forwarder)),
    ]
    app.router.default = _nothing_here
    return edge


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        text = f"There is nothing at {scope['path']}. The API lives under /v1, for example /v1/chat/completions."
        await send_failure(send, failure(404, text, code="not_found"))
