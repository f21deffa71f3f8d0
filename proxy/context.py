"""What every room may know of the request that it works on: made once, at the edge, and frozen. It travels in the ASGI
scope under one name, and from there by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import field

from starlette.types import Scope

from providers.records import dataclass

from .callers.caller import NOBODY, Caller
from .values.dialect import Dialect
from .watching.observer import Observer

_NAME = "groundwire.context"


@dataclass(frozen=True, slots=True, eq=False)
class RequestContext:
    id: str
    dialect: Dialect
    deadline: float  # in the event loop's time: when the answer must be over
    observer: Observer
    caller: Caller = NOBODY
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # the client's, names in lower case
    searches_left: int | None = None  # how many the caller may still make; None: as many as it likes
    loop: asyncio.AbstractEventLoop | None = None  # on which it is served, where somebody said

    @property
    def running_loop(self) -> asyncio.AbstractEventLoop:
        """To ask asyncio for it is a system call each time."""
        return self.loop or asyncio.get_running_loop()


def attach(scope: Scope, context: RequestContext) -> None:
    scope[_NAME] = context


def context_of(scope: Scope) -> RequestContext:
    context: RequestContext = scope[_NAME]
    return context
