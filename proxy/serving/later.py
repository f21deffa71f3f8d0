"""A route that few servers are asked for. Handed where it is written and what it is made of; imports and makes it with
the first request to it, and hands on every request. A server that nobody asks for it starts sooner and stays smaller.
"""

from __future__ import annotations

import asyncio
from importlib import import_module

from starlette.types import ASGIApp, Receive, Scope, Send


class Later:
    """`place` is the module beside this one and the class in it, `handed` what that class takes."""

    def __init__(self, place: str, *handed: object) -> None:
        self._module, _, self._name = place.partition(":")
        self._handed = handed
        self._route: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._route is None:
            # In a thread, for who is answered meanwhile.
            module = await asyncio.to_thread(import_module, f".{self._module}", __package__)
            self._route = self._route or getattr(module, self._name)(*self._handed)
        await self._route(scope, receive, send)
