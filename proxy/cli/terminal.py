"""What `ask`, `search` and `open` do: one function each, named after its command. Handed a config and the parsed
arguments; prints to the terminal and hands back the exit code.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

from tools.ledger import Ledger
from tools.options import SessionOptions
from tools.render import open_json, search_json

from ..config.settings import Config
from ..context import RequestContext
from ..dialects import chat
from ..house import House
from ..values.errors import RequestError, refuse
from ..values.events import Citation, Event, Failed, TextDelta, ToolStarted
from ..values.request import ChatRequest
from ..watching.observer import Observer
from .indexing import await_indexes, owners_of


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
    context = RequestContext("", chat.ChatDialect(), math.inf, Observer())
    async with opened(config.model_copy(update={"citations": plain})) as house:
        try:
            model = given.model or await _first_model(house)
            plan = house.upstreams.plan(model, {}, context.caller, context.observer)
        except RequestError as error:
            print(error, file=sys.stderr)
            return 1
        await await_indexes(house.searchers)
        question = {"role": "user", "content": given.question}
        request = ChatRequest({"model": model, "stream": True, "messages": [question]}, b"", model, stream=True)
        offer = house.preparation.offer(request, offered=bool(house.toolbox.specs))
        async with aclosing(house.engine.answer(request, offer, plan, context)) as batches:
            return await _show(batches)


async def _show(batches: AsyncIterator[list[Event]]) -> int:
    cited: dict[int, list[Citation]] = {}
    async for batch in batches:
        for event in batch:
            if isinstance(event, TextDelta):
                print(event.text, end="", flush=True)
            elif isinstance(event, Citation):
                cited.setdefault(event.source.n, []).append(event)
            elif isinstance(event, ToolStarted):
                print(chat.progress_line(event), end="", file=sys.stderr, flush=True)
            elif isinstance(event, Failed):
                print(f"\n{event.error['message']}", file=sys.stderr)
                return 1
    print()
    for n, citations in sorted(cited.items()):
        print("\n".join(["", f"[{n}] {citations[0].source.title}", *_proof_lines(citations)]))
    return 0


def _proof_lines(citations: Sequence[Citation]) -> list[str]:
    """Where a source is, what it says about the first sentence that cites it, and what of all of them is not in it."""
    proof = citations[0].proof
    said = [f"    {proof.basis}: “{' '.join(proof.quote.split())}”"] if proof.quote else []
    missing = dict.fromkeys(words for citation in citations for words in citation.proof.unmatched)
    auto = ["    marked by Groundwire, not by the model"] if all(citation.auto for citation in citations) else []
    return [
        f"    {citations[0].source.url}",
        *said,
        *([f"    not in it: {'; '.join(missing)}"] if missing else []),
        *auto,
    ]


async def search(config: Config, given: argparse.Namespace) -> int:
    async with opened(config) as house:
        toolbox = house.toolbox_with(given.provider or "")
        if toolbox.search is None:
            return _none_configured("search")
        named = house.providers.get(given.provider or "")
        await await_indexes([named] if named else house.searchers)
        session = toolbox.session(SessionOptions(Ledger(), alone=True))
        arguments = {"query": given.query, "provider": given.provider or "", "limit": given.limit}
        answer = await session.search_once(arguments)
        print(json.dumps(search_json(answer), ensure_ascii=False, indent=2) if given.json else session.text(answer))
        if answer.advice:
            print(answer.advice, file=sys.stderr)
        return 0 if answer.ok else 1


async def open(config: Config, given: argparse.Namespace) -> int:  # noqa: A001 the command's name
    async with opened(config) as house:
        if house.read is None:
            return _none_configured("read")
        await await_indexes(owners_of(house, given.url))
        session = house.toolbox.session(SessionOptions(Ledger(), alone=True))
        parts = await session.open_once({"urls": given.url})
        if given.json:
            pages = [open_json(part) for part in parts]
            print(json.dumps(pages if len(given.url) > 1 else pages[0], ensure_ascii=False, indent=2))
        else:
            print(session.text(parts))
        return 1 if any(part.error for part in parts) else 0


async def _first_model(house: House) -> str:
    for upstream in house.upstreams:
        if served := await upstream.models():
            return served[0]
    raise refuse(404, "No upstream lists a model; name one with --model.")


def _none_configured(role: str) -> int:
    print(f"No provider that can {role} is configured: see `tools.{role}` in the config file.", file=sys.stderr)
    return 2
