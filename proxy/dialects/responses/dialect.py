"""The Responses API as a dialect: a request is decoded, what it builds on is found, and its answer is kept for its
caller before the client hears of its end. Handed bodies by the route; hands on requests as the engine takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import orjson

from ...values.dialect import CitationStyle, Decoded
from ...values.events import Event, Failed
from ...values.request import ChatRequest
from ...values.sse import encode
from .encoder import Encoder
from .exchange import Exchange
from .history import bare_references, conversation, instructions, references
from .output import new_id
from .request import ResponsesRequest, decode
from .state import Chain, ResponseState


class ResponsesDialect:
    name = "responses"
    citation_style: CitationStyle = "link"

    def __init__(self, state: ResponseState) -> None:
        self._state = state

    async def decode(self, raw: bytes, owner: str) -> Decoded:
        asked = decode(raw)
        chain = Chain()
        if asked.previous_response_id:
            chain = await self._state.chain(owner, asked.previous_response_id, "previous_response_id")
        known, cited = await self._state.known(owner, references(asked), bare_references(asked))
        talk = conversation(asked, chain.messages, known, chain.items)
        request = ChatRequest(
            {**asked.body, "messages": [*instructions(asked, known), *talk.messages]},
            asked.raw,
            asked.model,
            asked.stream,
            include_usage=True,
            search=asked.search,
            sources={**chain.sources, **cited},
            changed=True,
        )
        writer = partial(ResponseWriter, self._state, owner, asked, chain.ids, talk.own)
        return Decoded(request, writer, hidden_turns=True)

    def error(self, failed: Failed) -> bytes:
        return orjson.dumps({"error": failed.error})

    def error_event(self, failed: Failed) -> bytes:
        return encode(self.error(failed))


class ResponseWriter:
    """One answer on its way out: the encoder, and what must be kept of it before the client hears of its end.

    `ancestors` are the responses that it builds on, `own` what the request itself has added to the conversation."""

    def __init__(
        self,
        state: ResponseState,
        owner: str,
        asked: ResponsesRequest,
        ancestors: list[str],
        own: list[dict[str, Any]],
    ) -> None:
        self._encoder = Encoder(asked, new_id("resp"))
        self._state = state
        self._owner = owner
        self._asked = asked
        self._ancestors = ancestors
        self._own = own

    def feed(self, events: Sequence[Event]) -> bytes:
        return self._encoder.feed(events)

    async def end(self, events: Sequence[Event]) -> bytes:
        data = self._encoder.close(events)
        stored = self._asked.store and await self._keep()
        return data + self._encoder.complete(stored=stored)

    async def whole(self, events: Sequence[Event]) -> bytes:
        await self.end(events)
        return orjson.dumps(self._encoder.response)

    async def _keep(self) -> bool:
        encoder = self._encoder
        items = [{"id": new_id("msg"), **item} for item in self._asked.items]
        response = encoder.response
        outputs = [item["id"] for item in response["output"]]
        exchange = Exchange(items, [*self._own, *encoder.rounds.messages], encoder.sources, outputs)
        return await self._state.keep(self._owner, response, self._ancestors, exchange, encoder.known_items)
