"""A forwarded answer for tests of the forwarder: a scripted upstream, the wire that its bytes go into, and a clock that
leaps. Handed replies; hands back what was sent and when.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from providers.web.answer import Take
from proxy.config.upstreams import UpstreamConfig
from proxy.context import RequestContext
from proxy.dialects.chat import ChatDialect, ChatWriter, decode
from proxy.serving.event_stream import EventStream
from proxy.serving.forwarded_answer import ForwardedRequest
from proxy.serving.forwarding import Forwarder
from proxy.upstreams.answer_body import LAST_BYTES
from proxy.upstreams.client import UpstreamClient
from proxy.upstreams.failures import masked, masked_failure
from proxy.upstreams.fallback import Candidate, FallbackPlan
from proxy.upstreams.transport import Broken, Reply
from proxy.values.dialect import Dialect
from proxy.values.errors import failure, truncated
from proxy.values.events import Event, Failed
from proxy.values.sse import DONE
from proxy.watching.observer import Listener, Observer
from tests.fakes.clock import in_leaping_time
from tests.fakes.delivery import Wire

# What upstreams say here
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
HELLO = b'data: {"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}]}\n\n'
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
ANSWER = ROLE + HELLO + FINISH + USAGE + DONE
ERROR = b'data: {"error":{"message":"busy","type":"x","param":null,"code":"overloaded"}}\n\n'
WHOLE = {
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
}
JSON = json.dumps(WHOLE).encode()
CUT = Broken(truncated())


def body(made: Any) -> bytes:
    return b"".join(made.wire.bodies)


def error(event: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(event.removeprefix(b"data: "))["error"]
    return found


KEY = "sk-canary-0123456789"
DOWN = {"x-groundwire-search": "off; reason=header"}
RAW = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'

# What a body does: bytes come, so many seconds pass, it breaks off, or a bug raises something else.
Step = bytes | float | Exception


@dataclass(frozen=True)
class Scripted:
    """One reply; `awaited` are the seconds before its head."""

    steps: Sequence[Step]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    awaited: float = 0.0


def reply(*steps: Step, kind: str = "text/event-stream", **more: Any) -> Scripted:
    return Scripted(steps, headers={"content-type": kind}, **more)


class ScriptedBody:
    """The body of one of its replies."""

    def __init__(self, upstream: ScriptedUpstream, steps: Sequence[Step]) -> None:
        self._upstream = upstream
        self._steps = list(steps)
        upstream.open += 1

    async def read(self) -> bytes:
        while self._steps:
            step = self._steps.pop(0)
            if isinstance(step, Exception):
                raise step
            if isinstance(step, bytes):
                self._upstream.read += len(step)
                return step
            await asyncio.sleep(step)
        return b""

    async def feed(self, take: Take) -> bool:
        while data := await self.read():
            if not take(data):
                return True
        return False

    async def finish(self) -> None:
        with suppress(TimeoutError, Broken):
            async with asyncio.timeout(LAST_BYTES):
                while await self.read():
                    pass

    def close(self) -> None:
        self._upstream.open -= 1


class ScriptedUpstream:
    """As much of a transport as the forwarder needs. Replies in turn, the last one for ever."""

    name = "scripted"
    body: type[ScriptedBody] = ScriptedBody

    def __init__(self, *replies: Scripted) -> None:
        self._replies = replies
        self.asked = 0
        self.read = 0  # bytes that were taken from it
        self.open = 0  # answers under way

    def stream(self, body: dict[str, Any], headers: Mapping[str, str]) -> AsyncGenerator[list[Event], None]:
        raise NotImplementedError

    async def models(self) -> list[dict[str, Any]]:
        return []

    async def aclose(self) -> None: ...

    async def forward(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, *, streamed: bool = False
    ) -> Reply:
        script = self._replies[min(self.asked, len(self._replies) - 1)]
        self.asked += 1
        await asyncio.sleep(script.awaited)
        failed = failure(script.status, "It refused.") if script.status >= 400 else None
        return Reply(script.status, script.headers, self.body(self, script.steps), failed)

    def unreadable(self, first: bytes, passed: str) -> Failed:
        return failure(502, "a page", code="upstream_bad_response")

    def dressed(self, failed: Failed, passed: str) -> Failed:
        return masked_failure(failed, [KEY])

    def without_key(self, data: bytes, passed: str) -> bytes:
        return masked(data.decode("latin-1"), [KEY]).encode("latin-1")


class Told(Listener):
    """Takes down what the observer is told."""

    def __init__(self) -> None:
        self.steps: list[Any] = []

    def told(self, request: Observer, step: Any) -> None:
        self.steps.append(step)


class Forwarded:
    """One forwarded request, to the first of these upstreams and then to those behind it."""

    def __init__(
        self,
        *upstreams: ScriptedUpstream,
        stream: bool = True,
        path: str = "/chat/completions",
        deadline: float = 600.0,
        slow: float = 0.0,
        stopping: bool = False,
        writer: bool = True,
        dialect: Dialect | None = None,
    ) -> None:
        self.wire = Wire(slow)
        self.told = Told()
        self.observer = Observer([self.told])
        self.upstreams = upstreams
        self._stream = stream
        self._path = path
        self._deadline = deadline
        self._stopping = stopping
        self._dialect = dialect or ChatDialect()
        self._writer = partial(ChatWriter, decode(RAW)) if writer else None

    async def run(self) -> None:
        deadline = asyncio.get_running_loop().time() + self._deadline
        context = RequestContext("req_1", self._dialect, deadline, self.observer)
        clients = [
            UpstreamClient(UpstreamConfig(name=f"up{n}", base_url="http://127.0.0.1:1/v1"), upstream)
            for n, upstream in enumerate(self.upstreams)
        ]
        plan = FallbackPlan([Candidate(client, "m", {}) for client in clients], self.observer)
        stream = EventStream(self.wire.send, DOWN, ping=self._dialect.ping) if self._stream else None
        request = ForwardedRequest("POST", self._path, RAW, {}, DOWN, self._writer)
        try:
            while not await Forwarder(lambda: self._stopping).forward(context, self.wire.send, plan, request, stream):
                pass
        finally:
            if stream:
                stream.stop()

    def steps(self, kind: type) -> list[Any]:
        return [step for step in self.told.steps if isinstance(step, kind)]


def forwarded(*replies: Scripted, **more: Any) -> Forwarded:
    """A request that went its way, to one upstream."""
    return forwarded_by(ScriptedUpstream(*replies), **more)


def forwarded_by(*upstreams: ScriptedUpstream, **more: Any) -> Forwarded:
    async def run() -> Forwarded:
        made = Forwarded(*upstreams, **more)
        await made.run()
        return await _over(made)

    return in_leaping_time(run())


def cancelled(*replies: Scripted, after: float, **more: Any) -> Forwarded:
    """One that somebody broke off."""

    async def run() -> Forwarded:
        made = Forwarded(ScriptedUpstream(*replies), **more)
        task = asyncio.create_task(made.run())
        asyncio.get_running_loop().call_later(after, task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            return await _over(made)
        raise AssertionError("nobody broke it off")

    return in_leaping_time(run())


async def _over(made: Forwarded) -> Forwarded:
    """However it ended: nothing is at work any more, and nothing is sent, however long one waits."""
    assert all(upstream.open == 0 for upstream in made.upstreams)
    sent = list(made.wire.sent)
    await asyncio.sleep(100)
    assert made.wire.sent == sent
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return made
