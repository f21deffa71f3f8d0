"""`GET /search?q=…&format=json`, and the same at the root, as SearXNG's clients ask. Handed what the edge let in,
which keeps web pages out; hands back answers in SearXNG's shape.
"""

from __future__ import annotations

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from ..context import RequestContext, context_of
from ..dialects import searxng
from ..dialects.searxng import SearxngSearch
from ..house import House
from ..values.errors import refuse
from .delivery import send_json, while_connected
from .request_head import query_of
from .search_engine_clients import searches_by_get
from .search_engine_tools import EngineTools


class SearxngRoute:
    """`other` answers what is no search."""

    def __init__(self, house: House, other: ASGIApp | None = None) -> None:
        self._house = house
        self._other = other

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._other is not None and (scope["method"] != "GET" or not searches_by_get(scope)):
            await self._other(scope, receive, send)
            return
        if scope["method"] != "GET":  # HEAD: nobody searches to see a status
            raise refuse(405, "Search with GET, as SearXNG does, or with POST, as Tavily does.", code="wrong_method")
        context = context_of(scope)
        asked = searxng.decode_search(query_of(scope))
        await while_connected(receive, self._serve(context, send, asked), context.observer)

    async def _serve(self, context: RequestContext, send: Send, asked: SearxngSearch) -> None:
        tools = EngineTools(self._house, context, asked.search)
        tools.check_search()
        found = searxng.nothing_found(asked) if asked.beyond else await tools.search()
        headers = {"cache-control": "no-store"}  # a GET is remembered otherwise, also for who has no key
        await send_json(send, 200, orjson.dumps(searxng.search_answer(asked, found)), headers)
