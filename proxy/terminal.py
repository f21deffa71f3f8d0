"""What the commands other than `serve` do: one function each, named after its command. Handed a config and the parsed
arguments; prints to the terminal and hands back the exit code.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from providers.base import SearchQuery
from providers.chain import Owner, ReadChain, SearchChain
from providers.errors import NoResults, ProviderError
from providers.registry import Named
from tools.ledger import Ledger, Source
from tools.render import open_json, search_json

from .config import Config
from .dialects import chat
from .errors import RequestError, refuse
from .events import Citation, Event, Failed, TextDelta, ToolStarted
from .house import House, Lane
from .inject import Decision
from .request import ChatRequest

PROBE_PAGE = "https://example.com/"


@asynccontextmanager
async def opened(config: Config) -> AsyncIterator[House]:
    house = House(config)
    try:
        yield house
    finally:
        await house.aclose()


async def ask(config: Config, given: argparse.Namespace) -> int:
    """Streams the answer with `[n]` in it, what is being searched on stderr, and the sources below."""
    plain = config.citations.model_copy(update={"style": "number", "footer": False})
    async with opened(config.model_copy(update={"citations": plain})) as house:
        try:
            model = given.model or await _first_model(house)
            lane = house.lane_for(model)
        except RequestError as error:
            print(error, file=sys.stderr)
            return 1
        question = {"role": "user", "content": given.question}
        request = ChatRequest({"model": model, "stream": True, "messages": [question]}, b"", model, stream=True)
        offered = house.offer(request, Decision(bool(house.toolbox.specs), "ask"))
        async with aclosing(house.engine.answer(request, offered, lane.upstream, {})) as batches:
            return await _show(batches)


async def _show(batches: AsyncIterator[list[Event]]) -> int:
    cited: dict[int, Source] = {}
    async for batch in batches:
        for event in batch:
            if isinstance(event, TextDelta):
                print(event.text, end="", flush=True)
            elif isinstance(event, Citation):
                cited[event.source.n] = event.source
            elif isinstance(event, ToolStarted):
                print(chat.progress_line(event), end="", file=sys.stderr, flush=True)
            elif isinstance(event, Failed):
                print(f"\n{event.error['message']}", file=sys.stderr)
                return 1
    print()
    for n, source in sorted(cited.items()):
        print(f"\n[{n}] {source.title}\n    {source.url}")
    return 0


async def search(config: Config, given: argparse.Namespace) -> int:
    async with opened(config) as house:
        if house.search is None:
            return _none_configured("search")
        desk = house.toolbox.desk(ledger=Ledger())
        arguments = {"query": given.query, "provider": given.provider or "", "limit": given.limit}
        answer = await desk.search_once(arguments)
        print(json.dumps(search_json(answer), ensure_ascii=False, indent=2) if given.json else desk.text(answer))
        return 0 if answer.ok else 1


async def open(config: Config, given: argparse.Namespace) -> int:  # noqa: A001 the command's name
    async with opened(config) as house:
        if house.read is None:
            return _none_configured("read")
        desk = house.toolbox.desk(ledger=Ledger())
        parts = await desk.open_once({"urls": given.url})
        if given.json:
            pages = [open_json(part) for part in parts]
            print(json.dumps(pages if len(given.url) > 1 else pages[0], ensure_ascii=False, indent=2))
        else:
            print(desk.text(parts))
        return 1 if any(part.error for part in parts) else 0


# check: the doctor


@dataclass(frozen=True, slots=True)
class Finding:
    subject: str
    ok: bool
    detail: str
    seconds: float


async def check(config: Config, given: argparse.Namespace) -> int:
    """Tries everything at once, prints a line each; the exit code says whether anything is broken."""
    async with opened(config) as house:
        tries = [_try(f"upstream {lane.upstream.name}", _list_models(lane)) for lane in house.lanes]
        tries += [_try(f"search {member.name}", _search_once(member)) for member in house.searchers]
        tries += [_try(f"read {m.name}", _read_once(m)) for m in house.readers if m not in house.searchers]
        findings = await asyncio.gather(*tries)
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        word = "ok    " if finding.ok else "BROKEN"
        print(f"{word}  {finding.subject:<{width}}  {finding.seconds * 1000:6.0f} ms  {finding.detail}")
    for note in config.notes:
        print(f"note    {note}")
    return 0 if all(finding.ok for finding in findings) else 1


async def _try(subject: str, attempt: Awaitable[str]) -> Finding:
    began = time.monotonic()
    try:
        detail, ok = await attempt, True
    except (ProviderError, RequestError) as error:
        detail, ok = str(error), False
    return Finding(subject, ok, detail, time.monotonic() - began)


async def _list_models(lane: Lane) -> str:
    models = await lane.upstream.models()
    names = [str(model["id"]) for model in models if lane.serves(model["id"])]
    return f"{len(names)} models: {', '.join(names[:5])}" if names else "reachable, but it lists no model"


async def _search_once(member: Named) -> str:
    query = SearchQuery("web search", limit=3)
    if isinstance(member.provider, Owner):
        provider: Any = member.provider
        with suppress(NoResults):  # its documents need not be about our probe
            await provider.search(query)
        return "its documents can be searched"
    found = await SearchChain([member]).search(query)
    return f"{len(found.results.results)} results"


async def _read_once(member: Named) -> str:
    opened = await ReadChain([member]).read(PROBE_PAGE)
    return f"{len(opened.page.text)} characters of {PROBE_PAGE}"


async def _first_model(house: House) -> str:
    for lane in house.lanes:
        for model in await lane.upstream.models():
            if lane.serves(model["id"]):
                return str(model["id"])
    raise refuse(404, "No upstream lists a model; name one with --model.")


def _none_configured(role: str) -> int:
    print(f"No provider that can {role} is configured: see `tools.{role}` in the config file.", file=sys.stderr)
    return 2
