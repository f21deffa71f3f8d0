"""Asking a Redis, or Valkey, which speaks the same protocol. Handed commands; hands on the answers, or raises `Away`.

Nobody waits long for a Redis that is silent. Once it is lost nobody asks it, but for one command from time to time that
tries whether it is back. No line in the log shows a password.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

from providers.web.certificate_errors import certificate_trouble

from ..config.redis_address import RedisAddress
from .store import LogThrottle

log = logging.getLogger("groundwire")

TIMEOUT = 1.0  # seconds to connect, and for each answer
DEADLINE = 2.0  # for a command with all that belongs to it, such as looking up a name and logging in
LARGE = 1 << 20  # bytes: a command that carries more has more time, and has it for all that it does
SLOWEST = 4 << 20  # bytes that each second more is for
PAUSE = 5.0  # before a Redis that was lost is tried again
SEATS = 32  # commands at once; more wait here, so that a burst opens no thousand connections
LARGE_SEATS = 4  # of them large: what many carry at once takes each of them longer than it should

# By a Redis that is full or a replica, and answers everything else. All that we write with is one of these.
_MAY_BE_REFUSED = {"SET", "EVAL"}
_REFUSED = object()


class Away(Exception):
    """Redis was not asked, or did not answer, or did not do it: go on without."""


class CancelKept:
    """Around calls of the library, which takes a cancellation for an answer where both come in the same moment (so does
    `asyncio.wait_for` before Python 3.12): it is raised after all, else its task would never end."""

    __slots__ = ("_before", "_task")

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._before = task, task.cancelling()

    def __exit__(self, *_: object) -> None:
        if self._task.cancelling() > self._before:
            raise asyncio.CancelledError


class RedisClient:
    def __init__(
        self,
        address: RedisAddress,
        *,
        pause: float,
        timeout: float,
        on_back: Callable[[], None],
        on_connected: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_connected` is called for each new connection: a Redis that was started anew has none of the old ones."""

        async def connected(connection: Any) -> None:
            await connection.on_connect()
            on_connected()

        self._redis = _connections(address, timeout, timeout, connected)
        self._patient_redis = _connections(
            address, timeout, None, connected
        )  # that library's timeout is for answers of any size
        self._pause = pause
        self._deadline = timeout * DEADLINE / TIMEOUT
        self._on_back = on_back
        self._seats = asyncio.Semaphore(SEATS)
        self._large_seats = asyncio.Semaphore(LARGE_SEATS)
        self.away = False
        self._closed = False
        self._probing = False
        self._next_try = 0.0
        self._refusals = LogThrottle()

    async def aclose(self) -> None:
        self._closed = self.away = True
        try:
            async with asyncio.timeout(self._deadline):
                await self._redis.aclose()
                await self._patient_redis.aclose()
        except (RedisError, OSError, TimeoutError):
            log.debug("store: Redis did not take leave")

    async def ask(self, *command: Any, size: int = 0) -> Any:
        """What Redis answers. While it is away nobody waits for it, but for one command after each pause. `size`: how
        many bytes it carries there or back, where they may be many.
        """
        probe = self.away
        if self._closed or (probe and (self._probing or time.monotonic() < self._next_try)):
            raise Away
        self._probing = self._probing or probe
        try:
            answer = await self._answer(command, size, probe)
        except Away:
            raise
        except Exception as error:  # the boundary to the library and its sockets: all trouble there is one to us
            if not isinstance(error, ResponseError) or command[0] not in _MAY_BE_REFUSED:
                self._lost(error)
                raise Away from None
            if self._refusals.due():
                log.warning("store: Redis %s; this process's own memory stands in", _reason(error))
            answer = _REFUSED
        finally:
            if probe:
                self._probing = False
        if probe:
            self._back()
        if answer is _REFUSED:
            raise Away
        return answer

    def subscription(self) -> Any:
        """A connection of its own that hears what is published; whoever holds it sees to it that it is closed."""
        return self._patient_redis.pubsub()

    async def complaint(self, name: str, value: bytes) -> str:
        """What is wrong with Redis, in a few words; empty if it keeps the value that it is given."""
        try:
            async with asyncio.timeout(self._deadline):
                await self._redis.execute_command("SET", name, value, "PX", 1000)
                if await self._redis.execute_command("GET", name) != value:
                    return "does not give back what it was given"
        except Exception as error:  # the boundary to the library and its sockets
            return _reason(error)
        return ""

    async def _answer(self, command: tuple[Any, ...], size: int, probe: bool) -> Any:
        if size <= LARGE:
            return await self._answer_within(self._deadline, self._redis, command, probe)
        async with self._large_seats:
            return await self._answer_within(self._deadline + size / SLOWEST, self._patient_redis, command, probe)

    async def _answer_within(self, deadline: float, redis: Any, command: tuple[Any, ...], probe: bool) -> Any:
        async with self._seats, asyncio.timeout(deadline):
            if self.away and not probe:  # lost while this one waited for its seat
                raise Away
            with CancelKept():
                return await redis.execute_command(*command)

    def _lost(self, error: Exception) -> None:
        self._next_try = time.monotonic() + self._pause
        if not self.away:  # closed counts as away: then nobody is left to tell
            self.away = True
            text = "store: Redis %s; this process goes on with its own memory and tries again every %g s"
            log.warning(text, _reason(error), self._pause)

    def _back(self) -> None:
        self.away = self._closed
        self._on_back()
        log.warning("store: Redis is back")


def _connections(address: RedisAddress, connect_timeout: float, answer_timeout: float | None, connected: Any) -> Any:
    return Redis(
        host=address.host,
        port=address.port,
        db=address.db,
        username=address.username,
        password=address.password,
        ssl=address.tls,
        ssl_ca_certs=address.ca_file or None,  # besides the system's
        protocol=2,  # what every Redis and every Valkey speaks, with no greeting that some refuse
        socket_timeout=answer_timeout,
        socket_connect_timeout=connect_timeout,
        redis_connect_func=connected,
        retry=Retry(NoBackoff(), 0),  # our own memory answers sooner
    )


def _reason(error: Exception) -> str:
    """Our own words: the library's may hold what it was given."""
    if trouble := certificate_trouble(error):
        return trouble.sentence
    match error:
        case AuthenticationError() | AuthorizationError() | NoPermissionError():
            return "refuses the user or the password"
        case TimeoutError() | RedisTimeoutError():
            return "does not answer in time"
        case OutOfMemoryError():
            return "is full"
        case ReadOnlyError():
            return "is a replica that takes no writes"
        case ResponseError():
            return f"refuses a command ({type(error).__name__})"
        case RedisError() | OSError():
            return "cannot be reached"
    return f"cannot be asked ({type(error).__name__})"
