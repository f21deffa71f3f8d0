"""A streamed answer on its way to a client: its head, its frames, and a ping where nothing is said for long. Handed
whole frames to write; hands them to `send`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping

from starlette.types import Send

from ..values.sse import PING
from .pieces import as_message, raw_headers, writer_behind

FIRST_PING = 15.0  # how long the first upstream answer is awaited before 200 goes out without it
PING_EVERY = 10.0
_PART = 64 << 10  # bytes of a large piece that are sent before the client has taken those before them
_STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


class EventStream:
    """A streamed answer. It starts with the first write, or by itself when nothing was written for long: with what is
    held, or with a ping."""

    def __init__(
        self,
        send: Send,
        headers: Mapping[str, str],
        *,
        ping: bytes = PING,
        first: float = FIRST_PING,
        every: float = PING_EVERY,
    ) -> None:
        self._send = send
        self._send_piece = writer_behind(send)
        self._ping_bytes = ping
        self._first, self._every = first, every
        self.headers = {**_STREAM_HEADERS, **headers}  # may change until the first write
        self._loop = asyncio.get_running_loop()
        self._quiet_since = self._loop.time()
        self._timer = self._loop.call_later(min(first, every), self._tick)
        self._ping: asyncio.Task[None] | None = None
        self._inside_frame = False
        self._held = b""
        self.started = False

    async def hold(self, data: bytes) -> None:
        """To be sent when the stream starts, which it does not do for this."""
        if self.started:
            await self.write(data)
        else:
            self._held += data

    def write(self, data: bytes) -> Awaitable[None]:
        """No coroutine where nothing is to be waited for: every piece of an answer passes here."""
        self._quiet_since = self._loop.time()
        if not self.started or self._inside_frame or len(data) > _PART:
            return self._write_more(data)
        return self._send_piece(data)

    def write_last(self, data: bytes) -> Awaitable[None]:
        """The last words leave in one write with the end, if that comes at once. They are not one message with it: the
        end is said when the work is over, or a client that asks again would find its place at the model taken."""
        if not self.started or self._inside_frame or len(data) > _PART:
            return self.write(data)
        self._quiet_since = self._loop.time()
        return self._send({**as_message(data), "end_follows": True})

    async def _write_more(self, data: bytes) -> None:
        """What is to be sent before it goes along, and what is large goes in parts."""
        data, self._held = self._held + data, b""
        if not self.started:
            await self._start()
        if self._inside_frame:  # somebody stopped us there: what comes now is a frame of its own
            data, self._inside_frame = b"\n\n" + data, False
        if len(data) > _PART:
            await self._write_parts(data)
        else:
            await self._send_piece(data)

    async def _write_parts(self, data: bytes) -> None:
        """Large pieces in parts, or a client that takes nothing would have a copy of all of it. No ping may stand
        between two parts: they are cut anywhere."""
        if self._ping and not self._ping.done():
            await asyncio.wait({self._ping})
        self._inside_frame = True
        for at in range(0, len(data), _PART):
            await self._send_piece(data[at : at + _PART])
        self._inside_frame = False

    async def ping(self) -> None:
        await self.write(b"" if self._held else self._ping_bytes)

    async def end(self, last_words: bytes) -> None:
        """Closes it with an error event."""
        await self.write_last(last_words)
        await self.close()

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
        headers = raw_headers(self.headers)
        await self._send({"type": "http.response.start", "status": 200, "headers": headers, "body_follows": True})

    def _tick(self) -> None:
        quiet = self._loop.time() - self._quiet_since
        bearable = self._every if self.started else self._first
        silent = self._ping is None or self._ping.done()
        if quiet >= bearable and silent and not self._inside_frame:
            self._ping = self._loop.create_task(self.ping())
            quiet, bearable = 0.0, self._every
        self._timer = self._loop.call_later(max(bearable - quiet, 0.001), self._tick)
