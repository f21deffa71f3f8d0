"""The Responses API as a dialect. Handed bodies by the route; finds what they build on, and hands on requests as the
engine takes them, each with the writer of its answer: one who stays with the client, or one for the background.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import orjson

from providers.apart import in_thread, is_worth_a_thread
from tools.ledger import KnownSource, joined

from ...values.dialect import REQUEST_ID, Decoded
from ...values.events import Failed
from ...values.request import ChatRequest, CitationStyle
from ...values.sse import PING, encode
from .background import BackgroundWriter
from .history import KnownItem, bare_references, conversation, instructions, references
from .request import ResponsesRequest, decode
from .state import Chain, ResponseState
from .writer import ResponseWriter


class ResponsesDialect:
    name = "responses"
    citation_style: CitationStyle = "link"
    ping = PING
    id_headers = (REQUEST_ID,)

    def __init__(self, state: ResponseState) -> None:
        self._state = state

    async def decode(self, raw: bytes, owner: str, former: str = "") -> Decoded:
        is_long = is_worth_a_thread(raw)
        asked = await in_thread(decode, raw) if is_long else decode(raw)
        chain = Chain()
        if previous := asked.previous_response_id:
            held_by = await self._state.adopt(previous, owner, former)
            chain = await self._state.chain(held_by, previous, "previous_response_id")
        known, cited = dict[str, KnownItem](), dict[int, KnownSource]()
        named, needed = await in_thread(_references, asked) if is_long else _references(asked)
        if named:
            known, cited = await self._state.known(owner, named, needed, former)
        read = partial(_read, asked, chain, known)
        messages, own = await in_thread(read) if is_long else read()
        # In the background events are made whoever listens: somebody may later.
        as_stream = {"stream": True, "stream_options": {"include_usage": True}} if asked.background else {}
        request = ChatRequest(
            {**asked.body, **as_stream, "messages": messages},
            asked.raw,
            asked.model,
            asked.stream or asked.background,
            include_usage=True,
            search=asked.search,
            sources=joined([chain.sources, cited]),
            changed=True,
            left_out=asked.tools.left_out,
            wants_no_tools=asked.wants_no_tools,
            is_long=is_long,
        )
        kind = BackgroundWriter if asked.background else ResponseWriter
        writer = partial(kind, self._state, owner, asked, chain.ids, own)
        # In the background the stream is a record that is kept, and that others may follow: a trace is for its asker.
        shows_steps = asked.stream and not asked.background
        return Decoded(request, writer, hidden_turns=True, background=asked.background, shows_steps=shows_steps)

    def status(self, failed: Failed) -> int:
        return failed.status

    def error(self, failed: Failed) -> bytes:
        return orjson.dumps({"error": failed.error})

    def error_event(self, failed: Failed) -> bytes:
        return encode(self.error(failed))


def _references(asked: ResponsesRequest) -> tuple[list[str], set[str]]:
    """The ids that must be looked up, and those of them that nobody can do without."""
    return references(asked), bare_references(asked)


def _read(
    asked: ResponsesRequest, chain: Chain, known: Mapping[str, KnownItem]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The messages that the model is asked with, and what the request itself has added to the conversation."""
    talk = conversation(asked, chain.messages, known, chain.items)
    return [*instructions(asked, known), *talk.messages], talk.own
