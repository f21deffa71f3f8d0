"""`GET /v1/groundwire/usage`: what each key used, per model and day, for an admin. Handed requests that the edge let
in; hands out rows of the usage book.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

import orjson
from starlette.types import Receive, Scope, Send

from ..callers.usage import UsageBook
from ..values.errors import refuse
from .delivery import send_json
from .request_head import query_of
from .status_routes import check_admin

_KNOWN = ("key", "from", "to")


class UsageRoute:
    def __init__(self, usage: UsageBook) -> None:
        self._usage = usage

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        check_admin(scope)
        said = query_of(scope)
        for name in said:
            if name not in _KNOWN:
                text = f"There is no `{name}` here; valid are {', '.join(_KNOWN)}."
                raise refuse(400, text, param=name, code="unknown_parameter")
        rows, complete = await self._usage.read(_day(said, "from"), _day(said, "to"), said.get("key"))
        await send_json(send, 200, orjson.dumps({"object": "list", "data": rows, "complete": complete}))


def _day(said: Mapping[str, str], name: str) -> date | None:
    if not said.get(name):
        return None
    try:
        return date.fromisoformat(said[name])
    except ValueError:
        text = f"`{name}` must be a day such as 2027-12-31."
        raise refuse(400, text, param=name, code="invalid_value") from None
