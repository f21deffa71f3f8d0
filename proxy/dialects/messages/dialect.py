"""Anthropic's Messages API as a dialect. Handed bodies by the route; hands on requests as the engine takes them, and
for each a writer of its answer. Nothing is kept here but the name of the model that a caller used last.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import orjson

from providers.apart import in_thread, is_worth_a_thread

from ...answering.turns import keys_in
from ...store.store import Store
from ...values.dialect import REQUEST_ID, Decoded
from ...values.events import Event, Failed
from ...values.messages import said_since_question
from ...values.request import ChatRequest, CitationStyle
from ...values.sse import PING_EVENT
from .encoder import LONGEST_QUOTE, Encoder
from .errors import error_body, error_event, status_of
from .handles import Handles
from .history import conversation
from .last_models import LastModels
from .request import decode


class MessagesDialect:
    name = "messages"
    citation_style: CitationStyle = "link"
    ping = PING_EVENT
    id_headers = (REQUEST_ID, b"request-id")

    def __init__(self, store: Store, models: LastModels | None = None) -> None:
        self._store = store
        self._models = models

    async def decode(self, raw: bytes, owner: str, former: str = "") -> Decoded:
        is_long = is_worth_a_thread(raw)
        asked = await in_thread(decode, raw) if is_long else decode(raw)
        model, accepted = await self._model(asked.model, owner, former)
        handles = Handles(await self._store.secret(), owner, former)
        read = partial(conversation, asked.system, asked.messages, asked.tools, handles)
        talk = await in_thread(read) if is_long else read()
        request = ChatRequest(
            {**asked.body, "model": model, "messages": talk.messages},
            asked.raw,
            model,
            asked.stream,
            include_usage=True,
            search=asked.search,
            sources=talk.sources,
            changed=True,
            begun=said_since_question(talk.messages),
            citations="none" if asked.shown else None,  # where blocks cite, the text needs no markers
            left_out=asked.tools.left_out,
            longest_quote=LONGEST_QUOTE,
            wants_no_tools=asked.wants_no_tools,
            is_long=is_long,
        )

        def writer() -> MessageWriter:
            return MessageWriter(Encoder(asked, handles))

        keys = await in_thread(keys_in, talk.messages) if is_long else keys_in(talk.messages)
        ours = talk.sources or keys  # nobody else could read these
        return Decoded(
            request, writer, forward_to="" if ours else "/messages", as_sent=True, hidden_turns=True, accepted=accepted
        )

    async def _model(self, asked: str, owner: str, former: str) -> tuple[str, Callable[[], Awaitable[None]] | None]:
        """Who answers, and what is to be noted of it once that is allowed."""
        if self._models is None:
            return asked, None
        model, was_chosen = await self._models.chosen(asked, owner, former)
        return model, partial(self._models.use, model, owner) if was_chosen else None

    def status(self, failed: Failed) -> int:
        return status_of(failed)

    def error(self, failed: Failed) -> bytes:
        return error_body(failed)

    def error_event(self, failed: Failed) -> bytes:
        return error_event(failed)


class MessageWriter:
    """An answer on its way out, streamed or whole."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def feed(self, events: Sequence[Event]) -> bytes:
        return self._encoder.feed(events)

    async def end(self, events: Sequence[Event]) -> bytes:
        return self._encoder.feed(events)

    async def whole(self, events: Sequence[Event]) -> bytes:
        self._encoder.feed(events)
        return orjson.dumps(self._encoder.message)
