"""The Responses API as a dialect: a request is decoded, what it builds on is found, and its answer is kept for its
caller before the client hears of its end. Handed bodies by the route; hands on requests as the engine takes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from ...values.dialect import Decoded
from ...values.events import Event, Failed, Finished, RoundFinished, ToolFinished
from ...values.request import ChatRequest
from ...values.sse import encode
from .encoder import Encoder
from .history import bare_references, messages, references
from .output import new_id
from .request import ResponsesRequest, decode
from .state import ResponseState, Stored, known_items


class ResponsesDialect:
    name = "responses"

    def __init__(self, state: ResponseState) -> None:
        self._state = state

    async def decode(self, raw: bytes, owner: str) -> Decoded:
        asked = decode(raw)
        request, instructions = await self._as_chat(asked, owner)
        return Decoded(request, partial(ResponseWriter, self._state, asked, instructions), hidden_turns=True)

    def error(self, failed: Failed) -> bytes:
        return orjson.dumps({"error": failed.error})

    def error_event(self, failed: Failed) -> bytes:
        return encode(self.error(failed))

    async def _as_chat(self, asked: ResponsesRequest, owner: str) -> tuple[ChatRequest, int]:
        """The request as the engine takes it, and how many of its messages are instructions."""
        previous, sources = list[dict[str, Any]](), dict[int, tuple[str, str]]()
        if asked.previous_response_id:
            stored = await self._state.find(owner, asked.previous_response_id, "previous_response_id")
            previous, sources = stored.messages, stored.sources
        known, cited = await self._state.known(owner, references(asked), bare_references(asked))
        conversation = messages(replace(asked, instructions=None), previous, known)
        told = messages(replace(asked, items=[]), (), known) if asked.instructions else []
        body = {**asked.body, "messages": [*told, *conversation]}
        request = ChatRequest(
            body,
            asked.raw,
            asked.model,
            asked.stream,
            include_usage=True,
            search=asked.search,
            sources={**sources, **cited},
            changed=True,
        )
        return request, len(told)


class ResponseWriter:
    """One answer on its way out: the encoder, and what must be kept of it before the client hears of its end."""

    def __init__(self, state: ResponseState, asked: ResponsesRequest, instructions: int, request: ChatRequest) -> None:
        self._encoder = Encoder(asked, new_id("resp"))
        self._state = state
        self._asked = asked
        self._request = request
        self._instructions = instructions
        self._sources = dict(request.sources)
        self._transcript: list[Mapping[str, Any]] = []

    def feed(self, events: Iterable[Event]) -> bytes:
        batch = list(events)
        for event in batch:
            if isinstance(event, ToolFinished):
                self._sources.update({source.n: (source.url, source.title) for source in event.sources})
            elif isinstance(event, RoundFinished):
                self._transcript += event.messages
        return self._encoder.feed(batch)

    def whole(self, events: Iterable[Event]) -> bytes:
        self.feed(events)
        return orjson.dumps(self._encoder.response)

    async def keep(self, finished: Finished) -> None:
        if not self._asked.store:
            return
        response = self._encoder.response
        transcript = [_with_refusal(message) for message in self._transcript]
        before = self._request.body["messages"][self._instructions :]
        items = [{"id": new_id("msg"), **item} for item in self._asked.items]
        stored = Stored(response, [*before, *transcript], self._sources, items)
        await self._state.keep(self._request.caller, stored, known_items(response, transcript, self._encoder.calls))


def _with_refusal(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as it is told to the model again: a refusal is what it said."""
    plain = {key: value for key, value in message.items() if key != "refusal"}
    return {**plain, "content": plain.get("content") or message.get("refusal")} if "refusal" in message else plain
