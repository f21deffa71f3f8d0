"""An upstream's answer on its way to the client as bytes, whatever they are. Handed the upstream's reply; sends it on
piece by piece, each when the client has taken the one before, and tells how it ended. What is refused before anything
of it was sent comes back as a `Refusal`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

from starlette.types import Send

from providers.records import dataclass

from ..context import RequestContext
from ..upstreams.fallback import FallbackPlan
from ..upstreams.transport import Body, Broken, Reply
from ..values.dialect import AnswerWriter
from ..values.estimates import tokens_asked, tokens_of, tokens_streamed
from ..values.events import Failed
from ..watching.steps import Operation, Tokens, tokens_in
from .delivery import send_body, send_failure
from .event_stream import EventStream
from .forwarded_json import has_openai_shape, parsed
from .pieces import LastPiece, as_message, raw_headers

_USAGE = re.compile(rb'"usage"\s*:\s*(?=\{)')
_TAIL = 4096  # bytes of a body's end in which its usage is looked for
_LONGEST_ERROR = 100_000  # bytes
_OPERATIONS: dict[str, Operation] = {
    "/chat/completions": "chat",
    "/messages": "chat",
    "/completions": "text_completion",
    "/embeddings": "embeddings",
}
_UNBUFFERED = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class ForwardedRequest:
    """What goes to the plan's current upstream, and the headers of ours that go down with its answer. `writer` makes
    one body of events, where the answer may be told as events."""

    __slots__ = ("body", "completes", "down", "headers", "is_message", "method", "operation", "path", "writer")

    def __init__(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        down: Mapping[str, str],
        writer: Callable[[], AnswerWriter] | None = None,
    ) -> None:
        self.method = method
        self.path = path
        self.body = body
        self.headers = headers
        self.down = down
        self.writer = writer
        plain = path.partition("?")[0]
        posted = method == "POST"
        self.completes = posted and plain.endswith("/completions")  # it is known what their answers look like
        self.is_message = posted and plain == "/messages"  # and those of messages
        self.operation: Operation = _OPERATIONS.get(plain, "")


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is none, before anything of it was sent. `body` are the upstream's own words with its `headers`,
    where they can go out as they are."""

    failed: Failed
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class ForwardedAnswer:
    """A stream that breaks off ends in an error event, any other body in a broken connection."""

    def __init__(
        self,
        context: RequestContext,
        send: Send,
        plan: FallbackPlan,
        request: ForwardedRequest,
        stream: EventStream | None = None,
    ) -> None:
        forwarding = plan.current.upstream.forwarding
        assert forwarding is not None
        self._forwarding = forwarding
        self._dialect = context.dialect
        self._observer = context.observer
        self._send = send
        self._plan = plan
        self._request = request
        self._stream = stream
        self._started = False
        self._is_event_stream = False
        self._over = False  # all of the answer has left
        self._cost_open = False  # a question was asked, and what it cost was not told yet
        self._usage: Mapping[str, Any] = {}
        self._tail = bytearray()  # the end of what has passed so far
        self._passed = 0  # bytes, all of them
        self._longest = b""  # the longest piece of them, which holds most events
        self._last = LastPiece()

    @property
    def in_stream(self) -> bool:
        """Has a stream begun, that can end in an error event?"""
        return self._is_event_stream or (self._stream is not None and self._stream.started)

    async def pass_on(self) -> Refusal | None:
        """Asks, and lets the answer pass; or says why there is none."""
        async with self._plan.place() as full:
            return Refusal(full) if full else await self._ask()

    async def _ask(self) -> Refusal | None:
        request = self._request
        headers = {**request.headers, **self._plan.note_question()}
        self._cost_open = True
        with await self._forwarding.forward(
            request.method, request.path, headers, request.body, streamed=self._stream is not None
        ) as reply:
            try:
                refusal = await (self._refusal(reply) if reply.status >= 400 else self._answer(reply))
            except Broken as broken:
                if not self._started:
                    self._cost_open = False
                    return Refusal(broken.failed)
                self._note_failure(broken.failed)
                await self.break_off(broken.failed)
                return None
        if refusal:
            self._cost_open = False
        return refusal

    async def _answer(self, reply: Reply) -> Refusal | None:
        await self._pass_bytes(reply)
        return None

    async def _pass_bytes(self, reply: Reply, first: bytes = b"") -> None:
        """Piece by piece, `first` before all others."""
        first = first or await reply.body.read()
        await self._start(reply)
        if first:
            self._take_piece(first)
            await self._last.taken()
        while await reply.body.feed(self._take_piece):
            await self._last.taken()
        self._usage = _usage_in(bytes(self._tail[-_TAIL:]))
        self._note_end(reply.status)
        await self._send({"type": "http.response.body", "body": b""})

    def _take_piece(self, data: bytes) -> bool:
        self._note_piece(data)
        self._tail += data
        if len(self._tail) > 4 * _TAIL:  # now and then, because cutting it costs more than letting it grow
            del self._tail[:-_TAIL]
        return self._last.note(self._send(as_message(data)))

    async def _start(self, reply: Reply) -> None:
        self._started = True
        headers = {**reply.headers, **self._request.down}
        self._is_event_stream = headers.get("content-type", "").startswith("text/event-stream")
        if self._is_event_stream:
            headers |= _UNBUFFERED
        await self._send({"type": "http.response.start", "status": reply.status, "headers": raw_headers(headers)})

    # Where there is no answer

    async def _refusal(self, reply: Reply) -> Refusal:
        try:
            body, whole = await gathered(reply.body, _LONGEST_ERROR)
        except Broken:
            body, whole = b"", False  # its status says enough
        assert reply.failed is not None
        keeps = self._keeps_words(body, whole=whole)
        return Refusal(reply.failed, body if keeps else b"", reply.headers)

    def _keeps_words(self, body: bytes, *, whole: bool) -> bool:
        """May a refusal go out as the upstream wrote it?"""
        return not self._request.completes or (whole and has_openai_shape(parsed(body)))

    async def refuse(self, refusal: Refusal) -> None:
        """It stays with this failure: nobody else is asked."""
        self._note_failure(refusal.failed)
        if refusal.body and not self.in_stream:
            self._stop_pings()
            headers = {**refusal.headers, **self._plan.advice, **self._request.down}
            await send_body(self._send, refusal.failed.status, refusal.body, headers)
        else:
            failed = refusal.failed
            await self.break_off(replace(failed, headers={**failed.headers, **self._plan.advice}))

    async def break_off(self, failed: Failed) -> None:
        """Ends an answer in its middle; or says this instead of one, where none has begun."""
        if self._over:
            return
        self._observer.fail(_outcome(failed))
        if self._stream and self._stream.started:
            await self._stream.end(self._dialect.error_event(failed))
        elif self._is_event_stream:
            await self._send({"type": "http.response.body", "body": b"\n\n" + self._dialect.error_event(failed)})
        elif not self._started:
            self._stop_pings()
            await send_failure(self._send, self._dialect, failed, self._request.down)
        # Any other body is left without an end: the server cuts the connection off then, and it does not look whole.

    @property
    def _own_key(self) -> str:
        """The key that the client brought for the upstream, if it did."""
        return self._request.headers.get("authorization", "")

    def _dressed(self, failed: Failed) -> Failed:
        return self._forwarding.dressed(failed, self._own_key)

    def _stop_pings(self) -> None:
        if self._stream:
            self._stream.stop()

    # What is told of it

    def _note_end(self, status: int) -> None:
        self._over = True
        self._cost_open = False
        self._plan.note_forwarded(status, self._request.operation, self._tokens())

    def end(self) -> None:
        """Whatever ended it: what it had cost until then is known, or estimated."""
        if self._cost_open:
            self._plan.note_left(self._tokens())
        self._last.drop()

    def _tokens(self) -> Tokens:
        """As the server counted them; else by what was asked and what has passed."""
        counted = tokens_in(self._counted())
        if not counted.none or not self._request.operation:
            return counted
        passed = tokens_streamed(self._passed, self._longest) if self.in_stream else tokens_of(self._passed)
        said = 0 if self._request.operation == "embeddings" else passed
        return Tokens(tokens_asked(self._request.body), said, estimated=True)

    def _note_piece(self, data: bytes) -> None:
        size = len(data)
        self._passed += size
        if size > len(self._longest):
            self._longest = data

    def _counted(self) -> Mapping[str, Any]:
        """What the answer says that it cost, as far as it has said so."""
        return self._usage

    def _note_failure(self, failed: Failed, unnamed: str = "") -> None:
        self._observer.fail(_outcome(failed, unnamed))
        self._plan.note_failure(failed.status, failed.error.get("code"))


async def gathered(body: Body, longest: int, first: bytes = b"") -> tuple[bytes, bool]:
    """All of a body, `first` and what follows; and whether this is all of it. No more is read than it takes to know."""
    parts, size = [first], len(first)
    while size <= longest and (data := await body.read()):
        parts.append(data)
        size += len(data)
    return first if len(parts) == 1 else b"".join(parts), size <= longest


def _outcome(failed: Failed, unnamed: str = "") -> str:
    code = failed.error.get("code")
    return code if isinstance(code, str) and code else unnamed or f"http_{failed.status}"


def _usage_in(tail: bytes) -> dict[str, Any]:
    """The usage that stands last in the end of a body."""
    places = [found.end() for found in _USAGE.finditer(tail)]
    return _object_at(tail[places[-1] :].decode("utf-8", "replace")) if places else {}


def _object_at(text: str) -> dict[str, Any]:
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
