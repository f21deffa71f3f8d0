"""The store that many processes share: Redis, or Valkey, which speaks the same protocol.

Handed an address; hands on a `Store`, and what the provider cache of many processes needs. While Redis cannot be asked
everything goes on with this process's own memory, where copies of its own turns are too, and from time to time one
command tries whether it is back. What was put into memory meanwhile stays readable. Nothing raises, and no line in the
log shows a password.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import cast

from ..config.redis_address import RedisAddress
from ..values.meters import Counters
from ..values.request_records import RequestStore
from ..values.usage_rows import UsageStore
from .journals import Journals
from .redis_client import LARGE, PAUSE, TIMEOUT, Away, RedisClient
from .redis_counters import RedisCounters
from .redis_journals import RedisJournals
from .redis_neighbours import RedisNeighbours
from .redis_news import RedisNews
from .redis_requests import RedisRequests
from .redis_usage import RedisUsage
from .store import (
    LONGEST,
    MAX_VALUE,
    SECRET_SIZE,
    LogThrottle,
    MemoryStore,
    group_of,
    name_of,
    packed,
    renamed,
    unpacked,
)

SECRET_CHECK = 60.0  # how often is looked whether the secret is still there: Redis may forget it

_SECRET = "gw:1:secret"  # noqa: S105 a name
# It stands beside a secret that a process has just made up, because Redis held none. Others may have had one before:
# as long as it stands, who has used another replaces it, and who uses this one looks again each time.
_NEW_SECRET = "gw:1:secret:new"  # noqa: S105 a name
COPIED = "turn"  # the kind of which this process keeps copies: an answer that waits for its client's tools must go on
COPIES_SIZE = 32 << 20  # bytes
# An expired claim may be somebody else's by now.
_RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
# The values, or their sizes where they are large together: then who asks knows how long it may take to carry them.
_READ = """
local sizes, total = {}, 0
for i = 1, #KEYS do
    local size = redis.pcall('strlen', KEYS[i])
    sizes[i] = type(size) == 'number' and size or 0
    total = total + sizes[i]
end
if total > tonumber(ARGV[1]) then return sizes end
return redis.call('mget', unpack(KEYS))
"""
_RENEW = "for i = 1, #KEYS do redis.call('pexpire', KEYS[i], ARGV[1]) end"
# Pairs of names: as it is called, and as it is to be.
_MOVE = """
for i = 1, #KEYS, 2 do
    if redis.call('exists', KEYS[i]) == 1 then redis.call('renamenx', KEYS[i], KEYS[i + 1]) end
