"""`POST /search` and `POST /extract`, as Tavily's clients send them. Handed requests that the edge let in; hands back
answers in Tavily's shape.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

import orjson
from starlette.types import Receive, Scope, Send

from tools.render import SearchAnswer

from ..context import RequestContext, context_of
from ..dialects import tavily
from ..dialects.tavily import TavilyExtract, TavilySearch
from ..house import House
from ..values.errors import RequestError
from .bodies import decoded_body
from .delivery import send_json, while_connected
from .search_engine_tools import EngineTools, nobody_served


class TavilySearchRoute:
    def __init__(self, house: House) -> None:
        self._house = house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = context_of(scope)
        today = datetime.now(UTC).date()
        asked = await decoded_body(receive, scope, self._house.config.server, tavily.decode_search, today)
        await while_connected(receive, self._serve(context, send, asked), context.observer)

    async def _serve(self, context: RequestContext, send: Send, asked: TavilySearch) -> None:
        began = time.perf_counter()
        tools = EngineTools(self._house, context, asked.search)
        found = await tools.search()
        if found.fault:
            raise nobody_served(found)
        texts = await _texts(tools, found) if asked.pages and asked.most != 0 else {}
        answer = tavily.search_answer(asked, found, texts, time.perf_counter() - began, context.id)
        await send_json(send, 200, orjson.dumps(answer))


class TavilyExtractRoute:
    def __init__(self, house: House) -> None:
        self._house = house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = context_of(scope)
        asked = await decoded_body(receive, scope, self._house.config.server, tavily.decode_extract)
        await while_connected(receive, self._serve(context, send, asked), context.observer)

    async def _serve(self, context: RequestContext, send: Send, asked: TavilyExtract) -> None:
        began = time.perf_counter()
        pages = await EngineTools(self._house, context).pages(asked.urls, asked.query, asked.length)
        answer = tavily.extract_answer(pages, time.perf_counter() - began, context.id)
        await send_json(send, 200, orjson.dumps(answer))


async def _texts(tools: EngineTools, found: SearchAnswer) -> dict[str, str]:
    """What the pages say, by their address. Where none may be read the search is no worse for it."""
    try:
        read = await tools.pages([source.url for source in found.sources])
    except RequestError:
        return {}
    return {page.url: page.text for page in read if not page.error}
