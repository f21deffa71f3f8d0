"""`/v1/responses`: the same engine in another dialect, with a memory. Handed a request, finds what it builds on, lets
the engine answer, keeps the answer for its caller, and delivers. Also what was kept: read, listed and deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from ..answering.offer import OUR_NAMES, client_tools, without_idle_choice
from ..answering.turns import without_calls
from ..dialects.responses import encoder as responses
from ..dialects.responses.history import bare_references, messages, references
from ..dialects.responses.output import new_id
from ..dialects.responses.request import ResponsesRequest, decode
from ..dialects.responses.state import ResponseState, Stored, known_items
from ..house import House
from ..values.errors import refuse
from ..values.events import Event, Finished, ToolFinished
from ..values.request import ChatRequest
from . import preparation
from .delivery import Delivery, send_json, while_connected
from .edge import read_body
from .preparation import PreparedRequest


class Responses:
    """`POST /v1/responses`"""

    def __init__(self, house: House, delivery: Delivery, state: ResponseState) -> None:
        self._house = house
        self._delivery = delivery
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = decode(await read_body(receive, scope, self._house.config.server))
        await while_connected(receive, self._serve(scope, send, asked))

    async def _serve(self, scope: Scope, send: Send, asked: ResponsesRequest) -> None:
        request, told = await self._as_chat(scope, asked)
        prepared = await preparation.prepare(self._house, scope, request)
        answer = _ResponseWriter(self._state, asked, prepared, told)  # what is kept is whole, with search or without
        decision, request = prepared.decision, prepared.request
        events = self._house.answer(request if decision.offered else _without_search(request), decision, prepared.plan)
        await self._delivery.deliver(scope, send, events, answer, decision.header, stream=asked.stream)

    async def _as_chat(self, scope: Scope, asked: ResponsesRequest) -> tuple[ChatRequest, int]:
        """The request as the engine takes it, and how many of its messages are instructions."""
        owner = await preparation.owner(self._house, scope)
        previous, sources = list[dict[str, Any]](), dict[int, tuple[str, str]]()
        if asked.previous_response_id:
            stored = await self._state.find(owner, asked.previous_response_id, "previous_response_id")
            previous, sources = stored.messages, stored.sources
        known, cited = await self._state.known(owner, references(asked), bare_references(asked))
        conversation = messages(replace(asked, instructions=None), previous, known)
        told = messages(replace(asked, items=[]), (), known) if asked.instructions else []
        body = {**asked.body, "messages": [*told, *conversation]}
        request = ChatRequest(body, asked.raw, asked.model, asked.stream, True, asked.search, changed=True)
        request.sources = {**sources, **cited}
        return request, len(told)


class _ResponseWriter:
    """One answer on its way out: the encoder, and what must be kept of it before the client hears of its end."""

    def __init__(self, state: ResponseState, asked: ResponsesRequest, prepared: PreparedRequest, told: int) -> None:
        self._encoder = responses.Encoder(asked, new_id("resp"))
        self._state = state
        self._asked = asked
        self._request = prepared.request
        self._told = told
        self._sources = dict(prepared.request.sources)

    def feed(self, events: Iterable[Event]) -> bytes:
        batch = list(events)
        for event in batch:
            if isinstance(event, ToolFinished):
                self._sources.update({source.n: (source.url, source.title) for source in event.sources})
        return self._encoder.feed(batch)

    def whole(self, events: Iterable[Event]) -> bytes:
        self.feed(events)
        return orjson.dumps(self._encoder.response)

    async def keep(self, finished: Finished) -> None:
        if not self._asked.store:
            return
        response = self._encoder.response
        transcript = [_with_refusal(message) for message in finished.transcript]
        before = self._request.body["messages"][self._told :]
        items = [{"id": new_id("msg"), **item} for item in self._asked.items]
        stored = Stored(response, [*before, *transcript], self._sources, items)
        await self._state.keep(self._request.caller, stored, known_items(response, transcript, self._encoder.calls))


def _with_refusal(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as it is told to the model again: a refusal is what it said."""
    plain = {key: value for key, value in message.items() if key != "refusal"}
    return {**plain, "content": plain.get("content") or message.get("refusal")} if "refusal" in message else plain


def _without_search(request: ChatRequest) -> ChatRequest:
    """Where search is not offered nothing of ours stands in the history, and what spoke of tools goes with the last."""
    body = dict(request.body)
    body["messages"] = without_calls(body["messages"], OUR_NAMES.difference(client_tools(body)))
    return replace(request, body=without_idle_choice(body))


class StoredResponses:
    """`GET` and `DELETE /v1/responses/{id}`, `GET /v1/responses/{id}/input_items`"""

    def __init__(self, house: House, state: ResponseState) -> None:
        self._house = house
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        owner = await preparation.owner(self._house, scope)
        response_id = scope["path_params"]["id"]
        if scope["method"] == "DELETE":
            await self._state.delete(owner, response_id)
            body: dict[str, Any] = {"id": response_id, "object": "response", "deleted": True}
        else:
            if scope["path"].endswith("/input_items"):
                body = _page(await self._state.input_items(owner, response_id), scope["query_string"])
            else:
                body = (await self._state.find(owner, response_id)).response
        await send_json(send, 200, orjson.dumps(body))


def _page(items: Sequence[dict[str, Any]], query: bytes) -> dict[str, Any]:
    """A page of input items: the newest first, as OpenAI lists them, unless the client says otherwise."""
    said = dict(part.partition("=")[::2] for part in query.decode("latin-1").split("&"))
    listed = list(items if said.get("order") == "asc" else reversed(items))
    if after := said.get("after"):
        places = [at for at, item in enumerate(listed) if item["id"] == after]
        if not places:
            raise refuse(400, f"There is no item '{after}' to go on from.", param="after", code="invalid_value")
        listed = listed[places[0] + 1 :]
    limit = int(said["limit"][:4]) if said.get("limit", "").isdigit() else 20
    shown = listed[: max(1, min(limit, 100))]
    ends = {"first_id": shown[0]["id"] if shown else None, "last_id": shown[-1]["id"] if shown else None}
    return {"object": "list", "data": shown, **ends, "has_more": len(shown) < len(listed)}
