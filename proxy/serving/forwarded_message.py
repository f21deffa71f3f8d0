"""The answer of an upstream that speaks Anthropic's Messages itself, on its way to the client as bytes. Handed the
upstream's reply; sends it on as it is, a stream by whole events with pings between them, and tells what it cost. What
is refused in another shape than this API's is dressed, and a stream that ends before its end says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

from starlette.types import Send

from ..context import RequestContext
from ..upstreams.fallback import FallbackPlan
from ..upstreams.transport import Broken, Reply
from ..values.errors import failure, truncated
from .event_stream import EventStream
from .forwarded_answer import ForwardedAnswer, ForwardedRequest, Refusal
from .forwarded_json import parsed
from .message_frames import MessageFrames
from .pieces import SENT
from .streamed_answer import MOST_EARLY, StreamedAnswer, as_stream

_CACHED = ("cache_read_input_tokens", "cache_creation_input_tokens")


class ForwardedMessage(ForwardedAnswer):
    """One in one piece."""

    def _keeps_words(self, body: bytes, *, whole: bool) -> bool:
        return whole and _has_shape(parsed(body))

    def _counted(self) -> Mapping[str, Any]:
        return _as_chat_counts(self._usage)


class StreamedMessage(StreamedAnswer, ForwardedMessage):
    def __init__(
        self, context: RequestContext, send: Send, plan: FallbackPlan, request: ForwardedRequest, stream: EventStream
    ) -> None:
        super().__init__(context, send, plan, request, stream)
        self._frames = MessageFrames()

    async def _answer(self, reply: Reply) -> Refusal | None:
        if reply.media_type != "text/event-stream":
            return await self._pass_other(reply)
        self._headers = as_stream(reply)
        frames = self._frames
        try:
            while not frames.over and await reply.body.feed(self._take):
                await self._last.taken()
            await self._write(frames.end())
        except Broken as broken:
            frames.failed = frames.failed or broken.failed
        if not frames.done:
            return await self._end_failed(frames.failed or truncated(), frames.error_event)
        await self._end_well(reply)
        return None

    async def _pass_other(self, reply: Reply) -> Refusal | None:
        """One body where a stream was asked for, or whatever it is: as it comes, where nothing else has left."""
        self._stop_pings()
        if self._out.started:
            text = "The model's server sent one answer where a stream was asked for."
            return Refusal(failure(502, text, code="upstream_bad_response"))
        await self._pass_bytes(reply)
        return None

    def _take(self, data: bytes) -> bool:
        """One read of the network. What may leave of it leaves at once."""
        self._note_piece(data)
        taken = self._last.note(self._write(self._frames.feed(data)))
        return taken and not self._frames.over

    def _write(self, out: bytes) -> Awaitable[None]:
        frames, stream = self._frames, self._out
        if frames.content_began and not self._content_told:
            self._tell_content()
        out = self._early + out
        waits = not (frames.begun or stream.started) and len(out) <= MOST_EARLY
        self._early = out if waits else b""  # a failure may be all that comes, with a status of its own
        if waits or not out:
            return SENT
        self._said = self._said or frames.begun
        if not stream.started:
            stream.headers |= self._headers
        return stream.write(out)

    def _counted(self) -> Mapping[str, Any]:
        return _as_chat_counts(self._frames.usage or self._usage)


def _has_shape(said: object) -> bool:
    """Is it an error as this API's clients read it?"""
    error = said.get("error") if isinstance(said, dict) and said.get("type") == "error" else None
    return isinstance(error, dict) and isinstance(error.get("type"), str) and isinstance(error.get("message"), str)


def _as_chat_counts(usage: Mapping[str, Any]) -> dict[str, Any]:
    """With what was cached as a part of what was read: here it is counted apart."""
    apart = [count for name in _CACHED if isinstance(count := usage.get(name), int)]
    read, cached = usage.get("input_tokens"), usage.get(_CACHED[0])
    all_read = (read if isinstance(read, int) else 0) + sum(apart)
    return {
        "prompt_tokens": all_read,
        "completion_tokens": usage.get("output_tokens"),
        "prompt_tokens_details": {"cached_tokens": cached},
    }
