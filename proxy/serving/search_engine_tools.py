"""Our two tools for one request of a client that takes us for a search engine. Handed what the engine's dialect
understood; hands back what was found and what pages say, behind the same keys, limits and policies as `/v1/search`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from providers.errors import ProviderError
from providers.text.cuts import cut
from tools.base import OPEN_PAGE, WEB_SEARCH, BadArguments
from tools.provenance import Refused
from tools.render import SearchAnswer, sentence
from tools.web_search import SearchArguments

from ..context import RequestContext
from ..dialects.search_engines import EngineSearch, ReadText
from ..house import House
from ..values.errors import RequestError, refuse
from ..values.language import accepted_language
from .telling import RunningTool
from .tool_routes import check_arguments, check_permission, in_time, session_for


class EngineTools:
    """`asked` is the search, where there is one."""

    def __init__(self, house: House, context: RequestContext, asked: EngineSearch | None = None) -> None:
        self._house = house
        self._context = context
        self._asked = asked or EngineSearch({})
        language = self._asked.language or accepted_language(context.headers.get("accept-language", ""))
        self._session = session_for(
            house, context, country=self._asked.country, language=language, limit=self._asked.limit, cite=False
        )
        self._longest = house.toolbox.policy.max_characters

    def check_search(self) -> None:
        """Refuses what may not be searched for, whether anybody is asked or not."""
        check_permission(self._house.search, self._context, "search")
        check_arguments(SearchArguments, self._asked.arguments, self._asked.names)

    async def search(self) -> SearchAnswer:
        """What was found, nothing or something. Where nobody could serve it, `fault` is "providers"."""
        self.check_search()
        arguments = self._asked.arguments
        running = RunningTool(self._context, WEB_SEARCH, arguments)
        answer = await in_time(self._context, self._session.search_once(arguments))
        running.ended(ok=answer.ok)
        if answer.fault == "arguments":
            raise refuse(400, answer.message, code="invalid_value")
        return answer

    async def pages(self, urls: Sequence[str], query: str = "", length: int | None = None) -> list[ReadText]:
        """All of them together, in their order. With a query the passages that speak of it, no longer than `length`."""
        check_permission(self._house.read, self._context, "read pages")
        return await in_time(self._context, self._pages(urls, query, length))

    async def _pages(self, urls: Sequence[str], query: str, length: int | None) -> list[ReadText]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._page(url, query, length)) for url in urls]
        return [task.result() for task in tasks]

    async def _page(self, url: str, query: str, length: int | None) -> ReadText:
        running = RunningTool(self._context, OPEN_PAGE, {"url": url})
        try:
            page = await self._session.page_once(url)
            text = page.text[: cut(page.text, 0, self._longest)]
            if query and length is not None:
                part, _ = await self._session.reader.part(page.address.url, 0, query, length)
                text = part.content
            read = ReadText(url, page.title, text)
        except (BadArguments, Refused, ProviderError) as error:
            read = ReadText(url, error=sentence(error))
        running.ended(ok=not read.error)
        return read


def nobody_served(answer: SearchAnswer) -> RequestError:
    """For clients to whom an empty list would say that there is nothing to be found."""
    return refuse(502, answer.message, code="providers_failed")
