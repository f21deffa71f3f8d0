"""Where tool calls become provider calls. The toolbox, one per process, offers the tools; its session, one per request,
is handed the model's calls and hands back one result per call, in their order. Provider errors end here, as text.
"""

from __future__ import annotations

import asyncio
import secrets as random_ids
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, ParamSpec, TypeVar

from providers.base import SearchQuery
from providers.chain import Found, ReadChain, SearchChain
from providers.errors import ProviderError
from providers.urls import encode_url, host_of

from . import open_page, web_search
from .base import WEB_SEARCH, BadArguments, ToolCall, ToolResult, ToolSpec, decode_arguments, validate
from .clean import one_line
from .ledger import Ledger
from .open_page import OpenArguments, ReadPage
from .provenance import Address, Domains, Mode, Provenance, Refused, holds_secret, normalise
from .render import CITE, PagePart, SearchAnswer, escape, pages_text, reading_text, search_text
from .web_search import SearchArguments

AnyArguments = SearchArguments | OpenArguments
ToolOutput = SearchAnswer | list[PagePart]

P = ParamSpec("P")
T = TypeVar("T")

BOOK = 50_000  # characters, some milliseconds of work
NO_ROOM = "what one answer may read of pages is used up; answer with what you have."
SHORTEST_SNIPPET = 100
READ_AHEAD = 2  # pages that the first search of a weak model reads by itself
CARRIES_KEY = "It holds what looks like a key or password, which must not leave; leave that out"


@dataclass(frozen=True, slots=True)
class ToolPolicy:
    max_results: int = 5
    max_page_length: int = 15000
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    provenance: Mode = "context"
    parameters: Literal["basic", "full"] = "basic"
    max_opens: int = 8
    max_characters: int = 100_000  # of pages, over all calls of one request
    max_opens_per_host: int = 4
    max_searches: int = 20
    max_parallel: int = 8


class Toolbox:
    def __init__(self, search: SearchChain | None, read: ReadChain | None, policy: ToolPolicy) -> None:
        self.search = search
        self.read = read
        self.policy = policy
        self.domains = Domains().narrowed(policy.allowed_domains, policy.blocked_domains)
        offered = []
        if search is not None:
            offered.append(web_search.spec(full=policy.parameters == "full"))
        if read is not None:
            offered.append(open_page.spec())
        self._specs = tuple(offered)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self._specs

    def session(
        self,
        *,
        ledger: Ledger,
        seen_texts: Iterable[str] = (),
        found_before: Iterable[str] = (),
        country: str = "",
        limit: int | None = None,
        allowed_domains: Iterable[str] = (),
        blocked_domains: Iterable[str] = (),
        secrets: Collection[str] = (),
        caller: str = "",
        names: Sequence[str] = (),
        room: int | None = None,
        most_calls: int | None = None,
        assist: bool = False,
        alone: bool = False,
    ) -> ToolSession:
        """A session for one request. `found_before` are the URLs of earlier results in the conversation; `limit` is how
        many results it wants, `secrets` are the keys that came with it, `caller` is whose it is: what private providers
        gave is kept for its caller alone; `names` are all tools as the model knows them, the client's too; `room` is
        how many characters of the web the model can hold; `most_calls` is how many calls the client allows; `assist` is
        for weak models: the first search also reads its best pages, and the rule for citing comes last; `alone`: there
        is no model, somebody asks for the tool itself."""
        provenance = Provenance(self.policy.provenance, seen_texts)
        provenance.add(found_before)
        if self.policy.provenance == "context":  # what earlier answers cited
            provenance.add(source.url for source in ledger)
        return ToolSession(
            self,
            ledger=ledger,
            provenance=provenance,
            country=country,
            most=limit or self.policy.max_results,
            domains=self.domains.narrowed(allowed_domains, blocked_domains),
            secrets=secrets,
            caller=caller,
            names=names,
            room=room,
            most_calls=most_calls,
            assist=assist,
            alone=alone,
        )


