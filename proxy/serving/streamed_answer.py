"""A forwarded answer that is sent as a stream of events, whichever API's: what its beginning and its two ends need.
Handed what a stream told of itself; ends the client's stream in the same way, and reads the upstream's to its end.
"""

from __future__ import annotations

from starlette.types import Send

from ..context import RequestContext
from ..upstreams.fallback import FallbackPlan
from ..upstreams.transport import Reply
from ..values.events import Failed
from ..watching.steps import FirstContent
from .event_stream import EventStream
from .forwarded_answer import ForwardedAnswer, ForwardedRequest, Refusal

MOST_EARLY = 65_536  # bytes of blanks, comments and pings before an answer begins


class StreamedAnswer(ForwardedAnswer):
    def __init__(
        self,
        context: RequestContext,
        send: Send,
        plan: FallbackPlan,
        request: ForwardedRequest,
        stream: EventStream,
    ) -> None:
        super().__init__(context, send, plan, request, stream)
        self._out = stream
        self._headers: dict[str, str] = {}  # the upstream's, that go down with it
        self._early = b""  # what came before the first event
        self._said = False  # an event has left
        self._content_told = False

    def _tell_content(self) -> None:
        self._content_told = True
        self._observer.tell(FirstContent())

    async def _end_well(self, reply: Reply) -> None:
        self._note_end(reply.status)
        self._observer.succeed()
        try:
            await reply.body.finish()
        finally:
            await self._out.close()

    async def _end_failed(self, found: Failed, error_event: bytes) -> Refusal | None:
        """`error_event` are the upstream's own words for it, where its clients can read them."""
        failed = self._dressed(found)
        if not self._said:
            return Refusal(failed)
        self._note_failure(failed, "upstream_error")
        theirs = error_event if failed.status == found.status else b""
        shown = self._forwarding.without_key(theirs, self._own_key) if theirs else self._dialect.error_event(failed)
        await self._out.end(shown)
        return None


def as_stream(reply: Reply) -> dict[str, str]:
    """The headers of a stream, whatever it was labelled."""
    labelled = reply.media_type == "text/event-stream"
    return {name: value for name, value in reply.headers.items() if labelled or name != "content-type"}
