"""An upstream's answer to a completion, on its way to the client as bytes: looked at before anything is sent, so that
what is no answer gets the status it deserves, and the client the form that it asked for. Handed the upstream's reply.
What is right is not changed: a stream passes through `ForwardedStream`, a whole answer as it is.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from typing import Any

from starlette.types import Send

from ..context import RequestContext
from ..upstreams.chunks import ChunkReader
from ..upstreams.fallback import FallbackPlan
from ..upstreams.transport import Body, Broken, Reply
from ..values.errors import failure, too_large, truncated
from ..values.events import Event, Failed, UsageSeen
from ..values.first_bytes import is_json, is_markup
from ..values.sse import DONE, EventTooLong, SSEDecoder, encode
from .delivery import send_body
from .event_stream import EventStream
from .forwarded_answer import ForwardedAnswer, ForwardedRequest, Refusal, gathered
from .forwarded_json import NO_JSON, as_chunk, error_in, is_utf8, parsed_apart, replaced, usage_in
from .forwarded_stream import ForwardedStream
from .pieces import SENT
from .streamed_answer import MOST_EARLY, StreamedAnswer, as_stream

_LOOKED_AT = 65_536  # bytes of a whole answer that are awaited before it is sent: no error is longer
_LARGEST = 32 * 1024 * 1024  # bytes of an answer that must be had whole before it can be sent


class ForwardedCompletion(ForwardedAnswer, ABC):
    """Tells by its first bytes what came, whatever it is labelled."""

    async def _answer(self, reply: Reply) -> Refusal | None:
        first = await reply.body.read()
        if first.isspace():
            first = await _behind_blanks(reply.body, first)
        if not first or first.isspace():
            return Refusal(truncated())
        if is_json(reply.media_type, first):
            return await self._take_json(reply, first)
        if is_markup(first):
            return Refusal(self._forwarding.unreadable(first, self._own_key))
        return await self._take_events(reply, first)

    @abstractmethod
    async def _take_json(self, reply: Reply, first: bytes) -> Refusal | None: ...

    @abstractmethod
    async def _take_events(self, reply: Reply, first: bytes) -> Refusal | None: ...

    def _no_answer(self, answer: Any) -> Refusal | None:
        """Why a body is none."""
        if answer is NO_JSON:
            text = "The model's server sent an answer that is not valid JSON."
            return Refusal(failure(502, text, code="upstream_bad_response"))
        failed = error_in(answer)
        return Refusal(self._dressed(failed)) if failed else None


class StreamedCompletion(StreamedAnswer, ForwardedCompletion):
    def __init__(
        self, context: RequestContext, send: Send, plan: FallbackPlan, request: ForwardedRequest, stream: EventStream
    ) -> None:
        super().__init__(context, send, plan, request, stream)
        self._events = ForwardedStream()

    async def _take_events(self, reply: Reply, first: bytes) -> Refusal | None:
        self._headers = as_stream(reply)
        events = self._events
        try:
            self._take(first)
            await self._last.taken()
            while not events.over and await reply.body.feed(self._take):
                await self._last.taken()
            await self._write(events.end())
        except Broken as broken:
            await self._write(events.end(broken.failed))
        if events.failed:
            return await self._end_failed(events.failed, events.error_event)
        await self._end_well(reply)
        return None

    def _take(self, data: bytes) -> bool:
        """One read of the network. What may leave of it leaves at once."""
        events = self._events
        self._note_piece(data)
        out, taken = events.feed(data), True
        if not self._content_told:
            if events.content_began:
                self._tell_content()
            taken = self._last.note(self._write(out))
        elif out:  # from now on there is nothing to decide
            taken = self._last.note(self._out.write(out))
        return taken and not events.over

    def _write(self, out: bytes) -> Awaitable[None]:
        if self._early:
            out = self._early + out
            self._early = b""
        events, stream = self._events, self._out
        if not out or (events.failed and not self._said and not events.content_began):
            return SENT  # a failure is all there is: it may have a status of its own
        if not (events.begun or stream.started or len(out) > MOST_EARLY):
            self._early = out
            return SENT
        self._said = events.begun
        if not stream.started:
            stream.headers |= self._headers
        return stream.write(out)

    async def _take_json(self, reply: Reply, first: bytes) -> Refusal | None:
        """One body where a stream was asked for: a stream of one chunk."""
        body, whole = await gathered(reply.body, _LARGEST, first)
        if not whole:
            return Refusal(too_large())
        answer = await parsed_apart(body)
        if refusal := self._no_answer(answer):
            return refusal
        chunk = as_chunk(answer)
        if chunk is None:
            return Refusal(truncated())
        self._usage = usage_in(chunk)
        self._tell_content()
        if not self._out.started:
            self._out.headers |= as_stream(reply)
        await self._out.write(encode(json.dumps(chunk, separators=(",", ":")).encode()) + DONE)
        self._note_piece(body)
        self._note_end(reply.status)
        await self._out.close()
        return None

    def _counted(self) -> Mapping[str, Any]:
        return self._usage or self._events.usage


class WholeCompletion(ForwardedCompletion):
    async def _take_json(self, reply: Reply, first: bytes) -> Refusal | None:
        body, whole = await gathered(reply.body, _LOOKED_AT, first)
        if not whole:
            await self._pass_bytes(reply, body)
            return None
        answer = await parsed_apart(body)
        if answer is NO_JSON and not is_utf8(body):
            body = replaced(body)
            answer = await parsed_apart(body)
        if refusal := self._no_answer(answer):
            return refusal
        self._usage = usage_in(answer) if isinstance(answer, dict) else {}
        await self._send_whole(reply, body)
        return None

    async def _take_events(self, reply: Reply, first: bytes) -> Refusal | None:
        """A stream where one body was asked for: its events as one body, where events can say it all."""
        if self._request.writer is None:
            text = "The model's server sent a stream where one answer was asked for."
            return Refusal(failure(502, text, code="upstream_bad_response"))
        events = await self._read_events(reply.body, first)
        if isinstance(events[-1], Failed):
            return Refusal(self._dressed(events[-1]))
        self._usage = next((event.usage for event in events if isinstance(event, UsageSeen)), {})
        await self._send_whole(reply, await self._request.writer().whole(events))
        return None

    async def _send_whole(self, reply: Reply, body: bytes) -> None:
        self._started = True
        self._note_piece(body)
        headers = {**reply.headers, **self._request.down}
        if reply.media_type != "application/json":  # it is, whatever it was labelled
            headers["content-type"] = "application/json"
        await send_body(self._send, reply.status, body, headers)
        self._note_end(reply.status)

    async def _read_events(self, body: Body, first: bytes) -> list[Event]:
        decoder = SSEDecoder()
        reader = ChunkReader(frozenset(self._plan.current.upstream.config.without_repairs))
        events: list[Event] = []
        size, data = 0, first
        try:
            while data and not reader.over:
                events += reader.feed(decoder.feed(data))
                size += len(data)
                if size > _LARGEST:
                    return [too_large()]
                data = await body.read()
        except EventTooLong:
            return [too_large()]
        except Broken as broken:
            if not reader.complete:
                return [broken.failed]
        return events if reader.over else events + reader.flush(decoder.flush())


async def _behind_blanks(body: Body, first: bytes) -> bytes:
    """Only what comes behind the blanks says what this is."""
    while first.isspace() and len(first) <= MOST_EARLY and (data := await body.read()):
        first += data
    return first
