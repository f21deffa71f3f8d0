"""One request on its way through the edge: its id, its dialect, who watches it, and the way out for its answer. Handed
the answer's messages by whatever room answers; hands them to the server with the headers that every answer carries.
"""

from __future__ import annotations

import logging
import secrets

from starlette.types import Message, Scope, Send

from ..callers.standing import Standing
from ..values.dialect import Dialect
from ..values.errors import crashed, shutting_down
from ..values.events import Failed
from ..watching.contents import printable
from ..watching.observer import Observer
from . import cors
from .cors import ListedOrigins
from .delivery import send_failure

log = logging.getLogger("groundwire")

_UPSTREAM_LIMITS = (b"x-ratelimit-", b"anthropic-ratelimit-")


class Arrival:
    """`origins` are the pages that may read answers, if any may. `hides_limits` where the upstream's limits are about
    the operator's account, which is nobody else's affair."""

    def __init__(
        self,
        scope: Scope,
        send: Send,
        request_id: str,
        dialect: Dialect,
        observer: Observer,
        origins: ListedOrigins | None,
        *,
        hides_limits: bool,
    ) -> None:
        self.scope = scope
        self.request_id = request_id
        self.dialect = dialect
        self.observer = observer
        self.origin = origins.of(scope["headers"]) if origins else b""
        self.standing: Standing | None = None  # with its limits, once it is known who asks
        self._send = send
        self._origins = origins
        self._hides_limits = hides_limits

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.observer.status = message["status"]
            message["headers"] = self._marked(message["headers"])
        if self.observer.transcript is not None:
            self.observer.transcript.send(message)
        await self._send(message)

    def _marked(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        marked = self._with_limits(headers) if self._hides_limits else headers
        marked += [(name, self.request_id.encode()) for name in self.dialect.id_headers]
        return cors.shared_with(self.origin, marked) if self._origins else marked

    def _with_limits(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Our limits in place of the upstream's."""
        kept = [header for header in headers if not header[0].startswith(_UPSTREAM_LIMITS)]
        return kept + self.standing.headers if self.standing else kept

    async def refuse(self, failed: Failed) -> None:
        self.observer.fail(failed.error.get("code"))
        await send_failure(self.send, self.dialect, failed)

    @property
    def is_answered(self) -> bool:
        return bool(self.observer.status)

    async def give_up(self) -> None:
        """Something went wrong that nobody foresaw, and is being handled."""
        log.exception("%s %s failed %s", self.observer.method, printable(self.observer.path, 200), self.request_id)
        self.observer.fail("internal_error")
        if not self.is_answered:
            await self.refuse(crashed())

    async def break_off(self) -> None:
        """The server is going down; whoever has heard nothing yet is told so."""
        if not self.is_answered:
            await self.refuse(shutting_down())
        self.observer.fail("shutting_down")


def new_request_id() -> str:
    return "req_" + secrets.token_hex(12)
