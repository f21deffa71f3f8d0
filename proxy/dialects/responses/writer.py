"""An answer of the Responses API on its way out. Handed events; hands on frames or one object, and sees to it that what
must be kept of it is kept before the client hears of its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import orjson

from providers.apart import apart

from ...values.events import Event
from .encoder import Encoder
from .exchange import Exchange
from .output import new_id
from .request import ResponsesRequest
from .state import ResponseState


class ResponseWriter:
    """`ancestors` are the responses that it builds on, `own` what the request itself has added to the conversation."""

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

    @cached_property
    def _items(self) -> list[dict[str, Any]]:
        """The request's input as it is stored: each item with an id, its own or ours."""
        return [item if "id" in item else {"id": new_id("msg"), **item} for item in self._asked.items]

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
        exchange = await apart(len(self._asked.raw), self._exchange)
        return await self._state.keep(self._owner, encoder.response, self._ancestors, exchange, encoder.known_items)

    def _exchange(self) -> Exchange:
        encoder = self._encoder
        outputs = [item["id"] for item in encoder.response["output"]]
        return Exchange(self._items, [*self._own, *encoder.rounds.messages], encoder.sources, outputs)
