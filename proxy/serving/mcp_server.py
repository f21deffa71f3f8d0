"""Our two tools as an MCP server, on the official SDK. Handed requests that the edge let in, one at a time: nothing is
kept between two of them. Hands back what a model reads, and the same as values with their sources.

Loaded when the first request comes, because the SDK is large, and an extra.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from starlette.types import Receive, Scope, Send

from tools import prompts
from tools.base import OPEN_PAGE, WEB_SEARCH, BadArguments, validate
from tools.clean import one_line
from tools.ledger import Source
from tools.session import ToolSession, not_run

from ..context import RequestContext, context_of
from ..house import House
from ..values.errors import RequestError, crashed
from ..values.language import accepted_language
from .telling import RunningTool
from .tool_routes import check_permission, in_time, session_for

log = logging.getLogger("groundwire")

_TITLES = {WEB_SEARCH: "Web search", OPEN_PAGE: "Open page"}


class McpServer:
    def __init__(self, house: House) -> None:
        self._house = house
        server = Server("groundwire", on_list_tools=self._list, on_call_tool=self._call)
        self._sessions = StreamableHTTPSessionManager(
            server,
            json_response=True,
            stateless=True,
            # Hosts, origins, keys and sizes are the edge's affair, the same as for every other path.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=house.config.server.max_body,
        )
        self._closing = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        started = asyncio.Event()
        self._running = asyncio.create_task(self._run(started))
        await started.wait()

    async def _run(self, started: asyncio.Event) -> None:
        """What the SDK opens must be closed by the same task."""
        async with self._sessions.run():
            started.set()
            await self._closing.wait()

    async def aclose(self) -> None:
        self._closing.set()
        if self._running is not None:
            await self._running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._sessions.handle_request(scope, receive, send)

    async def _list(self, asked: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        """What this caller may use, without the rule for citing: nobody here turns markers into links."""
        caller = context_of(asked.request.scope).caller
        if caller.policy.search.mode == "off":
            return ListToolsResult(tools=[])
        specs = self._house.toolbox.offered(live=True, only=caller.policy.search.permission.providers, cite=False)
        reads = ToolAnnotations(read_only_hint=True, open_world_hint=True)
        return ListToolsResult(
            tools=[
                Tool(
                    name=spec.tool,
                    title=_TITLES.get(spec.tool),
                    description=spec.description,
                    input_schema=dict(spec.parameters),
                    annotations=reads,
                )
                for spec in specs
            ]
        )

    async def _call(self, asked: Any, params: CallToolRequestParams) -> CallToolResult:
        context = context_of(asked.request.scope)
        arguments = params.arguments or {}
        running = RunningTool(context, one_line(params.name, 100), arguments)
        try:
            result = await in_time(context, self._run_tool(context, params.name, arguments))
        except RequestError as error:  # the caller may not, or it took too long: its model reads why
            return _failed(str(error))
        except Exception:  # the SDK would hand on its text, which may hold anything
            log.exception("%s of MCP failed %s", one_line(params.name, 100), context.id)
            context.observer.fail("internal_error")
            raise MCPError(INTERNAL_ERROR, crashed().error["message"]) from None
        running.ended(ok=not result.is_error)
        return result

    async def _run_tool(self, context: RequestContext, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
        if name == WEB_SEARCH:
            check_permission(self._house.search, context, "search")
        elif name == OPEN_PAGE:
            check_permission(self._house.read, context, "read pages")
        else:
            names = ", ".join(self._house.toolbox.tools) or prompts.NO_NAMES
            return _failed(prompts.NO_SUCH_TOOL.format(name=one_line(name, 100), names=names))
        tool = self._house.toolbox.tools[name]
        try:
            validate(tool.arguments, arguments)
        except BadArguments as error:
            return _failed(not_run(tool, error))
        language = accepted_language(context.headers.get("accept-language", ""))
        session = session_for(self._house, context, language=language, limit=arguments.get("limit"), cite=False)
        return await (_searched if name == WEB_SEARCH else _opened)(session, arguments)


async def _searched(session: ToolSession, arguments: Mapping[str, Any]) -> CallToolResult:
    answer = await session.search_once(arguments)
    return _result(session.text(answer), answer.sources, failed=bool(answer.fault))


async def _opened(session: ToolSession, arguments: Mapping[str, Any]) -> CallToolResult:
    parts = await session.open_once(arguments)
    sources = [part.source for part in parts if part.source]
    return _result(session.text(parts), sources, failed=not sources)


def _result(text: str, sources: Iterable[Source], *, failed: bool) -> CallToolResult:
    """Some hosts show their model the text, some the structure: what others wrote is fenced in both."""
    found = {"text": text, "sources": [_source(source) for source in sources]}
    return CallToolResult(content=[TextContent(text=text)], structured_content=found, is_error=failed)


def _source(source: Source) -> dict[str, Any]:
    return {"n": source.n, "title": source.title, "url": source.url, "date": source.date}


def _failed(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], is_error=True)