class ToolSession:
    """`searches` and `pages` count what really ran: a repeated call is answered from memory and costs nothing."""

    def __init__(
        self,
        toolbox: Toolbox,
        *,
        ledger: Ledger,
        provenance: Provenance,
        country: str,
        most: int,
        domains: Domains,
        secrets: Collection[str],
        caller: str,
        names: Sequence[str],
        room: int | None,
        most_calls: int | None,
        assist: bool,
        alone: bool,
    ) -> None:
        self.searches = 0
        self.pages = 0
        self._toolbox = toolbox
        self._policy = toolbox.policy
        self._ledger = ledger
        self._provenance = provenance
        self._country = country
        self._most = most
        self._domains = domains
        self._secrets = secrets
        self._caller = caller
        self._names = names
        self._fence = "web-" + random_ids.token_hex(8)
        self._remembered: dict[str, ToolResult] = {}
        self._pages: dict[str, asyncio.Task[ReadPage]] = {}
        self._assist = assist
        self._calls_left = most_calls
        # Without a model there is nobody to mislead: whoever asks may open what it names.
        self._most_opens = open_page.MOST_URLS if alone else self._policy.max_opens
        self._most_opens_per_host = open_page.MOST_URLS if alone else self._policy.max_opens_per_host
        self._room = self._policy.max_characters
        self._longest = self._policy.max_page_length
        self._longest_snippet = web_search.MAX_SNIPPET
        if room is not None:
            self._room = min(self._room, room)
            self._longest = min(self._longest, max(room // 2, open_page.SHORTEST))
            self._longest_snippet = min(self._longest_snippet, max(room // (4 * most), SHORTEST_SNIPPET))
        self._opens_of: Counter[str] = Counter()

    @property
    def spent(self) -> bool:
        """Whether the searches, the pages or the characters of this request are used up."""
        used_up = self.searches >= self._policy.max_searches or self.pages >= self._most_opens
        return used_up or self._calls_left == 0 or self._room < open_page.SHORTEST

    async def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """All calls of one turn, together. Sources are numbered in the order of the calls, whoever answers first."""
        turn = [self._understand(call) for call in calls]
        new: dict[str, AnyArguments] = {}
        for arguments in turn:
            if not isinstance(arguments, str) and _key(arguments) not in self._remembered:
                new.setdefault(_key(arguments), arguments)
        most = self._policy.max_parallel
        if self._calls_left is not None:
            most = min(most, self._calls_left)
            self._calls_left -= min(most, len(new))
        started = list(new.items())[:most]
        async with asyncio.TaskGroup() as group:
            tasks = [(key, group.create_task(self._work(arguments))) for key, arguments in started]
        for key, task in tasks:
            self._remembered[key] = await self._settled(task.result()())
        results = [self._answer(call, arguments) for call, arguments in zip(calls, turn, strict=True)]
        if self._assist and results and results[-1].sources:
            reminder = CITE.format(n=results[-1].sources[0].n)
            results[-1] = replace(results[-1], text=f"{results[-1].text}\n\n{reminder}")
        return results

    async def search_once(self, arguments: Mapping[str, Any]) -> SearchAnswer:
        """One search for the operator, as a value."""
        try:
            settle = await self._search(validate(SearchArguments, arguments))
        except BadArguments as error:
            return SearchAnswer(query=str(arguments.get("query", "")), message=f"{error}.", ok=False)
        return settle()

    async def open_once(self, arguments: Mapping[str, Any]) -> list[PagePart]:
        """Pages for the operator, as values. What a person typed has its provenance."""
        try:
            given = validate(OpenArguments, arguments)
        except BadArguments as error:
            asked = arguments.get("urls") or [arguments.get("url", "")]
            return [PagePart(str(url), error=str(error)) for url in asked]
        self._provenance.add(given.urls)
        return (await self._open(given))()

    def text(self, answer: ToolOutput) -> str:
        """The answer as the model reads it."""
        if isinstance(answer, SearchAnswer):
            return search_text(answer, self._fence, _today())
        return pages_text(answer, self._fence)

    def reading(self, answer: SearchAnswer, parts: Sequence[PagePart], named: Sequence[str] = ()) -> str:
        """A search and the pages it led to, for a model that called neither. `named` are pages that the user names."""
        missed = [part for part in parts[: len(named)] if part.error]
        return reading_text(answer, parts, missed, self._fence, _today())

    def _understand(self, call: ToolCall) -> AnyArguments | str:
        """The call's arguments, or what is wrong with it. No provider is asked before this."""
        ours = [spec.tool for spec in self._toolbox.specs]
        if call.tool not in ours:
            names = ", ".join(self._names or ours) or "none"
            return f"There is no tool {one_line(call.tool, 100)!r}. Valid names: {names}."
        form = web_search.FORM if call.tool == WEB_SEARCH else open_page.FORM
        try:
            given = decode_arguments(call.arguments)
            return validate(SearchArguments, given) if call.tool == WEB_SEARCH else validate(OpenArguments, given)
        except BadArguments as error:
            return f"The call was not run: {escape(one_line(str(error), 500))}. Its arguments look like {form}"

    def _answer(self, call: ToolCall, arguments: AnyArguments | str) -> ToolResult:
        if isinstance(arguments, str):
            return ToolResult(call.id, arguments, ok=False)
        remembered = self._remembered.get(_key(arguments))
        if remembered is None:
            most = self._policy.max_parallel
            reason = (
                f"at most {most} calls run in one turn" if self._calls_left is None else "no more calls are allowed"
            )
            return ToolResult(call.id, f"Not run: {reason}. Use what came back.", ok=False)
        return replace(remembered, id=call.id)

    async def _settled(self, answer: ToolOutput) -> ToolResult:
        """A result; for a weak model the first search brings along what its best pages say."""
        result = self._result(answer)
        if not (self._assist and isinstance(answer, SearchAnswer) and answer.sources and self._toolbox.read):
            return result
        if self.pages:
            return result
        best = OpenArguments(urls=[source.url for source in answer.sources[:READ_AHEAD]], query=answer.query)
        pages = [part for part in (await self._open(best))() if part.source]
        return replace(result, text="\n\n".join([result.text, self.text(pages)])) if pages else result

    def _result(self, answer: ToolOutput) -> ToolResult:
        if isinstance(answer, SearchAnswer):
            return ToolResult("", self.text(answer), answer.ok, answer.provider, answer.sources)
        sources = tuple(part.source for part in answer if part.source)
        provider = next((part.provider for part in answer if part.provider), "")
        return ToolResult("", self.text(answer), bool(sources), provider, sources)

    async def _work(self, arguments: AnyArguments) -> Callable[[], ToolOutput]:
        """The slow part of a call. What it hands back numbers the sources, when the call's turn has come."""
        return await (self._search(arguments) if isinstance(arguments, SearchArguments) else self._open(arguments))

    async def _search(self, given: SearchArguments) -> Callable[[], SearchAnswer]:
        shown = given.query
        try:
            if holds_secret(given.model_dump_json(), self._secrets):  # domains and all: everything of it leaves
                shown = "…"
                raise BadArguments(CARRIES_KEY)
            query = web_search.query_for(given, self._domains, self._most, self._country)
            if self._toolbox.search is None:
                raise BadArguments("no search provider is configured")
            if self.searches >= self._policy.max_searches:
                raise BadArguments(f"the {self.searches} searches of this answer are used up")
            self.searches += 1
            found = await self._toolbox.search.search(query, given.provider or None, self._caller)
        except (BadArguments, ProviderError) as error:
            return partial(SearchAnswer, shown, message=_sentence(error), ok=False)
        return partial(self._settle_search, query, found)

    def _settle_search(self, query: SearchQuery, found: Found) -> SearchAnswer:
        self._provenance.add(hit.url for hit in found.results.results)
        return web_search.answer(query, found, self._ledger, self._longest_snippet)

    async def _open(self, given: OpenArguments) -> Callable[[], list[PagePart]]:
        longest = self._longest
        asked = longest if given.max_length is None else min(given.max_length, longest)
        each = min(max(min(asked, self._room) // len(given.urls), open_page.SHORTEST), longest)
        booked = each * len(given.urls)
        if booked > self._room:
            return lambda: [PagePart(encode_url(url), error=NO_ROOM) for url in given.urls]
        self._room -= booked  # at once: the calls of a turn run together
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._open_one(url, given, each)) for url in given.urls]
        parts = [task.result() for task in tasks]
        self._room += booked - sum(len(part.content) for part, _ in parts)
        return lambda: [self._settle_page(part, page) for part, page in parts]

    async def _open_one(self, url: str, given: OpenArguments, max_length: int) -> tuple[PagePart, ReadPage | None]:
        try:
            page = await self._read(url)
        except (Refused, ProviderError) as error:
            return PagePart(encode_url(url), error=_sentence(error)), None
        return await _aside(len(page.text), open_page.part_of, page, given.start, given.query, max_length), page

    def _settle_page(self, part: PagePart, page: ReadPage | None) -> PagePart:
        if page is None or part.error:
            return part
        source = self._ledger.add(page.address.url, page.title, date=page.date, final_url=page.final_url)
        self._provenance.add_page(page.address, page.final_url, page.links)
        return replace(part, source=source, title=part.title or source.title)

    async def _read(self, url: str) -> ReadPage:
        """A page, read once per request however often and in however many parts it is asked for."""
        if holds_secret(url, self._secrets):
            raise Refused(CARRIES_KEY)
        if not self._domains.permit(url):
            raise Refused("its domain is not among those that may be opened here")
        address = self._provenance.admit(url)
        page = normalise(address.url)
        if page not in self._pages:
            host = host_of(page)
            if self.pages >= self._most_opens:
                raise Refused(f"the {self.pages} pages that one answer may open are used up; answer with what you have")
            if self._opens_of[host] >= self._most_opens_per_host:
                raise Refused(
                    f"{self._opens_of[host]} pages of this site were opened, more are not allowed in one answer"
                )
            self.pages += 1
            self._opens_of[host] += 1
            self._pages[page] = asyncio.create_task(self._fetch(address))
        return await self._pages[page]

    async def _fetch(self, address: Address) -> ReadPage:
        if self._toolbox.read is None:
            raise Refused("no reader is configured")
        opened = await self._toolbox.read.read(address.url, self._caller)
        if not self._domains.permit(opened.page.url or address.url):
            raise Refused("it leads to a domain that is not among those that may be opened here")
        return await _aside(len(opened.page.text), open_page.prepare, address, opened)


async def _aside(size: int, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Text work on a page: in a thread if the page is a book, because other requests are waiting for this loop."""
    if size < BOOK:
        return work(*arguments, **named)
    return await asyncio.to_thread(work, *arguments, **named)


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _key(arguments: AnyArguments) -> str:
    return f"{type(arguments).__name__} {arguments.model_dump_json()}"


def _sentence(error: Exception) -> str:
    return escape(one_line(str(error), 1500)).rstrip(".") + "."
