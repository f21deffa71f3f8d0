"""What is kept of `/v1/responses`: read, listed, deleted, and if made in the background followed and cancelled, by the
caller whose it is. Handed requests that the edge let in; hands out response objects, pages of their input, and
streams of their events.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from ..callers.caller import Caller
from ..context import RequestContext, context_of
from ..dialects.responses.background import BackgroundResponses
from ..dialects.responses.state import ResponseState
from ..values.errors import RequestError, quoted, refuse, shutting_down
from .delivery import send_json, while_connected
from .event_stream import EventStream
from .followed_events import Followers, send_events
from .request_head import query_of

_NUMBER = re.compile(r"[0-9]{1,15}")


class StoredResponses:
    """`GET` and `DELETE /v1/responses/{id}`, `GET /v1/responses/{id}/input_items`, `POST /v1/responses/{id}/cancel`.
    `stopping` says that the server is going down."""

    def __init__(self, state: ResponseState, stopping: Callable[[], bool]) -> None:
        self._state = state
        self._background = BackgroundResponses(state)
        self._stopping = stopping
        self._followers = Followers()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context, query = context_of(scope), query_of(scope)
        if _wants_stream(scope, query):
            after = _starting_after(query)
            with self._followers.one_more(context.caller.line):
                events = self._stream(context, send, scope["path_params"]["id"], after)
                await while_connected(receive, events, context.observer)
        else:
            await send_json(send, 200, orjson.dumps(await self._body(scope, context.caller, query)))

    async def _body(self, scope: Scope, caller: Caller, query: Mapping[str, str]) -> dict[str, Any]:
        response_id = scope["path_params"]["id"]
        owner = await self._held_by(caller, response_id)
        if scope["method"] == "DELETE":
            await self._delete(owner, caller, response_id)
            return {"id": response_id, "object": "response", "deleted": True}
        if scope["method"] == "POST":
            return await self._background.cancel(owner, response_id)
        if scope["path"].endswith("/input_items"):
            return _page(await self._state.input_items(owner, response_id), query)
        return (await self._state.find(owner, response_id)).response

    async def _held_by(self, caller: Caller, response_id: str) -> str:
        return await self._state.held_by(response_id, caller.owner, caller.former)

    async def _delete(self, owner: str, caller: Caller, response_id: str) -> None:
        """What is still being made is cancelled first. Then it must be under one name with what it builds on."""
        if (await self._state.find(owner, response_id)).in_background:
            await self._background.cancel(owner, response_id)
        held_by = await self._state.adopt(response_id, caller.owner, caller.former)
        await self._state.delete(held_by, response_id)
        if held_by != owner:
            await self._state.journals.drop(owner, response_id)

    async def _stream(self, context: RequestContext, send: Send, response_id: str, after: int) -> None:
        stream = EventStream(send, {})
        try:
            owner = await self._held_by(context.caller, response_id)
            await send_events(stream, self._background.events(owner, response_id, after))
            context.observer.succeed()
        except RequestError as error:
            if not stream.started:
                raise
            context.observer.fail(error.failed.error.get("code"))
            await stream.end(context.dialect.error_event(error.failed))
        except asyncio.CancelledError:
            if self._stopping() and stream.started:
                await stream.end(context.dialect.error_event(shutting_down()))
            raise


def _wants_stream(scope: Scope, query: Mapping[str, str]) -> bool:
    plain = scope["method"] == "GET" and not scope["path"].endswith("/input_items")
    return plain and query.get("stream", "").lower() in ("true", "1")


def _starting_after(query: Mapping[str, str]) -> int:
    """The number after which a stream begins; without one it is all of it."""
    number = query.get("starting_after", "")
    if not number:
        return -1
    if not _NUMBER.fullmatch(number):
        text = "`starting_after` must be the number of an event: 0 or more."
        raise refuse(400, text, param="starting_after", code="invalid_value")
    return int(number)


def _page(items: Sequence[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """A page of input items: the newest first, as OpenAI lists them, unless the client says otherwise."""
    listed = list(items if query.get("order") == "asc" else reversed(items))
    if after := query.get("after"):
        places = [at for at, item in enumerate(listed) if item["id"] == after]
        if not places:
            raise refuse(400, f"There is no item {quoted(after)} to go on from.", param="after", code="invalid_value")
        listed = listed[places[0] + 1 :]
    said = query.get("limit", "")
    limit = int(said[:4]) if said.isascii() and said.isdigit() else 20
    shown = listed[: max(1, min(limit, 100))]
    ends = {"first_id": shown[0]["id"] if shown else None, "last_id": shown[-1]["id"] if shown else None}
    return {"object": "list", "data": shown, **ends, "has_more": len(shown) < len(listed)}
