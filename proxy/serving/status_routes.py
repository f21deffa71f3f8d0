"""What operators and probes ask: `/healthz`, `/readyz`, `/metrics`, and which models there are. Handed requests that
the edge let in; hands out small bodies, and the metrics to an admin alone.
"""

from __future__ import annotations

from collections.abc import Callable

import orjson
from starlette.types import Receive, Scope, Send

from ..context import context_of
from ..upstreams.directory import UpstreamDirectory
from ..values.errors import refuse
from ..watching.metrics import CONTENT_TYPE, Metrics
from .delivery import send_body, send_json


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
        if not context_of(scope).caller.admin:
            text = "This needs a key with `admin: true` in `server.keys`."
            raise refuse(403, text, kind="permission_error", code="admin_only")
        await send_body(send, 200, self._metrics.exposition(), {"content-type": CONTENT_TYPE})


class ModelsRoute:
    """`GET /v1/models` and `GET /v1/models/{id}`"""

    def __init__(self, upstreams: UpstreamDirectory) -> None:
        self._upstreams = upstreams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        models = await self._upstreams.models()
        wanted = scope["path_params"].get("id")
        if wanted is None:
            await send_json(send, 200, orjson.dumps({"object": "list", "data": models}))
            return
        model = next((model for model in models if model["id"] == wanted), None)
        if model is None:
            text = f"The model '{wanted}' does not exist."
            raise refuse(404, text, param="model", code="model_not_found")
        await send_json(send, 200, orjson.dumps(model))
