"""The tools of one request. Handed the model's calls, hands back one result per call, in their order; what ran before
is answered from memory. What all tools share is here: sources, addresses, domains, budgets. Provider errors end as
text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from providers.base import SearchQuery
from providers.chain import Found
from providers.errors import ProviderError
from providers.places import asked_by
from providers.random_ids import random_id
from providers.text.relevance import speaks
from providers.urls import encode_url

from . import open_page, prompts, web_search
from .base import OPEN_PAGE, BadArguments, Tool, ToolCall, ToolOutput, ToolResult, decode_arguments, validate
from .clean import one_line
from .open_page import OpenArguments
from .options import SessionOptions
from .page_reader import MOST_URLS, PageReader
from .pages import ReadPage
from .provenance import Provenance, Refused
from .render import PagePart, SearchAnswer, escape, pages_text, reading_text, search_text, sentence
from .result_pages import with_passages
from .web_search import MAX_QUERY, MAX_SNIPPET, SearchArguments

if TYPE_CHECKING:
    from .toolbox import Toolbox

SHORTEST_SNIPPET = 100
READ_FOR_WEAK = 2  # pages that each search of a weak model reads by itself
LONGEST_NAME = 500  # of an address that is none, as far as it is repeated


def not_run(tool: Tool[Any, Any], error: BadArguments) -> str:
    """What a model reads whose call cannot be understood."""
    return prompts.BAD_CALL.format(problem=escape(one_line(str(error), 500)), example=tool.form)


class _ValidCall:
    """Two that have the same `key` ask for the same."""

    __slots__ = ("arguments", "key", "tool")

    def __init__(self, tool: Tool[Any, Any], arguments: BaseModel) -> None:
        self.tool = tool
        self.arguments = arguments
        self.key = f"{tool.name} {vars(arguments)}"  # nobody reads it


class ToolSession:
    """`searches` and `pages` count what really ran: a repeated call is answered from memory and costs nothing."""

    def __init__(self, toolbox: Toolbox, options: SessionOptions) -> None:
        policy = toolbox.policy
        self.searches = 0
        self.options = options
        self.ledger = options.ledger
        may = options.permission
        permitted = toolbox.domains.narrowed(may.allowed_domains, may.blocked_domains)
        self.domains = permitted.narrowed(options.allowed_domains, options.blocked_domains)
        of_pages = permitted.narrowed(*options.page_domains) if options.page_domains else self.domains
        self.provenance = Provenance(policy.provenance, options.seen_texts)
        self.provenance.add(list(options.found_before))
        if policy.provenance == "context":  # what earlier answers cited
            self.provenance.add([source.url for source in options.ledger])
        self.reader = PageReader(toolbox.read, policy, options, of_pages, self.provenance)
        self.most_results = options.limit or policy.max_results
        self.longest_snippet = MAX_SNIPPET
        if options.room is not None:
            fair = max(options.room // (4 * self.most_results), SHORTEST_SNIPPET)
            self.longest_snippet = min(self.longest_snippet, fair)
        self._toolbox = toolbox
        self._policy = policy
        self.fence = "web-" + random_id()[:16]
        self._remembered: dict[str, ToolOutput] = {}
        self._calls_left = options.most_calls
        self._search_refused = False  # because its caller has none left

    @property
    def pages(self) -> int:
        return self.reader.opened

    @property
    def stays_here(self) -> bool:
        """Does no query of it leave this machine?"""
        chain = self._toolbox.search
        return chain is not None and chain.stays_here(self.options.permission.providers)

    @property
    def spent(self) -> bool:
        """Whether the searches, the pages or the characters of this request are used up."""
        searched = self.searches >= self._policy.max_searches or self._search_refused
        return searched or self.reader.spent or self._calls_left == 0

    async def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """All calls of one turn, together. Sources are numbered in the order of the calls, whoever answers first."""
        turn = list(map(self._understand, calls))
        new = self._admitted(turn)
        for call, (finding, failure) in zip(new, await self._run_together(new), strict=True):
            self._remembered[call.key] = failure or await call.tool.settle(self, finding)
        results = list(map(self._result, calls, turn))
        if self.options.assist and self.options.cite and results and results[-1].sources:
            reminder = prompts.CITE.format(n=results[-1].sources[0].n)
            results[-1] = replace(results[-1], text=f"{results[-1].text}\n\n{reminder}")
        return results

    # For who asks without a model

    async def search_once(self, arguments: Mapping[str, Any]) -> SearchAnswer:
        """One search for the operator, as a value."""
        try:
            given = validate(SearchArguments, arguments)
        except BadArguments as error:
            given_query = arguments.get("query")
            query = one_line(given_query, MAX_QUERY) if isinstance(given_query, str) else ""
            return SearchAnswer(query, message=f"{error}.", ok=False, fault="arguments")
        return await with_passages(self, web_search.numbered(self, await web_search.find(self, given)))

    async def search_first(self, query: str) -> SearchAnswer:
        """One search for a model that called for none: hits that do not speak of the query are left out."""
        try:
            given = validate(SearchArguments, {"query": query})
        except BadArguments as error:
            return SearchAnswer(query, message=f"{error}.", ok=False, fault="arguments")
        return web_search.numbered(self, web_search.speaking(await web_search.find(self, given)))

    async def open_once(self, arguments: Mapping[str, Any]) -> list[PagePart]:
        """Pages for the operator, as values. What a person typed has its provenance."""
        try:
            given = validate(OpenArguments, arguments)
        except BadArguments as error:
            return [PagePart(url, error=str(error)) for url in _named(arguments)]
        self.provenance.add(given.urls)
        return open_page.numbered(self, await open_page.read(self, given))

    async def page_once(self, url: str) -> ReadPage:
        """A whole page for who reads it by itself."""
        (named,) = validate(OpenArguments, {"url": url}).urls
        self.provenance.add([named])
        return await self.reader.page(named)

    def text(self, answer: SearchAnswer | list[PagePart]) -> str:
        """The answer as the model reads it."""
        if isinstance(answer, SearchAnswer):
            return search_text(answer, self.fence, self.options.today, cite=self.options.cite)
        return pages_text(answer, self.fence, cite=self.options.cite)

    async def read_first(
        self, urls: Sequence[str], query: str, named: Collection[str], room: float, weigh: Callable[[str], float]
    ) -> list[PagePart]:
        """Pages for a model that called for none, as many tokens of them as there is room for. Of those that nobody
        named the ones are left out that do not speak of the query."""
        parts = await open_page.read_within(self, urls, query, room, weigh)
        wanted = {*named, *map(encode_url, named)}
        speaking = [part for part in parts if part[0].url in wanted or speaks(query, part[0].content)]
        return open_page.numbered(self, speaking)

    def reading(
        self,
        answer: SearchAnswer,
        parts: Sequence[PagePart],
        named: Sequence[str] = (),
        holds: Callable[[str], bool] = lambda text: True,
    ) -> str:
        """A search and the pages it led to, for a model that called neither; empty if it cannot hold any of it. `named`
        are pages that the user names. What is left out was not given: nothing can be cited for it."""
        missed = [part for part in parts[: len(named)] if part.error]
        read = [part for part in parts if part.source]
        opened = {part.source.n for part in read if part.source}
        hits = [source for source in answer.sources if source.n not in opened]
        while True:
            shown = replace(answer, sources=tuple(hits))
            text = reading_text(shown, [*read, *missed], missed, self.fence, self.options.today, cite=self.options.cite)
            if holds(text):
                return text
            if not hits and not read:
                return ""
            last = hits.pop() if hits else read.pop().source
            if last:
                self.ledger.withdraw(last.n)

    # For the tools

    async def search(self, query: SearchQuery, provider: str = "") -> Found:
        """What the chain finds, as long as the request may search. `provider` is asked first."""
        if self._toolbox.search is None:
            raise BadArguments(prompts.NO_SEARCH)
        if self.options.most_searches is not None and self.searches >= self.options.most_searches:
            self._search_refused = True
            raise BadArguments(prompts.NO_SEARCHES_LEFT)
        if self.searches >= self._policy.max_searches:
            raise BadArguments(prompts.SEARCHES_USED_UP.format(searches=self.searches))
        self.searches += 1
        asking = self.options
        only = asking.permission.providers
        with asked_by(asking.caller, asking.request):
            return await self._toolbox.search.search(query, provider or None, asking.caller, asking.observe, only)

    @property
    def pages_ahead(self) -> int:
        """How many of its best pages a search brings along. Half of what may be opened stays for who calls for it."""
        wanted = max(self._policy.read_results, READ_FOR_WEAK if self.options.assist else 0)
        left = self.reader.most // 2 - self.pages
        return max(min(wanted, left), 0) if self._may_run(OPEN_PAGE) else 0

    # Calls

    def _understand(self, call: ToolCall) -> _ValidCall | str:
        """The tool and its arguments, or what is wrong with the call. No provider is asked before this."""
        tool = self._toolbox.tools.get(call.tool)
        if tool is None or not self._may_run(call.tool):
            names = ", ".join(self.options.names or self._toolbox.tools) or prompts.NO_NAMES
            return prompts.NO_SUCH_TOOL.format(name=one_line(call.tool, 100), names=names)
        try:
            return _ValidCall(tool, validate(tool.arguments, decode_arguments(call.arguments)))
        except BadArguments as error:
            return not_run(tool, error)

    def _may_run(self, tool: str) -> bool:
        """A model calls what it heard of in a page as well: what was not offered does not run."""
        return tool in self._toolbox.tools and (self.options.offered is None or tool in self.options.offered)

    def _admitted(self, turn: Iterable[_ValidCall | str]) -> list[_ValidCall]:
        """Those that run now: each once, none that ran before, and no more than are allowed."""
        new = {}
        for call in turn:
            if isinstance(call, _ValidCall) and call.key not in self._remembered:
                new[call.key] = call
        most = self._policy.max_parallel
        if self._calls_left is not None:
            most = min(most, self._calls_left)
            self._calls_left -= min(most, len(new))
        return list(new.values())[:most]

    async def _run_together(self, calls: Sequence[_ValidCall]) -> list[tuple[Any, ToolOutput | None]]:
        if len(calls) == 1:
            return [await self._run(calls[0])]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._run(call)) for call in calls]
        return [task.result() for task in tasks]

    async def _run(self, call: _ValidCall) -> tuple[Any, ToolOutput | None]:
        """What the tool found, or the failure that it left to us."""
        try:
            return await call.tool.run(self, call.arguments), None
        except (BadArguments, Refused, ProviderError) as error:
            return None, ToolOutput(sentence(error), ok=False)

    def _result(self, call: ToolCall, understood: _ValidCall | str) -> ToolResult:
        if isinstance(understood, str):
            return ToolResult(call.id, understood, ok=False)
        output = self._remembered.get(understood.key)
        if output is None:
            at_once = prompts.TOO_MANY_AT_ONCE.format(most=self._policy.max_parallel)
            reason = at_once if self._calls_left is None else prompts.CALLS_USED_UP
            return ToolResult(call.id, prompts.NOT_RUN.format(reason=reason), ok=False)
        return ToolResult(call.id, output.text, output.ok, output.provider, output.sources)


def _named(arguments: Mapping[str, Any]) -> list[str]:
    """The addresses in arguments that are wrong: whatever else may stand there, and however much of it."""
    given = arguments.get("urls") or arguments.get("url")
    named = [url for url in (given if isinstance(given, list) else [given])[:MOST_URLS] if isinstance(url, str)]
    return [one_line(url, LONGEST_NAME) for url in named] or [""]
