"""`POST /compat/openwebui/search` and `/load`: what Open WebUI asks an external engine and loader.
Handed requests that the edge let in; hands back the lists that it reads.
"""

from __future__ import annotations

import orjson
from starlette.types import Receive, Scope, Send

from tools.clean import one_line

from ..context import RequestContext, context_of
from ..dialects import openwebui
from ..dialects.search_engines import EngineSearch
from ..house import House
from ..values.errors import refuse
from .bodies import decoded_body
from .delivery import send_json, while_connected
from .search_engine_tools import EngineTools, nobody_served


class OpenWebuiSearchRoute:
    def __init__(self, house: House) -> None:
        self._house = house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = context_of(scope)
        asked = await decoded_body(receive, scope, self._house.config.server, openwebui.decode_search)
        await while_connected(receive, self._serve(context, send, asked), context.observer)

    async def _serve(self, context: RequestContext, send: Send, asked: EngineSearch) -> None:
        found = await EngineTools(self._house, context, asked).search()
        if found.fault:
            raise nobody_served(found)
        await send_json(send, 200, orjson.dumps(openwebui.search_answer(found)))


class OpenWebuiLoadRoute:
    def __init__(self, house: House) -> None:
        self._house = house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = context_of(scope)
        urls = await decoded_body(receive, scope, self._house.config.server, openwebui.decode_load)
        await while_connected(receive, self._serve(context, send, urls), context.observer)

    async def _serve(self, context: RequestContext, send: Send, urls: list[str]) -> None:
        pages = await EngineTools(self._house, context).pages(urls)
        if all(page.error for page in pages):
            reasons = " ".join(f"{page.url[:200]}: {page.error}" for page in pages)
            raise refuse(502, one_line(reasons, 2000), code="pages_failed")
        await send_json(send, 200, orjson.dumps(openwebui.load_answer(pages)))
