"""One question to a server that speaks Chat Completions. Handed a request body; hands on the events of its answer, a
list per network read, whether it comes as a stream or whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import orjson

from providers.apart import apart

from ..values.events import Event, Failed, TakeBatch
from ..values.first_bytes import begins_json, is_json, is_markup
from ..values.sse import EventTooLong
from .answer_body import HTTP_ERRORS, read_to_the_end
from .chunk_stream import ChunkStream
from .chunks import ChunkReader
from .openai_failures import bad_response
from .server_json import parse_whole

if TYPE_CHECKING:
    from providers.web.answer import Answer

    from .openai_transport import OpenAITransport

CHAT = "/chat/completions"


class AnswerEvents:
    """One question and the events of its answer, batch by batch. Its connection is left to the next question with the
    last of them; whoever leaves before that closes it."""

    __slots__ = ("_answer", "_body", "_headers", "_idle", "_over", "_passed", "_reader", "_response", "_stream", "_to")

    def __init__(self, to: OpenAITransport, body: dict[str, Any], headers: Mapping[str, str], reader: ChunkReader):
        self._to = to
        self._body = body
        self._headers = headers
        self._passed = headers.get("authorization", "")
        self._idle = to.idle_timeout
        self._reader = reader
        self._response: Answer | None = None
        self._over = False  # all events have been handed on

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Event]:
        if self._over:
            await self.aclose()
            raise StopAsyncIteration
        try:
            events = await self._ask() if self._response is None else []
            while not events:
                assert self._response is not None
                events = self._read(self._answer.counted(await self._response.read(self._idle)))
        except (*HTTP_ERRORS, EventTooLong) as error:
            return self._ended(self._broken(error))
        return events

    async def feed(self, take: TakeBatch) -> None:
        if self._over or self._response is None:
            return

        counted, read, reader = self._answer.counted, self._stream.feed, self._reader

        def take_bytes(data: bytes) -> bool:
            """As `_read`, without a call more: every piece of an answer passes here."""
            events = read(counted(data))
            if reader.over:
                take(self._last(events))
                return False
            return take(events) if events else True

        try:
            stopped = await self._response.feed(take_bytes, self._idle)
        except (*HTTP_ERRORS, EventTooLong) as error:
            take(self._ended(self._broken(error)))
        else:
            if not stopped:
                take(self._read(b""))

    async def aclose(self) -> None:
        """If all is said, the connection can be used again; but only once the end of the body has come."""
        response, self._response, self._over = self._response, None, True
        if response is not None:
            with response:
                if self._reader.over:
                    await read_to_the_end(response)

    async def _ask(self) -> list[Event]:
        """What the first bytes hold: all of an answer that is no stream, whatever it is labelled."""
        to, body = self._to, self._body
        # An answer in one piece has no first byte before its last.
        patience = to.first_byte_timeout if body.get("stream") else None
        self._response = response = await to.send("POST", CHAT, self._headers, orjson.dumps(body), patience)
        self._answer = answer = to.body(response)
        if response.status != 200:
            return self._ended([to.failures.refusal(response, await answer.error(), self._passed)])
        data = await answer.first(patience)
        if begins_json(data) or is_json(response.media_type, data):
            raw = data if response.is_read else await answer.whole(data)
            whole = await parse_whole(raw)
            if whole is None:
                return self._ended([bad_response("The model's server sent an answer that is not valid JSON.")])
            return self._ended(self._dressed(await apart(len(raw), self._reader.feed_answer, whole)))
        if is_markup(data):
            return self._ended([to.failures.unreadable(data, self._passed)])
        self._stream = ChunkStream(self._reader)
        return self._read(data)

    def _read(self, data: bytes) -> list[Event]:
        """The events of the next bytes of a stream; none of them are its end."""
        if not data:
            return self._ended(self._dressed(self._stream.flush()))
        events = self._stream.feed(data)
        return self._last(events) if self._reader.over else events

    def _last(self, events: list[Event]) -> list[Event]:
        """The model has said all. The connection stays until `aclose`, which may keep it for the next question."""
        self._over = True
        return self._dressed(events)

    def _ended(self, last: list[Event]) -> list[Event]:
        """Nothing more is read."""
        self._over = True
        if self._response is not None:
            self._response.close()
            self._response = None
        return last

    def _broken(self, error: Exception) -> list[Event]:
        """Once the model has said that it is done, a connection that then breaks or hangs has lost nothing."""
        reader = self._reader
        return reader.flush() if reader.complete else [self._to.failures.broken(error, begun=reader.begun)]

    def _dressed(self, events: list[Event]) -> list[Event]:
        """The last events of an answer, an error among them dressed."""
        last = events[-1]
        if isinstance(last, Failed):
            events[-1] = self._to.failures.dressed(last, self._passed)
        return events
