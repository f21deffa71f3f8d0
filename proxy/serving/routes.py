"""All endpoints of the server, in pure ASGI. Handed requests that may enter; hands each to the application behind its
path, or says which methods there are, as a refusal that is dressed like every other. Starts and ends what lives as
long as the server.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from starlette.types import ASGIApp, Receive, Scope, Send

from ..values.errors import RequestError, failure
from .endpoint import Endpoint

Lifespan = Callable[[], AbstractAsyncContextManager[None]]


class Routes:
    """Of `endpoints` the first counts that serves a path and a method; `other` is the application for all that none of
    them serves. `lifespan` is open as long as the server runs."""

    def __init__(self, endpoints: Sequence[Endpoint], other: ASGIApp, lifespan: Lifespan) -> None:
        self.endpoints = endpoints
        self._other = other
        self._lifespan = lifespan
        # One look is enough for nearly all that comes: paths that hold no names.
        asked = {(method, endpoint.path) for endpoint in endpoints for method in endpoint.methods}
        found = {each: self._found(*each) for each in asked}
        self._known = {each: app for each, (app, named) in found.items() if not named}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "lifespan":
            return self._live(receive, send)
        method, path = scope["method"], scope["path"]
        app = self._known.get((method, path))
        scope["path_params"] = {}
        if app is None:
            app, scope["path_params"] = self._found(method, path)
        return app(scope, receive, send)

    def _found(self, method: str, path: str) -> tuple[ASGIApp, dict[str, str]]:
        elsewise: Endpoint | None = None  # the first that serves this path, but not this method
        for endpoint in self.endpoints:
            named = endpoint.named_in(path)
            if named is None:
                continue
            if endpoint.serves(method):
                return endpoint.app, named
            elsewise = elsewise or endpoint
        if elsewise is not None:
            raise _wrong_method(method, [each for each in self.endpoints if each.path == elsewise.path])
        return self._other, {}

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        started = False
        try:
            async with self._lifespan():
                await send({"type": "lifespan.startup.complete"})
                started = True
                await receive()
        except BaseException:
            what = "shutdown" if started else "startup"
            await send({"type": f"lifespan.{what}.failed", "message": traceback.format_exc()})
            raise
        await send({"type": "lifespan.shutdown.complete"})


def _wrong_method(given: str, here: list[Endpoint]) -> RequestError:
    """Several may share a path, each with methods of its own."""
    named = ", ".join(sorted({method for endpoint in here for method in endpoint.methods}))
    failed = failure(405, f"{given[:20]} is not served here: use {named}.", code="wrong_method")
    return RequestError(replace(failed, headers={"allow": named}))
