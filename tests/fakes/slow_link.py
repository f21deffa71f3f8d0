"""A line between a client and a server on this machine that stands still in the middle of something large."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self


class SlowLink:
    """`async with SlowLink(port, after=1 << 20, pause=1.0) as link: link.port …`. In each direction of each connection
    bytes flow until there were `after` of them, then none for `pause` seconds, then the rest. A pause may be infinite.
    """

    def __init__(self, port: int, *, after: int, pause: float) -> None:
        self.port = 0
        self.pauses = 0
        self._server_port = port
        self._after = after
        self._pause = pause
        self._tasks = set[asyncio.Task[None]]()

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", self._server_port)
        for pair in ((reader, there[1]), (there[0], writer)):
            task = asyncio.create_task(self._carry(*pair))
            self._tasks.add(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        carried = 0
        with suppress(OSError):
            try:
                while data := await reader.read(1 << 18):
                    if carried < self._after <= carried + len(data):
                        self.pauses += 1
                        await asyncio.sleep(self._pause)
                    carried += len(data)
                    writer.write(data)
                    await writer.drain()
            finally:
                writer.close()
