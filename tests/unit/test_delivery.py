"""How answers leave: pings only into silence, and nothing goes on when the client has gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.serving.delivery import EventStream, send_json, while_connected
from proxy.values.sse import PING
from proxy.watching.observer import Observer


class Wire:
    """An ASGI server's end of the line: what was sent, and a client that may leave."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.leave = asyncio.Event()

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def receive(self) -> Any:
        await self.leave.wait()
        return {"type": "http.disconnect"}

    @property
    def bodies(self) -> list[bytes]:
        return [m["body"] for m in self.sent if m["type"] == "http.response.body"]


async def test_silence_begins_the_stream_and_is_filled_with_pings() -> None:
    wire = Wire()
    stream = EventStream(wire.send, {"x-a": "b"}, first=0.05, every=0.05)
    await asyncio.sleep(0.4)
    assert wire.sent[0]["status"] == 200
    assert (b"x-a", b"b") in wire.sent[0]["headers"]
    assert set(wire.bodies) == {PING}
    assert len(wire.bodies) >= 2
    await stream.write(b"data: 1\n\n")
    await stream.close()
    ended = list(wire.sent)
    await asyncio.sleep(0.15)
    assert wire.sent == ended, "no ping after the end"
    assert [m["type"] for m in wire.sent].count("http.response.start") == 1


async def test_no_ping_while_something_is_sent() -> None:
    wire = Wire()
    stream = EventStream(wire.send, {}, first=0.3, every=0.3)
    for _ in range(30):
        await stream.write(b"x")
        await asyncio.sleep(0.02)
    await stream.close()
    assert PING not in wire.bodies


async def test_before_the_first_limit_nothing_is_sent() -> None:
    wire = Wire()
    stream = EventStream(wire.send, {}, first=30, every=0.01)
    await asyncio.sleep(0.1)
    assert wire.sent == []
    assert not stream.started
    stream.stop()


async def test_work_ends_when_the_client_leaves() -> None:
    wire, closed = Wire(), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            closed.set()

    asyncio.get_running_loop().call_later(0.05, wire.leave.set)
    await while_connected(wire.receive, work(), Observer())
    assert closed.is_set()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0, "our own cancellation is taken back"


async def test_a_cancellation_from_outside_passes_through() -> None:
    wire = Wire()
    task = asyncio.create_task(while_connected(wire.receive, asyncio.sleep(60), Observer()))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_finished_work_leaves_no_watcher_behind() -> None:
    wire = Wire()
    await while_connected(wire.receive, send_json(wire.send, 200, b"{}"), Observer())
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1
    assert wire.bodies == [b"{}"]
