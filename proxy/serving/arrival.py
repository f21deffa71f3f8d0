"""One request on its way through the edge: its id, its dialect, who watches it, and the way out for its answer. Handed
the answer's messages by whatever room answers; hands them to the server with the headers that every answer carries.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from starlette.types import Message, Scope, Send

from providers.random_ids import random_id

from ..callers.standing import Standing
from ..values.dialect import Dialect
from ..values.errors import crashed, shutting_down
from ..values.events import Failed
from ..watching.contents import printable
from ..watching.observer import Observer
from . import cors
from .delivery import send_failure
from .pieces import Write, message_writer, writer_behind
from .request_head import RequestHead

log = logging.getLogger("groundwire")

# How the headers begin that tell of an upstream's limits, OpenAI's and Anthropic's.
_OPENAI, _ANTHROPIC = b"x-ratelimit-", b"anthropic-ratelimit-"


class Arrival:
    """`shared`: some web pages may read answers. `hides_limits` where the upstream's limits are about the operator's
    account, which is nobody else's affair."""

    __slots__ = (
        "_hides_limits",
        "_send",
        "_shared",
        "dialect",
        "head",
        "observer",
        "request_id",
        "scope",
        "standing",
    )

    def __init__(
        self,
        scope: Scope,
        head: RequestHead,
        dialect: Dialect,
        send: Send,
        request_id: str,
        observer: Observer,
        hides_limits: bool,
        shared: bool,
    ) -> None:
        self.scope = scope
        self.head = head
        self.dialect = dialect
        self.request_id = request_id
        self.observer = observer
        self.standing: Standing | None = None  # with its limits, once it is known who asks
        self._send = send
        self._hides_limits = hides_limits
        self._shared = shared

    def send(self, message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            self.observer.status = message["status"]
            message["headers"] = self._marked(message["headers"])
        if self.observer.transcript is not None:
            self.observer.transcript.send(message)
        return self._send(message)

    def piece_writer(self) -> Write:
        """A transcript reads messages: where one is kept, each piece is one."""
        return writer_behind(self._send) if self.observer.transcript is None else message_writer(self.send)

    def _marked(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        if self._hides_limits:  # ours in place of the upstream's
            headers = [header for header in headers if header[0][:12] != _OPENAI and header[0][:20] != _ANTHROPIC]
            if self.standing:
                headers += self.standing.headers
        request_id, marked = self.request_id.encode(), list(headers)
        for name in self.dialect.id_headers:
            marked.append((name, request_id))
        return cors.shared_with(self.head.origin, marked) if self._shared else marked

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
    return "req_" + random_id()
