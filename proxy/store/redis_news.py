"""What other processes tell over Redis: one connection hears all channels that somebody here listens to. Handed names
of channels, each with what to call; calls it when something was published there, and whenever something may have been
missed. News carries no content: who hears of some looks for itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .redis_client import CancelKept, RedisClient

log = logging.getLogger("groundwire")

Notify = Callable[[], object]
_HEARD = {"message", "subscribe"}  # what was said before the subscription held was not heard, so that counts too


class RedisNews:
    def __init__(self, redis: RedisClient, pause: float) -> None:
        self._redis = redis
        self._pause = pause
        self._listeners: dict[str, set[Notify]] = {}
        self._subscription: Any = None  # while there is one
        self._wanted = asyncio.Event()
        self._hearing: asyncio.Task[None] | None = None

    async def listen(self, name: str, notify: Notify) -> None:
        first = name not in self._listeners
        self._listeners.setdefault(name, set()).add(notify)
        self._wanted.set()
        if self._hearing is None:
            self._hearing = asyncio.create_task(self._hear())
        elif first and self._subscription is not None:
            await self._say(self._subscription.subscribe, name)

    async def leave(self, name: str, notify: Notify) -> None:
        listeners = self._listeners.get(name, set())
        listeners.discard(notify)
        if not listeners and self._listeners.pop(name, None) is not None and self._subscription is not None:
            await self._say(self._subscription.unsubscribe, name)

    async def aclose(self) -> None:
        if self._hearing:
            self._hearing.cancel()
            await asyncio.gather(self._hearing, return_exceptions=True)

    async def _say(self, command: Any, name: str) -> None:
        with suppress(Exception):  # the boundary to the library: then the connection is lost, and the next one knows
            await command(name)

    async def _hear(self) -> None:
        while True:
            await self._wanted.wait()
            if not self._listeners:
                self._wanted.clear()
                continue
            subscription = self._redis.subscription()
            try:
                with CancelKept():
                    await subscription.subscribe(*self._listeners)
                self._subscription = subscription
                while True:
                    with CancelKept():
                        message = await subscription.get_message(timeout=None)
                    await self._take(message)
            except Exception as error:  # the boundary to the library and its sockets
                log.debug("store: the connection for news was lost (%s)", type(error).__name__)
            finally:
                self._subscription = None
                with CancelKept(), suppress(Exception):
                    await subscription.aclose()
            await asyncio.sleep(self._pause)

    async def _take(self, message: dict[str, Any] | None) -> None:
        if message is not None and message["type"] in _HEARD:
            for notify in list(self._listeners.get(message["channel"].decode(), ())):
                notify()
