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
from ..watching.observer import Observer
from ..watching.steps import FirstContent, Forwarded, tokens_in
from .delivery import raw_headers, send_failure

_ENDS = (b"[DONE]", b'"finish_reason":"', b'"finish_reason": "', b'data: {"error"', b'data:{"error"')
_LONGEST_END = 40  # bytes: more than any of these
_USAGE = re.compile(rb'"usage"\s*:\s*(?=\{)')
_USAGE_LIMIT = 4096  # bytes of a body's end in which its usage is looked for
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
        return self.path.partition("?")[0].endswith("/completions")


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
        answer = _ForwardedAnswer(context, send, request)
        try:
            async with asyncio.timeout_at(context.deadline), reply_to as reply:
                if plan.fall_back(reply.status):
                    return False
                context.observer.tell(Forwarded(upstream.name, reply.status))
                await answer.pass_on(reply)
        except Broken:
            await answer.break_off(truncated())
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

    def __init__(self, context: RequestContext, send: Send, request: ForwardedRequest) -> None:
        self._dialect = context.dialect
        self._observer = context.observer
        self._send = send
        self._request = request
        self._started = False
        self._tail = b""  # the end of what has passed so far
        self.streamed = False

    async def pass_on(self, reply: Reply) -> None:
        await self._start(reply)
        whole = not (self.streamed and self._request.says_when_whole)
        async for data in reply.chunks:
            if not self._tail:
                self._observer.tell(FirstContent())
            if not whole:
                window = self._tail[-_LONGEST_END:] + data
                whole = any(mark in window for mark in _ENDS)
            self._tail = (self._tail + data)[-_USAGE_LIMIT:]
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        _tell_end(self._observer, reply.status, self._tail)
        await self._end(None if whole else truncated())

    async def break_off(self, failed: Failed) -> None:
        if not self._started:
            self._observer.fail(failed.error.get("code"))
            await send_failure(self._send, self._dialect, failed, self._request.down)
        elif self.streamed:
            await self._end(failed)
        else:
            raise Broken

    async def _start(self, reply: Reply) -> None:
        headers = {**reply.headers, **self._request.down}
        self.streamed = headers.get("content-type", "").startswith("text/event-stream")
        if self.streamed:
            headers |= _UNBUFFERED
        await self._send({"type": "http.response.start", "status": reply.status, "headers": raw_headers(headers)})
        self._started = True

    async def _end(self, failed: Failed | None) -> None:
        """The end of a body; of a stream, with an error event if it is not whole."""
        last_words = b""
        if failed:
            self._observer.fail(failed.error.get("code"))
            last_words = b"\n\n" + self._dialect.error_event(failed)
        await self._send({"type": "http.response.body", "body": last_words})


def _tell_end(observer: Observer, status: int, tail: bytes) -> None:
    """What a forwarded answer says of itself at its end."""
    if status >= 400:
        observer.fail(f"http_{status}")
    places = [found.end() for found in _USAGE.finditer(tail)]
    usage = _object_at(tail[places[-1] :].decode("utf-8", "replace")) if places else {}
    if usage:
        observer.tell(tokens_in(usage))


def _object_at(text: str) -> dict[str, Any]:
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
