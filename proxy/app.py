"""The web application: routes on FastAPI, behind the edge. Handed a config, hands the server an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from .config import Config
from .delivery import send_failure
from .dialects import chat
from .edge import Edge
from .errors import RequestError, failure
from .events import Failed
from .house import House
from .routes import ChatCompletions, Forward, Health, Models


def build(config: Config) -> Edge:
    """The application as a server runs it. Its parts are closed when the server stops."""
    house = House(config)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await house.aclose()

    app = FastAPI(title="Groundwire", openapi_url=None, docs_url=None, redoc_url=None, lifespan=lifespan)
    edge = Edge(app, config.server)
    models, health = Models(house), Health(edge)
    # Plain Starlette routes on ASGI applications: FastAPI's own machinery would cost twice as much per request.
    app.router.routes += [
        Route("/v1/chat/completions", ChatCompletions(house, edge), methods=["POST"]),
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/models/{id:path}", models, methods=["GET"]),
        Route("/healthz", health, methods=["GET"]),
        Route("/readyz", health, methods=["GET"]),
        Route("/v1/{path:path}", Forward(house)),
    ]
    app.router.default = _nothing_here
    app.add_exception_handler(RequestError, _refused)
    app.add_exception_handler(Exception, _crashed)
    return edge


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return _response(error.failed)


async def _crashed(request: Request, error: Exception) -> Response:
    """A fault of ours. The server logs it with its trace; the client learns no more than that."""
    return _response(failure(500, "Something went wrong inside Groundwire; its log says what.", code="internal_error"))


def _response(failed: Failed) -> Response:
    return Response(chat.error_body(failed), failed.status, dict(failed.headers), "application/json")


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        text = f"There is nothing at {scope['path']}. The API lives under /v1, for example /v1/chat/completions."
        await send_failure(send, failure(404, text, code="not_found"))
