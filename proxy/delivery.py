"""How an answer leaves: straight to ASGI `send`, as one body or as a stream with keep-alives, and only while the
client is there. Handed bytes by the routes; hands them to the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from starlette.types import Receive, Send

from .dialects import chat
from .events import Failed
from .sse import PING

FIRST_PING = 15.0  # how long the first upstream answer is awaited before 200 goes out without it
PING_EVERY = 10.0

_STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


async def send_json(send: Send, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
    sized = {"content-type": "application/json", **(headers or {}), "content-length": str(len(body))}
    await send({"type": "http.response.start", "status": status, "headers": raw_headers(sized)})
    await send({"type": "http.response.body", "body": body})


async def send_failure(send: Send, failed: Failed, headers: Mapping[str, str] | None = None) -> None:
    await send_json(send, failed.status, chat.error_body(failed), {**(headers or {}), **failed.headers})


class EventStream:
    """A streamed answer. It starts with the first write, or by itself with a ping when nothing was written for long."""

    def __init__(
        self, send: Send, headers: Mapping[str, str], *, first: float = FIRST_PING, every: float = PING_EVERY
    ) -> None:
        self._send = send
        self._every = every
        self.headers = {**_STREAM_HEADERS, **headers}  # may change until the first write
        self._loop = asyncio.get_running_loop()
        self._quiet_since = self._loop.time()
        self._timer = self._loop.call_later(first, self._tick)
        self._ping: asyncio.Task[None] | None = None
        self.started = False

    async def write(self, data: bytes) -> None:
        self._quiet_since = self._loop.time()
        if not self.started:
            await self._start()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def close(self) -> None:
        self.stop()
        await self._send({"type": "http.response.body", "body": b""})

    def stop(self) -> None:
        """No more pings; whatever else happens to this answer."""
        self._timer.cancel()
        if self._ping:
            self._ping.cancel()

    async def _start(self) -> None:
        self.started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": raw_headers(self.headers)})

    def _tick(self) -> None:
        quiet = self._loop.time() - self._quiet_since
        if quiet >= self._every and (self._ping is None or self._ping.done()):
            self._ping = self._loop.create_task(self.write(PING))
            quiet = 0.0
        self._timer = self._loop.call_later(max(self._every - quiet, 0.001), self._tick)


async def while_connected(receive: Receive, work: Coroutine[Any, Any, object]) -> None:
    """Does `work` in this very task, and cancels it when the client leaves."""
    task = asyncio.current_task()
    assert task is not None
    left = False

    async def watch() -> None:
        nonlocal left
        while (await receive())["type"] != "http.disconnect":
            pass
        left = True
        task.cancel()

    watcher = asyncio.create_task(watch())
    try:
        await work
    except asyncio.CancelledError:
        if not left or task.uncancel():
            raise
    finally:
        watcher.cancel()


def raw_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(key.encode("latin-1"), value.encode("latin-1", "replace")) for key, value in headers.items()]
