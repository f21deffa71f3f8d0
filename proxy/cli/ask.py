"""`groundwire ask`: one question, asked through the engine itself. Handed the parsed arguments; streams the answer to
the terminal, what is being searched to stderr, and the sources below.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

from ..config.settings import Config
from ..context import RequestContext
from ..dialects import chat
from ..house import House
from ..values.errors import RequestError, refuse
from ..values.events import Citation, Event, Failed, TextDelta, ToolStarted
from ..values.request import ChatRequest
from ..watching.observer import Observer
from .indexing import await_indexes
from .running import opened, run_with_config


def run(given: argparse.Namespace) -> int:
    return run_with_config(ask, given)


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


async def _first_model(house: House) -> str:
    for upstream in house.upstreams:
        if served := await upstream.models():
            return served[0]
    raise refuse(404, "No upstream lists a model; name one with --model.")
