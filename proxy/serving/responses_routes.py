"""What is kept of `/v1/responses`: read, listed and deleted by the caller whose it is. Handed requests that the edge
let in; hands out response objects and pages of their input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from ..context import context_of
from ..dialects.responses.state import ResponseState
from ..values.errors import refuse
from .delivery import send_json


class StoredResponses:
    """`GET` and `DELETE /v1/responses/{id}`, `GET /v1/responses/{id}/input_items`"""

    def __init__(self, state: ResponseState) -> None:
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        owner = context_of(scope).caller.owner
        response_id = scope["path_params"]["id"]
        if scope["method"] == "DELETE":
            await self._state.delete(owner, response_id)
            body: dict[str, Any] = {"id": response_id, "object": "response", "deleted": True}
        elif scope["path"].endswith("/input_items"):
            body = _page(await self._state.input_items(owner, response_id), scope["query_string"])
        else:
            body = (await self._state.find(owner, response_id)).response
        await send_json(send, 200, orjson.dumps(body))


def _page(items: Sequence[dict[str, Any]], query: bytes) -> dict[str, Any]:
    """A page of input items: the newest first, as OpenAI lists them, unless the client says otherwise."""
    said = dict(part.partition("=")[::2] for part in query.decode("latin-1").split("&"))
    listed = list(items if said.get("order") == "asc" else reversed(items))
    if after := said.get("after"):
        places = [at for at, item in enumerate(listed) if item["id"] == after]
        if not places:
            raise refuse(400, f"There is no item '{after}' to go on from.", param="after", code="invalid_value")
        listed = listed[places[0] + 1 :]
    limit = int(said["limit"][:4]) if said.get("limit", "").isdigit() else 20
    shown = listed[: max(1, min(limit, 100))]
    ends = {"first_id": shown[0]["id"] if shown else None, "last_id": shown[-1]["id"] if shown else None}
    return {"object": "list", "data": shown, **ends, "has_more": len(shown) < len(listed)}
