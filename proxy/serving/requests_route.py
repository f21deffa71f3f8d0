"""`GET /v1/groundwire/requests` and `/{id}`: the last requests and what happened in each, for an admin. Handed requests
that the edge let in; hands out rows of the last ones.
"""

from __future__ import annotations

import re

import orjson
from starlette.types import Receive, Scope, Send

from ..values.errors import refuse
from ..values.request_records import KEPT_REQUESTS
from ..watching.recent_requests import RecentRequests
from .delivery import send_json
from .request_head import query_of
from .status_routes import check_admin

_NUMBER = re.compile(r"[0-9]{1,9}")
_AWAY = " The shared store cannot be reached: what other processes served is not known here."


class RequestsRoute:
    """The list."""

    def __init__(self, requests: RecentRequests) -> None:
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        check_admin(scope)
        rows, complete = await self._requests.rows(_limit(scope))
        listed = {"object": "list", "data": rows, "contents": self._requests.contents, "complete": complete}
        await send_json(send, 200, orjson.dumps(listed))


class RequestRoute:
    """One of them."""

    def __init__(self, requests: RecentRequests) -> None:
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        check_admin(scope)
        asked = str(scope["path_params"]["id"])
        found, complete = await self._requests.find(asked)
        if found is None:
            text = (
                f"There is no request '{asked[:100]}' among the last {KEPT_REQUESTS} of seven days: no more are kept."
            )
            raise refuse(404, text if complete else text + _AWAY, code="not_found")
        await send_json(send, 200, orjson.dumps(found))


def _limit(scope: Scope) -> int:
    said = query_of(scope)
    for name in said:
        if name != "limit":
            raise refuse(400, f"There is no `{name}` here; valid is limit.", param=name, code="unknown_parameter")
    given = said.get("limit", str(KEPT_REQUESTS))
    if not _NUMBER.fullmatch(given) or not 1 <= int(given) <= KEPT_REQUESTS:
        text = f"`limit` must be a number from 1 to {KEPT_REQUESTS}."
        raise refuse(400, text, param="limit", code="invalid_value")
    return int(given)
