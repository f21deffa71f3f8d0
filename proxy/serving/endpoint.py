"""A path and the application behind it. Handed a request to that path; hands it on, or says which methods there are, as
a refusal that is dressed like every other: Starlette's own is a bare text, which no client of ours can read.
"""

from __future__ import annotations

from dataclasses import replace

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ..values.errors import RequestError, failure


class Endpoint(Route):
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.methods and scope["method"] not in self.methods:
            raise _wrong_method(scope["method"], self._methods_of_path(scope))
        await self.app(scope, receive, send)

    def _methods_of_path(self, scope: Scope) -> list[str]:
        """Several may share a path, each with methods of its own."""
        here = [route for route in scope["router"].routes if isinstance(route, Endpoint) and route.path == self.path]
        return sorted({method for route in here for method in route.methods or ()})


def _wrong_method(given: str, served: list[str]) -> RequestError:
    named = ", ".join(served)
    failed = failure(405, f"{given[:20]} is not served here: use {named}.", code="wrong_method")
    return RequestError(replace(failed, headers={"allow": named}))
