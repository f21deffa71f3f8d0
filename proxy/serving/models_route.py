"""`GET /v1/models` and `GET /v1/models/{id}`: which models there are, as OpenAI's clients read it, and as Anthropic's
do where they ask. Handed requests that the edge let in; hands out those that the caller may use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from ..answering.preparation import ONLINE, Preparation
from ..callers.caller import Caller
from ..callers.permission import may_use
from ..context import context_of
from ..upstreams.directory import UpstreamDirectory
from ..values.errors import quoted, refuse
from .delivery import send_json
from .request_head import query_of

VERSION = "anthropic-version"  # a header that only clients of Anthropic's API send
_LARGEST_PAGE = 1000


class ModelsRoute:
    """With `list_online` each model stands there once more as one that searches, for clients whose users can choose
    nothing but a model."""

    def __init__(self, upstreams: UpstreamDirectory, preparation: Preparation, *, list_online: bool) -> None:
        self._upstreams = upstreams
        self._preparation = preparation
        self._list_online = list_online

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = context_of(scope)
        models = self._shown(await self._upstreams.models(), context.caller)
        wanted = scope["path_params"].get("id")
        anthropic = VERSION in context.headers
        if wanted is None:
            query = {name: value for name, value in query_of(scope).items() if value}
            listed = _anthropic_page(models, query) if anthropic else {"object": "list", "data": models}
            await send_json(send, 200, orjson.dumps(listed))
            return
        model = next((model for model in models if model["id"] == wanted), None)
        if model is None:
            text = f"The model {quoted(wanted)} does not exist."
            raise refuse(404, text, param="model", code="model_not_found")
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


def _anthropic_page(models: Sequence[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """What stands behind `after_id`, or before `before_id`, at most `limit` of it; all of them for who asks for no
    page. Behind a model that is not there stands nothing, so that nobody turns pages for ever."""
    ids = [model["id"] for model in models]
    size = _page_size(query.get("limit", ""))
    backwards = "before_id" in query and "after_id" not in query
    start, end = 0, len(ids)
    if backwards:
        end = ids.index(query["before_id"]) if query["before_id"] in ids else 0
        start = max(end - size, 0)
    elif "after_id" in query:
        start = ids.index(query["after_id"]) + 1 if query["after_id"] in ids else end
    page = [_anthropic_model(model) for model in models[start : min(end, start + size)]]
    more = start > 0 if backwards else start + size < end
    ends = {"first_id": page[0]["id"] if page else None, "last_id": page[-1]["id"] if page else None}
    return {"data": page, "has_more": more, **ends}


def _page_size(said: str) -> int:
    """What is no size is none: then there is one page."""
    size = int(said) if said.isascii() and said.isdigit() and len(said) <= len(str(_LARGEST_PAGE)) else 0
    return size if 0 < size <= _LARGEST_PAGE else 1 << 30


def _anthropic_model(model: dict[str, Any]) -> dict[str, Any]:
    made, named = model.get("created"), model.get("name")
    seconds = made if isinstance(made, int | float) and 0 <= made < 4e9 else 0
    created = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    shown = named if isinstance(named, str) and named else model["id"]
    return {"type": "model", "id": model["id"], "display_name": shown, "created_at": created}
