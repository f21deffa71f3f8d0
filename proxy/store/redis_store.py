"""The store that many processes share: Redis, or Valkey, which speaks the same protocol.

Handed an address; hands on a `Store`, and what the provider cache of many processes needs. While Redis cannot be asked
everything goes on with this process's own memory, and from time to time one command tries whether it is back. What was
put into memory meanwhile stays readable. Nothing raises, and no line in the log shows a password.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
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

from .store import LONGEST, SECRET_SIZE, Address, LogThrottle, MemoryStore, name_of, packed, unpacked

log = logging.getLogger("groundwire")

TIMEOUT = 1.0  # seconds to connect, and for each answer
DEADLINE = 2.0  # for a command with all that belongs to it, such as looking up a name and logging in
PAUSE = 5.0  # before a Redis that was lost is tried again
SEATS = 32  # commands at once; more wait here, so that a burst opens no thousand connections
SECRET_CHECK = 60.0  # how often is looked whether the secret is still there: Redis may forget it

_SECRET = "gw:1:secret"  # noqa: S105 a name
# An expired claim may be somebody else's by now.
_RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
_SLICE = 500  # values that one command asks for
_MAY_BE_REFUSED = {"SET", "EVAL"}  # by a Redis that is full or a replica, and answers everything else
_REFUSED = object()


class _Away(Exception):
    """Redis was not asked, or did not answer, or did not do it: go on without."""


class RedisStore:
    def __init__(self, address: Address, *, pause: float = PAUSE, timeout: float = TIMEOUT) -> None:
        self.address = address
        self._redis: Any = Redis(
            host=address.host,
            port=address.port,
            db=address.db,
            username=address.username,
            password=address.password,
            ssl=address.tls,
            protocol=2,  # what every Redis and every Valkey speaks, with no greeting that some refuse
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),  # our own memory answers sooner
        )
        self._pause = pause
        self._deadline = timeout * DEADLINE / TIMEOUT
        self._seats = asyncio.Semaphore(SEATS)
        self._memory = MemoryStore()
        self._away = False
        self._closed = False
        self._probing = False
        self._next_try = 0.0
        self._oversize = LogThrottle()
        self._refusals = LogThrottle()
        self._secret = secrets.token_bytes(SECRET_SIZE)
        self._secret_until = 0.0
        self._agreeing = asyncio.Lock()

    # The store

    @property
    def sure(self) -> bool:
        return not self._away

    async def get(self, kind: str, owner: str, key: str) -> bytes | None:
        name = name_of(kind, owner, key)
        try:
            value = await unpacked(await self._ask("GET", name))
        except _Away:
            value = None
        return value if value is not None else await unpacked(self._memory.find(name))

    async def get_many(self, kind: str, owner: str, keys: Sequence[str]) -> dict[str, bytes]:
        """One command for all of them."""
        names = [name_of(kind, owner, key) for key in keys]
        found: Sequence[bytes | None] = [None] * len(names)
        with suppress(_Away):
            found = [
                v for at in range(0, len(names), _SLICE) for v in await self._ask("MGET", *names[at : at + _SLICE])
            ]
        out: dict[str, bytes] = {}
        for key, name, data in zip(keys, names, found, strict=True):
            value = await unpacked(data)
            if value is None:
                value = await unpacked(self._memory.find(name))
            if value is not None:
                out[key] = value
        return out

    async def put(self, kind: str, owner: str, key: str, value: bytes, ttl: float) -> None:
        name = name_of(kind, owner, key)
        data = await packed(value, kind, self._oversize)
        if data is None or ttl <= 0:
            return
        try:
            await self._ask("SET", name, data, "PX", _milliseconds(ttl))
        except _Away:
            self._memory.keep(name, data, ttl)
        else:
            self._memory.drop(name)  # else it would come to light again when Redis forgets the new one

    async def delete(self, kind: str, owner: str, key: str) -> bool:
        name = name_of(kind, owner, key)
        there = self._memory.drop(name)
        try:
            return bool(await self._ask("DEL", name)) or there
        except _Away:
            return there

    async def secret(self) -> bytes:
        """Ours until Redis was asked; then the one that the first process brought. It is brought again if lost."""
        if time.monotonic() >= self._secret_until:
            async with self._agreeing:
                if time.monotonic() >= self._secret_until:
                    await self._agree()
        return self._secret

    async def aclose(self) -> None:
        self._closed = self._away = True
        try:
            async with asyncio.timeout(self._deadline):
                await self._redis.aclose()
        except (RedisError, OSError, TimeoutError):
            log.debug("store: Redis did not take leave")

    # What many processes need to act as one

    async def claim(self, kind: str, owner: str, key: str, token: str, ttl: float) -> str:
        """Who may do what only one should: the token of the one who has the claim now, empty if it was just given up.
        While Redis is away every process is its own one.
        """
        name = name_of(kind, owner, key)
        try:
            if await self._ask("SET", name, token, "NX", "PX", _milliseconds(ttl)):
                return token
            holder = await self._ask("GET", name)
        except _Away:
            return token
        return bytes(holder or b"").decode(errors="replace")

    async def release(self, kind: str, owner: str, key: str, token: str) -> None:
        try:
            await self._ask("EVAL", _RELEASE, 1, name_of(kind, owner, key), token)
        except _Away:
            return  # it ends by itself

    async def complaint(self) -> str:
        """What is wrong with Redis, in a few words; empty if it keeps what it is given."""
        name, value = name_of("check", "", secrets.token_hex(8)), secrets.token_bytes(16)
        try:
            async with asyncio.timeout(self._deadline):
                await self._redis.execute_command("SET", name, value, "PX", 1000)
                if await self._redis.execute_command("GET", name) != value:
                    return "does not give back what it was given"
        except Exception as error:  # the boundary to the library and its sockets
            return _reason(error)
        return ""

    # Asking

    async def _ask(self, *command: Any) -> Any:
        """What Redis answers. While it is away nobody waits for it, but for one command after each pause."""
        probe = self._away
        if self._closed or (probe and (self._probing or time.monotonic() < self._next_try)):
            raise _Away
        self._probing = self._probing or probe
        try:
            async with self._seats, asyncio.timeout(self._deadline):
                if self._away and not probe:  # lost while this one waited for its seat
                    raise _Away
                answer = await self._redis.execute_command(*command)
        except _Away:
            raise
        except Exception as error:  # the boundary to the library and its sockets: all trouble there is one to us
            if not isinstance(error, ResponseError) or command[0] not in _MAY_BE_REFUSED:
                self._lost(error)
                raise _Away from None
            if self._refusals.due():
                log.warning("store: Redis %s; this process's own memory stands in", _reason(error))
            answer = _REFUSED
        finally:
            if probe:
                self._probing = False
        if probe:
            self._back()
        if answer is _REFUSED:
            raise _Away
        return answer

    def _lost(self, error: Exception) -> None:
        self._next_try = time.monotonic() + self._pause
        if not self._away:  # closed counts as away: then nobody is left to tell
            self._away = True
            text = "store: Redis %s; this process goes on with its own memory and tries again every %g s"
            log.warning(text, _reason(error), self._pause)

    def _back(self) -> None:
        self._away = self._closed
        self._secret_until = 0.0  # it may have lost everything
        log.warning("store: Redis is back")

    async def _agree(self) -> None:
        try:
            held = await self._ask("GET", _SECRET)
            if held is None:
                await self._ask("SET", _SECRET, self._secret, "NX")
                held = await self._ask("GET", _SECRET)
        except _Away:
            return
        if held is not None and len(held) == SECRET_SIZE:
            self._secret = bytes(held)
        self._secret_until = time.monotonic() + SECRET_CHECK


class SharedProviderCache:
    """What providers answered, shared by all processes that ask the same providers in the same way."""

    def __init__(self, store: RedisStore, providers: str) -> None:
        """`providers` is all that was said about them. That may hold passwords, so guessing it from a name is slow."""
        self._store = store
        self._asked = hashlib.scrypt(providers.encode(), salt=b"groundwire", n=1 << 14, r=8, p=1, dklen=16).hex()

    async def get(self, owner: str, key: str) -> bytes | None:
        return await self._store.get("cache", owner, self._asked + key)

    async def put(self, owner: str, key: str, value: bytes, ttl: float) -> None:
        if self._store.sure:  # else it would only be in this process's memory twice
            await self._store.put("cache", owner, self._asked + key, value, ttl)

    async def claim(self, owner: str, key: str, token: str, ttl: float) -> str:
        return await self._store.claim("claim", owner, self._asked + key, token, ttl)

    async def release(self, owner: str, key: str, token: str) -> None:
        await self._store.release("claim", owner, self._asked + key, token)


def _milliseconds(ttl: float) -> int:
    return max(1, int(min(ttl, LONGEST) * 1000))


def _reason(error: Exception) -> str:
    """Our own words: the library's may hold what it was given."""
    if isinstance(error.__cause__ or error.__context__, ssl.SSLCertVerificationError):
        return "has a certificate that is not trusted here"
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
