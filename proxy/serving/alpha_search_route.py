"""`POST /v1/alpha/search`: the commands of Codex's own search client, run by our two tools. Handed a request that the
edge let in; hands back one text for the client's model. A command that fails says so in the text, because Codex ends
its turn at any HTTP error; only a body that is none is refused.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import orjson
from starlette.types import Receive, Scope, Send

from providers.errors import ProviderError
from tools import prompts
from tools.base import OPEN_PAGE, WEB_SEARCH, BadArguments, ToolCall
from tools.clean import one_line
from tools.page_reader import aside
from tools.pages import SHORTEST
from tools.provenance import Refused
from tools.render import escape, sentence

from ..context import RequestContext, context_of
from ..dialects import alpha_search
from ..dialects.alpha_search import AlphaSearch, Click, Find, OpenPage, SearchFor
from ..house import House
from ..values.errors import RequestError
from ..values.language import accepted_language
from .bodies import decoded_body
from .delivery import send_json, while_connected
from .telling import RunningTool
from .tool_routes import check_permission, in_time, session_for

_FRAME = 500  # characters around the text of a page


class AlphaSearchRoute:
    def __init__(self, house: House) -> None:
        self._house = house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = context_of(scope)
        asked = await decoded_body(receive, scope, self._house.config.server, alpha_search.decode)
        _check_any_permission(self._house, context)
        await while_connected(receive, self._serve(context, send, asked), context.observer)

    async def _serve(self, context: RequestContext, send: Send, asked: AlphaSearch) -> None:
        run = _Run(self._house, context, asked)
        await send_json(send, 200, orjson.dumps({"output": await in_time(context, run.output())}))


def _check_any_permission(house: House, context: RequestContext) -> None:
    """Who may only read is not refused: of the searches its model reads that nobody could serve them."""
    try:
        check_permission(house.search, context, "search")
    except RequestError:
        if house.read is None:
            raise
        check_permission(house.read, context, "search")


class _Run:
    """One bundle of commands: all run together, and their texts stand in the order of the commands."""

    def __init__(self, house: House, context: RequestContext, asked: AlphaSearch) -> None:
        self._context = context
        self._asked = asked
        self._session = session_for(
            house,
            context,
            country=asked.country,
            language=accepted_language(context.headers.get("accept-language", "")),
            limit=asked.limit,
            allowed_domains=asked.allowed_domains,
            blocked_domains=asked.blocked_domains,
            cite=False,  # its client has a rule of its own
        )
        self._longest = house.toolbox.policy.max_page_length
        if asked.most is not None:  # an even share, so that a page ends where its text says it does
            self._longest = min(self._longest, max(asked.most // len(asked.commands or (1,)) - _FRAME, SHORTEST))

    async def output(self) -> str:
        searches = [command for command in self._asked.commands if isinstance(command, SearchFor)]
        others = [command for command in self._asked.commands if not isinstance(command, SearchFor)]
        async with asyncio.TaskGroup() as group:
            found = group.create_task(self._search(searches))
            read = [group.create_task(self._read(command)) for command in others]
        named = self._asked.unknown[: alpha_search.MOST_NAMED]
        unknown = [prompts.NO_SUCH_COMMAND.format(name=escape(one_line(name, 100))) for name in named]
        texts = [*found.result(), *(task.result() for task in read), *unknown]
        return alpha_search.output(texts or [prompts.NO_COMMAND], self._asked.most, self._session.fence)

    async def _search(self, searches: list[SearchFor]) -> list[str]:
        today = datetime.now(UTC).date()
        given = [search.arguments(today) for search in searches]
        calls = [ToolCall(str(n), WEB_SEARCH, orjson.dumps(one).decode()) for n, one in enumerate(given)]
        running = [RunningTool(self._context, WEB_SEARCH, one) for one in given]
        results = await self._session.run(calls)
        for result, tool in zip(results, running, strict=True):
            tool.ended(ok=result.ok)
        texts = [result.text for result in results]
        if any(result.sources for result in results):
            texts[-1] += "\n" + prompts.REF_OF_RESULT
        return texts

    async def _read(self, command: OpenPage | Click | Find) -> str:
        running, ok = RunningTool(self._context, OPEN_PAGE, {"url": command.ref_id}), False
        try:
            text = await self._text_of(command)
            ok = True
        except (BadArguments, Refused, ProviderError) as error:
            text = prompts.NOT_OPENED.format(url=escape(one_line(command.ref_id, 500)), reason=sentence(error))
        running.ended(ok=ok)
        return text

    async def _text_of(self, command: OpenPage | Click | Find) -> str:
        if not self._asked.live:
            raise BadArguments(prompts.NOT_LIVE)
        if not {".", ":"} & set(command.ref_id):
            raise BadArguments(prompts.REF_IS_URL)
        page, fence = await self._session.page_once(command.ref_id), self._session.fence
        if isinstance(command, Find):
            return await aside(len(page.text), alpha_search.found_text, page, command.pattern, fence)
        if isinstance(command, Click):
            page = await self._session.page_once(alpha_search.link_of(page, command.id))
        lineno = command.lineno if isinstance(command, OpenPage) else None
        return await aside(len(page.text), alpha_search.page_text, page, lineno or 1, self._longest, fence)
