"""Which application a request gets, and what it hears where there is none: the paths and methods as a server has them,
around applications that say who they are.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from proxy.serving.app import build
from proxy.serving.endpoint import Endpoint
from proxy.serving.later import Later
from proxy.serving.routes import Routes
from proxy.values.errors import RequestError
from tests.fakes.config import config as config_of


def called(name: str) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send((name, scope["path_params"]))

    return app


@asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    yield


ROUTES = Routes(
    [
        Endpoint("/v1/chat", called("chat"), ["POST"]),
        Endpoint("/v1/things/{id}", called("thing"), ["GET", "DELETE"]),
        Endpoint("/v1/things/{id}/parts", called("parts"), ["GET"]),
        Endpoint("/search", called("by body"), ["POST"]),
        Endpoint("/search", called("by query"), ["GET"]),
        Endpoint("/page/{name:path}", called("page"), ["GET"]),
        Endpoint("/page/own", called("never"), ["GET"]),
        Endpoint("/v1/{path:path}", called("forwarded")),
    ],
    called("nothing"),
    lifespan,
)


async def answered(method: str, path: str) -> Any:
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    await ROUTES({"type": "http", "method": method, "path": path}, None, send)  # type: ignore[arg-type]
    return said[0]


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("POST", "/v1/chat", ("chat", {})),
        ("GET", "/v1/chat", ("forwarded", {"path": "chat"})),  # a later one serves the method
        ("GET", "/v1/things/a b", ("thing", {"id": "a b"})),
        ("HEAD", "/v1/things/a", ("thing", {"id": "a"})),
        ("GET", "/v1/things/a/parts", ("parts", {"id": "a"})),
        ("GET", "/v1/things/a/others", ("forwarded", {"path": "things/a/others"})),
        ("POST", "/search", ("by body", {})),
        ("HEAD", "/search", ("by query", {})),
        ("GET", "/page/", ("page", {"name": ""})),
        ("GET", "/page/own", ("page", {"name": "own"})),  # the first counts, whatever it is made of
        ("GET", "/search/", ("nothing", {})),
        ("GET", "/search\n", ("nothing", {})),
        ("GET", "/v1xchat", ("nothing", {})),
    ],
)
async def test_the_first_endpoint_that_serves_path_and_method_answers(method: str, path: str, expected: Any) -> None:
    assert await answered(method, path) == expected


async def test_where_only_the_method_is_wrong_all_that_are_served_are_named() -> None:
    with pytest.raises(RequestError) as refused:
        await answered("DELETE", "/search")
    assert refused.value.failed.status == 405
    assert refused.value.failed.headers == {"allow": "GET, HEAD, POST"}


@pytest.mark.parametrize("broken", [None, "startup", "shutdown"])
async def test_what_lives_as_long_as_the_server_is_started_and_ended(broken: str | None) -> None:
    told: list[str] = []

    @asynccontextmanager
    async def living() -> AsyncIterator[None]:
        assert broken != "startup"
        yield
        assert broken != "shutdown"
        told.append("ended")

    async def receive() -> Any:
        told.append("asked")
        return {}

    async def send(message: Any) -> None:
        told.append(message["type"].removeprefix("lifespan."))

    live = Routes([], called("nothing"), living)({"type": "lifespan"}, receive, send)
    if broken:
        with pytest.raises(AssertionError):
            await live
        before = ["asked"] if broken == "startup" else ["asked", "startup.complete", "asked"]
        assert told == [*before, f"{broken}.failed"]
    else:
        await live
        assert told == ["asked", "startup.complete", "asked", "ended", "shutdown.complete"]


def test_each_route_that_is_imported_later_is_where_it_is_said_to_be(tmp_path: Path) -> None:
    edge: Any = build(config_of(tmp_path / "config.yaml", "upstreams: [{name: demo, type: demo}]"))
    later = [endpoint.app for endpoint in edge._app._app.endpoints if isinstance(endpoint.app, Later)]
    assert later
    for route in later:
        made = getattr(import_module(f"proxy.serving.{route._module}"), route._name)
        inspect.signature(made).bind(*route._handed)