end
"""
_ADD = "redis.call('sadd', KEYS[1], ARGV[1]) redis.call('pexpire', KEYS[1], ARGV[2])"
# From the second argument on: members that are kept elsewhere, each of which counts once.
_COUNT = """
local left = redis.call('scard', KEYS[1])
for i = 2, #ARGV do left = left + 1 - redis.call('sismember', KEYS[1], ARGV[i]) end
return left
"""
_REMOVE = "redis.call('srem', KEYS[1], ARGV[1])" + _COUNT
_SLICE = 500  # names that one command is about; even, because some come in pairs


class RedisStore:
    def __init__(self, address: RedisAddress, *, pause: float = PAUSE, timeout: float = TIMEOUT) -> None:
        self.address = address
        self._redis = RedisClient(
            address, pause=pause, timeout=timeout, on_back=self._back, on_connected=self._look_again
        )
        self._memory = MemoryStore()
        self._copies = MemoryStore(max_size=COPIES_SIZE)
        self._oversize = LogThrottle()
        self._secret = secrets.token_bytes(SECRET_SIZE)
        self._secret_until = 0.0
        self._secret_used = False  # has it been that of all for a while?
        self._agreeing = asyncio.Lock()
        self._shared_counters = RedisCounters(self._redis)
        self.counters: Counters = self._shared_counters
        self.usage: UsageStore = RedisUsage(self._redis)
        self.requests: RequestStore = RedisRequests(self._redis)
        self._news = RedisNews(self._redis, pause)
        self.journals: Journals = RedisJournals(self._redis, pause=pause, news=self._news)

    # The store

    @property
    def sure(self) -> bool:
        return not self._redis.away

    async def get(self, kind: str, owner: str, key: str) -> bytes | None:
        return (await self.get_many(kind, owner, [key])).get(key)

    async def get_many(self, kind: str, owner: str, keys: Sequence[str]) -> dict[str, bytes]:
        """One command for all of them, unless they are large."""
        names = [name_of(kind, owner, key) for key in keys]
        try:
            found = [value for some in _slices(names) for value in await self._values(some)]
        except Away:
            found = [self._copies.find(name) for name in names]
        out: dict[str, bytes] = {}
        for key, name, data in zip(keys, names, found, strict=True):
            value = await unpacked(data)
            if value is None:
                value = await unpacked(self._memory.find(name))
            if value is not None:
                out[key] = value
        return out

    async def has(self, kind: str, owner: str, key: str) -> bool:
        name = name_of(kind, owner, key)
        try:
            there = bool(await self._redis.ask("EXISTS", name))
        except Away:
            there = self._copies.find(name) is not None
        return there or self._memory.find(name) is not None

    async def put(self, kind: str, owner: str, key: str, value: bytes, ttl: float, *, group: str = "") -> bool:
        """A group has a meaning only where this process's memory stands in: Redis evicts by a policy of its own."""
        name = name_of(kind, owner, key)
        data = await packed(value, kind, self._oversize)
        if data is None or ttl <= 0:
            return False
        try:
            await self._redis.ask("SET", name, data, "PX", _milliseconds(ttl), size=len(data))
        except Away:
            return self._memory.keep(name, data, ttl, group_of(owner, group))
        self._memory.drop(name)  # else it would come to light again when Redis forgets the new one
        if kind == COPIED:
            self._copies.keep(name, data, ttl)
        return True

    async def renew(self, owner: str, names: Sequence[tuple[str, str]], ttl: float) -> None:
        if ttl <= 0:
            return
        renewed = [name_of(kind, owner, key) for kind, key in names]
        self._memory.prolong(renewed, ttl)
        self._copies.prolong(renewed, ttl)
        with suppress(Away):
            for some in _slices(renewed):
                await self._redis.ask("EVAL", _RENEW, len(some), *some, _milliseconds(ttl))

    async def move(self, former: str, owner: str, names: Sequence[tuple[str, str]], *, group: str = "") -> None:
        pairs = renamed(former, owner, names)
        self._memory.rename(pairs, group_of(owner, group))
        with suppress(Away):
            for some in _slices([name for pair in pairs for name in pair]):
                await self._redis.ask("EVAL", _MOVE, len(some), *some)

    async def delete(self, kind: str, owner: str, key: str) -> bool:
        name = name_of(kind, owner, key)
        there = self._memory.drop(name)
        copied = self._copies.drop(name)
        try:
            return bool(await self._redis.ask("DEL", name)) or there
        except Away:
            return there or copied

    async def add_member(self, kind: str, owner: str, key: str, member: str, ttl: float, *, group: str = "") -> None:
        if ttl <= 0:
            return
        name = name_of(kind, owner, key)
        try:
            await self._redis.ask("EVAL", _ADD, 1, name, member, _milliseconds(ttl))
        except Away:
            self._memory.add(name, member, ttl, group_of(owner, group))
        else:
            self._memory.remove(name, member)  # else it would stay here when another process removes it
            self._memory.prolong([name], ttl)

    async def remove_member(self, kind: str, owner: str, key: str, member: str) -> int:
        name = name_of(kind, owner, key)
        self._memory.remove(name, member)
        return await self._members_left(_REMOVE, name, member)

    async def count_members(self, kind: str, owner: str, key: str) -> int:
        return await self._members_left(_COUNT, name_of(kind, owner, key), "")

    async def secret(self) -> bytes:
        """Ours until Redis was asked; then the one that the first process brought. It is brought again if lost."""
        if time.monotonic() >= self._secret_until:
            async with self._agreeing:
                if time.monotonic() >= self._secret_until:
                    await self._agree()
        return self._secret

    async def aclose(self) -> None:
        await self.journals.aclose()
        await self._redis.aclose()

    # What many processes need to act as one

    async def claim(self, kind: str, owner: str, key: str, token: str, ttl: float) -> str:
        """Who may do what only one should: the token of the one who has the claim now, empty if it was just given up.
        While Redis is away every process is its own one.
        """
        name = name_of(kind, owner, key)
        try:
            if await self._redis.ask("SET", name, token, "NX", "PX", _milliseconds(ttl)):
                return token
            holder = await self._redis.ask("GET", name)
        except Away:
            return token
        return bytes(holder or b"").decode(errors="replace")

    async def release(self, kind: str, owner: str, key: str, token: str) -> None:
        try:
            await self._redis.ask("EVAL", _RELEASE, 1, name_of(kind, owner, key), token)
        except Away:
            return  # it ends by itself

    def neighbours(self, scope: str, providers: Sequence[str]) -> RedisNeighbours:
        """The processes that ask the same providers."""
        return RedisNeighbours(self._redis, self._news, scope, providers)

    async def complaint(self) -> str:
        """What is wrong with Redis, in a few words; empty if it keeps what it is given."""
        return await self._redis.complaint(name_of("check", "", secrets.token_hex(8)), secrets.token_bytes(16))

    # Asking Redis

    async def _values(self, names: Sequence[str]) -> Sequence[bytes | None]:
        try:
            answer = await self._redis.ask("EVAL", _READ, len(names), *names, LARGE)
        except Away:
            answer = await self._redis.ask("MGET", *names)  # it may refuse scripts and nothing else
        if not isinstance(answer[0], int):
            return cast(list[bytes | None], answer)
        values: dict[str, bytes | None] = {}
        for some, size in _portions(dict(zip(names, answer, strict=True))):
            values.update(zip(some, await self._redis.ask("MGET", *some, size=size), strict=True))
        return [values.get(name) for name in names]

    async def _members_left(self, script: str, name: str, member: str) -> int:
        """Members in Redis, and those that this process took while it was away."""
        held = self._memory.members(name)
        try:
            return int(await self._redis.ask("EVAL", script, 1, name, member, *held))
        except Away:
            return max(1, len(held))  # Redis may hold some, and nobody may think that there is none

    def _look_again(self) -> None:
        """Redis may have been started anew, and have lost everything, the secret too."""
        self._secret_until = 0.0

    def _back(self) -> None:
        self._look_again()
        self._shared_counters.back()

    async def _agree(self) -> None:
        try:
            held, new = await self._redis.ask("MGET", _SECRET, _NEW_SECRET)
            if held is None:
                held, new = await self._bring_secret()
            elif new and self._secret_used and held != self._secret:
                held, new = await self._replace_secret(), None
        except Away:
            return
        if held is not None and len(held) == SECRET_SIZE:
            self._secret = bytes(held)
        self._secret_used = self._secret_used or not new
        self._secret_until = time.monotonic() + (0.0 if new else SECRET_CHECK)

    async def _bring_secret(self) -> tuple[bytes | None, bytes | None]:
        """Ours, unless another was faster."""
        if not self._secret_used:
            await self._redis.ask("SET", _NEW_SECRET, "1", "NX", "PX", _milliseconds(2 * SECRET_CHECK))
        await self._redis.ask("SET", _SECRET, self._secret, "NX")
        held, new = await self._redis.ask("MGET", _SECRET, _NEW_SECRET)
        return held, new

    async def _replace_secret(self) -> bytes:
        await self._redis.ask("SET", _SECRET, self._secret)
        await self._redis.ask("DEL", _NEW_SECRET)
        return self._secret


