"""Bytes both ways, for whatever gets no tools of ours. Handed a request that the edge let in and the upstreams that may
serve it; hands the first answer on as it comes, within the time that an answer may take.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.types import Send

from ..context import RequestContext
from ..upstreams.fallback import FallbackPlan
from ..upstreams.transport import Broken, Forwarding, Reply
from ..values.errors import shutting_down, too_long, truncated
from ..values.events import Failed
from ..watching.steps import FirstContent, Operation, tokens_in
from .delivery import raw_headers, send_failure

_ERRORS = (b'data: {"error"', b'data:{"error"')
_ENDS = (b"[DONE]", b'"finish_reason":"', b'"finish_reason": "', *_ERRORS)
_LONGEST_END = 40  # bytes: more than any of these
_USAGE = re.compile(rb'"usage"\s*:\s*(?=\{)')
_TAIL = 4096  # bytes of a body's end in which its usage, or an error, is looked for
# The first piece of an answer: a text that is not empty, or a call. What a server sends at once says neither.
_CONTENT = re.compile(rb'"(?:content|reasoning_content|reasoning|text|refusal)"\s*:\s*"[^"]|"tool_calls"\s*:\s*\[\s*\{')
_OPERATIONS: dict[str, Operation] = {
    "/chat/completions": "chat",
    "/completions": "text_completion",
    "/embeddings": "embeddings",
}
_UNBUFFERED = {"cache-control": "no-cache", "x-accel-buffering": "no"}


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """What goes to the plan's current upstream, and the headers of ours that go down with its answer."""

    method: str
    path: str
    body: bytes
    headers: Mapping[str, str]
    down: Mapping[str, str]
    stream: bool = False

    @property
    def says_when_whole(self) -> bool:
        """Only the streams of completions do."""
        return self._plain_path.endswith("/completions")

    @property
    def operation(self) -> Operation:
        return _OPERATIONS.get(self._plain_path, "")

    @property
    def _plain_path(self) -> str:
        return self.path.partition("?")[0]


class Forwarder:
    def __init__(self, stopping: Callable[[], bool]) -> None:
        self._stopping = stopping

    async def forward(self, context: RequestContext, send: Send, plan: FallbackPlan, request: ForwardedRequest) -> bool:
        """Whether an answer went out. If not, the plan's current upstream was in trouble, and another one is next."""
        upstream = plan.current.upstream
        assert isinstance(upstream.transport, Forwarding)
        reply_to = upstream.transport.forward(
            request.method, request.path, request.headers, request.body, streamed=request.stream
        )
        answer = _ForwardedAnswer(context, send, plan, request)
        plan.note_question()
        try:
            async with asyncio.timeout_at(context.deadline), reply_to as reply:
                if plan.fall_back(reply.status):
                    return False
                await answer.pass_on(reply)
        except Broken:
            cut = truncated()
            plan.note_failure(cut.status, cut.error["code"])
            await answer.break_off(cut)
        except TimeoutError:
            await answer.break_off(too_long())
        except asyncio.CancelledError:
            if self._stopping() and answer.streamed:
                await answer.break_off(shutting_down())
            raise
        return True


class _ForwardedAnswer:
    """One answer of an upstream on its way to the client. A stream that breaks off ends in an error event, any other
    body in a broken connection."""

    def __init__(self, context: RequestContext, send: Send, plan: FallbackPlan, request: ForwardedRequest) -> None:
        self._dialect = context.dialect
        self._observer = context.observer
        self._send = send
        self._plan = plan
        self._request = request
        self._started = False
        self._content_began = False
        self._tail = bytearray()  # the end of what has passed so far
        self.streamed = False

    async def pass_on(self, reply: Reply) -> None:
        await self._start(reply)
        whole = not (self.streamed and self._request.says_when_whole)
        async for data in reply.chunks:
            if self.streamed and not self._content_began:
                self._look_for_content(data)
            if not whole:
                window = self._tail[-_LONGEST_END:] + data
                whole = any(mark in window for mark in _ENDS)
            self._keep_tail(data)
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        if not whole:
            raise Broken
        self._note_end(reply.status)
        await self._end()

    def _look_for_content(self, data: bytes) -> None:
        if _CONTENT.search(data):
            self._content_began = True
            self._observer.tell(FirstContent())

    def _keep_tail(self, data: bytes) -> None:
        self._tail += data
        if len(self._tail) > 4 * _TAIL:  # now and then, because cutting it costs more than letting it grow
            del self._tail[:-_TAIL]

    def _note_end(self, status: int) -> None:
        """What a forwarded answer says of itself at its end."""
        tail = bytes(self._tail[-_TAIL:])
        if status >= 400:
            self._observer.fail(f"http_{status}")
            self._plan.note_failure(status)
        elif self.streamed and any(mark in tail for mark in _ERRORS):
            self._observer.fail("upstream_error")
            self._plan.note_failure(502, "upstream_error")
        self._plan.note_forwarded(status, self._request.operation, tokens_in(_usage_in(tail)))

    async def break_off(self, failed: Failed) -> None:
        self._observer.fail(failed.error.get("code"))
        if not self._started:
            await send_failure(self._send, self._dialect, failed, self._request.down)
        elif self.streamed:
            await self._end(b"\n\n" + self._dialect.error_event(failed))
        # Any other body is left without an end: the server cuts the connection off then, and it does not look whole.

    async def _start(self, reply: Reply) -> None:
        headers = {**reply.headers, **self._request.down}
        self.streamed = headers.get("content-type", "").startswith("text/event-stream")
        if self.streamed:
            headers |= _UNBUFFERED
        await self._send({"type": "http.response.start", "status": reply.status, "headers": raw_headers(headers)})
        self._started = True

    async def _end(self, last_words: bytes = b"") -> None:
        """The end of a body; of a stream, with an error event if it is not whole."""
        await self._send({"type": "http.response.body", "body": last_words})


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
