"""Requests that have ended: when whoever watches hears of them. In leaping time, where nothing but a wait takes any."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.server import ServerState

from proxy.config.settings import ServerConfig
from proxy.watching.observer import Listener, Observer
from tests.fakes.bad_heads import HOST
from tests.fakes.clock import leaping
from tests.fakes.wire import accepted

WHOLE = b"POST / HTTP/1.1\r\n%bContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}" % HOST


class Hearing(Listener):
    def __init__(self) -> None:
        self.told: list[str] = []

    def ended(self, request: Observer) -> None:
        self.told.append(f"{request.method} {request.outcome}")


class Clients:
    """Some, with a connection each to one edge."""

    def __init__(self, count: int) -> None:
        self.hearing = Hearing()
        self._state = ServerState()
        made = [accepted(ServerConfig(), self._state, [self.hearing]) for _ in range(count)]
        self.edge = made[0][0]._edge
        self._connected = [(connection, transport) for connection, _, transport in made]
        for connection, transport in self._connected:
            connection._edge, connection.app = self.edge, self.edge
            connection.connection_made(transport)

    async def ask(self, request: bytes) -> None:
        """Until all are answered."""
        answered = self._state.total_requests + len(self._connected)
        for connection, _ in self._connected:
            connection.data_received(request)
        while self._state.total_requests < answered or self._state.tasks:
            await asyncio.sleep(0)

    def leave(self) -> None:
        for connection, transport in self._connected:
            transport.close()
            connection.connection_lost(None)


@leaping
async def test_they_are_told_of_together_a_little_later() -> None:
    clients = Clients(3)
    told = clients.hearing.told
    await clients.ask(WHOLE)
    await clients.ask(WHOLE)
    await asyncio.sleep(0.019)
    assert told == [], "nobody who asks again waits for it"
    await asyncio.sleep(0.002)
    assert told == ["POST ok"] * 6
    await clients.ask(WHOLE)
    await asyncio.sleep(0.021)
    assert len(told) == 9
    clients.leave()


@leaping
async def test_before_somebody_asks_about_them() -> None:
    clients = Clients(1)
    await clients.ask(WHOLE)
    await clients.ask(b"GET / HTTP/1.1\r\n%b\r\n" % HOST)
    assert clients.hearing.told == ["POST ok"]
    clients.leave()


@leaping
async def test_and_before_there_are_very_many() -> None:
    clients = Clients(8)
    for _ in range(8):
        assert clients.hearing.told == []
        await clients.ask(WHOLE)
    assert clients.hearing.told == ["POST ok"] * 64
    clients.leave()


@leaping
async def test_and_before_the_end_of_all() -> None:
    clients = Clients(1)
    await clients.ask(WHOLE)
    heard: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        heard.append((await receive())["type"])
        heard.extend(clients.hearing.told)

    async def receive() -> Any:
        return {"type": "lifespan.shutdown"}

    clients.edge._app = application
    await clients.edge({"type": "lifespan"}, receive, receive)  # type: ignore[arg-type]
    assert heard == ["lifespan.shutdown", "POST ok"]
    clients.leave()