class SharedProviderCache:
    """What providers answered, shared by all processes that ask the same providers in the same way."""

    def __init__(self, store: RedisStore, providers: str) -> None:
        """`providers` is all that was said about them. That may hold passwords, so guessing it from a name is slow."""
        self._store = store
        self.scope = hashlib.scrypt(providers.encode(), salt=b"groundwire", n=1 << 14, r=8, p=1, dklen=16).hex()

    async def get(self, owner: str, key: str) -> bytes | None:
        return await self._store.get("cache", owner, self.scope + key)

    async def put(self, owner: str, key: str, value: bytes, ttl: float) -> None:
        if self._store.sure:  # else it would only be in this process's memory twice
            await self._store.put("cache", owner, self.scope + key, value, ttl)

    async def claim(self, owner: str, key: str, token: str, ttl: float) -> str:
        return await self._store.claim("claim", owner, self.scope + key, token, ttl)

    async def release(self, owner: str, key: str, token: str) -> None:
        await self._store.release("claim", owner, self.scope + key, token)


def _slices(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[at : at + _SLICE] for at in range(0, len(names), _SLICE))


def _portions(sizes: Mapping[str, int]) -> Iterator[tuple[list[str], int]]:
    """Names of what is carried at once, and how large that is. What is not there, or cannot be ours, is left out."""
    names: list[str] = []
    total = 0
    for name, size in sizes.items():
        if not 0 < size <= MAX_VALUE + 1:
            continue
        if names and total + size > MAX_VALUE:
            yield names, total
            names, total = [], 0
        names.append(name)
        total += size
    if names:
        yield names, total


def _milliseconds(ttl: float) -> int:
    return max(1, int(min(ttl, LONGEST) * 1000))
