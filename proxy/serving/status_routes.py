"""What operators and probes ask: `/healthz`, `/readyz`, `/metrics`, and which models there are. Handed requests that
the edge let in; hands out small bodies, and the metrics to an admin alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from ..answering.preparation import ONLINE, Preparation
from ..callers.caller import Caller
from ..callers.permission import may_use
from ..context import context_of
from ..dialects.messages.errors import error_body
from ..upstreams.directory import UpstreamDirectory
from ..values.errors import RequestError, failure, refuse
from ..watching.metrics import CONTENT_TYPE, Metrics
from .delivery import send_body, send_json

_VERSION = "anthropic-version"  # a header that only clients of Anthropic's API send


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


class ModelsRoute:
    """`GET /v1/models` and `GET /v1/models/{id}`: those that the caller may use. With `list_online` each stands there
    once more as one that searches, for clients whose users can choose nothing but a model."""

    def __init__(self, upstreams: UpstreamDirectory, preparation: Preparation, *, list_online: bool) -> None:
        self._upstreams = upstreams
        self._preparation = preparation
        self._list_online = list_online

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = context_of(scope).caller
        models = self._shown(await self._upstreams.models(), caller)
        wanted = scope["path_params"].get("id")
        anthropic = _VERSION in context_of(scope).headers
        if wanted is None:
            listed = _anthropic_list(models) if anthropic else {"object": "list", "data": models}
            await send_json(send, 200, orjson.dumps(listed))
            return
        model = next((model for model in models if model["id"] == wanted), None)
        if model is None:
            failed = failure(404, f"The model '{wanted}' does not exist.", param="model", code="model_not_found")
            if not anthropic:
                raise RequestError(failed)
            context_of(scope).observer.fail("model_not_found")
            await send_json(send, 404, error_body(failed))
            return
        await send_json(send, 200, orjson.dumps(_anthropic_model(model) if anthropic else model))

    def _shown(self, models: Sequence[dict[str, Any]], caller: Caller) -> list[dict[str, Any]]:
        """A name that an upstream lists itself is its own; with the suffix that is ours a model is allowed if it is
        without."""
        listed = {model["id"] for model in models}
        shown: list[dict[str, Any]] = []
        for model in models:
            name, online = model["id"], model["id"] + ONLINE
            allowed = may_use(caller, name)
            if allowed:
                shown.append(model)
            ours = self._list_online and name and online not in listed and not name.endswith(ONLINE)
            if ours and (allowed or may_use(caller, online)) and self._preparation.may_search(name, caller):
                shown.append({**model, "id": online})
        return shown


def _anthropic_list(models: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All of them on one page."""
    data = [_anthropic_model(model) for model in models]
    ends = {"first_id": data[0]["id"] if data else None, "last_id": data[-1]["id"] if data else None}
    return {"data": data, "has_more": False, **ends}


def _anthropic_model(model: dict[str, Any]) -> dict[str, Any]:
    made, named = model.get("created"), model.get("name")
    seconds = made if isinstance(made, int | float) and 0 <= made < 4e9 else 0
    created = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    shown = named if isinstance(named, str) and named else model["id"]
    return {"type": "model", "id": model["id"], "display_name": shown, "created_at": created}
