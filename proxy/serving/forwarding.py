"""Bytes both ways, for whatever gets no tools of ours. Handed a request that the edge let in and the upstreams that may
serve it; lets the first answer pass as it comes, within the time that an answer may take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import Send

from providers.deadlines import Deadline

from ..context import RequestContext
from ..upstreams.fallback import FallbackPlan
from ..values.errors import shutting_down, too_long
from .event_stream import EventStream
from .forwarded_answer import ForwardedAnswer, ForwardedRequest
from .forwarded_completion import StreamedCompletion, WholeCompletion
from .forwarded_message import ForwardedMessage, StreamedMessage


class Forwarder:
    def __init__(self, stopping: Callable[[], bool]) -> None:
        self._stopping = stopping

    async def forward(
        self,
        context: RequestContext,
        send: Send,
        plan: FallbackPlan,
        request: ForwardedRequest,
        stream: EventStream | None = None,
    ) -> bool:
        """Whether the request has its answer. If not, the plan's current upstream is to be asked, perhaps once more.

        `stream` is how a streamed answer goes out; it may have begun, with pings, while another upstream was asked.
        """
        answer = _answer(context, send, plan, request, stream)
        deadline = Deadline(context.running_loop, context.deadline)
        try:
            with deadline:
                refusal = await answer.pass_on()
                if refusal and await plan.recover(refusal.failed):
                    return False
                if refusal:
                    await answer.refuse(refusal)
        except TimeoutError:
            if not deadline.expired:
                raise
            await answer.break_off(too_long())
        except asyncio.CancelledError:
            if self._stopping() and answer.in_stream:
                await answer.break_off(shutting_down())
            raise
        finally:
            answer.end()
        return True


def _answer(
    context: RequestContext, send: Send, plan: FallbackPlan, request: ForwardedRequest, stream: EventStream | None
) -> ForwardedAnswer:
    if stream:
        streamed = StreamedMessage if request.is_message else StreamedCompletion
        return streamed(context, send, plan, request, stream)
    if request.is_message:
        return ForwardedMessage(context, send, plan, request)
    kind = WholeCompletion if request.completes else ForwardedAnswer
    return kind(context, send, plan, request)
