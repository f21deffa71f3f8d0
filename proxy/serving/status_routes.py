"""What operators and probes ask: `/healthz`, `/readyz` and `/metrics`. Handed requests that the edge let in; hands out
small bodies, and the metrics to an admin alone.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import Receive, Scope, Send

from ..context import context_of
from ..values.errors import refuse
from ..watching.metrics import CONTENT_TYPE, Metrics
from .delivery import send_body, send_json


def check_admin(scope: Scope) -> None:
    if not context_of(scope).caller.admin:
        text = "This needs a key with `admin: true` in `server.keys`."
        raise refuse(403, text, kind="permission_error", code="admin_only")


class HealthRoute:
    """`GET /healthz`: alive. `GET /readyz`: ready to take work."""

    def __init__(self, draining: Callable[[], bool]) -> None:
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/readyz" and self._draining():
            await send_json(send, 503, b'{"status":"draining"}')
        else:
            await send_json(send, 200, b'{"status":"ok"}')


class MetricsRoute:
    """`GET /metrics`"""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        check_admin(scope)
        await send_body(send, 200, self._metrics.exposition(), {"content-type": CONTENT_TYPE})
