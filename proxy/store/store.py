"""What is kept between requests: hidden turns, response items, whatever else a later request must find again.

Handed bytes with a kind, an owner and a time to live; hands them back to that owner until then. `memory` is one
process's own, bounded (`proxy/store/entries.py`); `proxy/store/redis_store.py` is the one that many processes share.
Nothing here ever raises.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
import zlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol

from ..config.redis_address import RedisAddress
from ..values.meters import Counters
from ..values.request_records import RequestStore
from ..values.usage_rows import UsageStore
from .counters import MemoryCounters
from .entries import GroupedEntries
from .journals import Journals, MemoryJournals
from .requests import MemoryRequests
from .usage import MemoryUsage

log = logging.getLogger("groundwire")

MAX_VALUE = 16 << 20  # bytes; larger values are not kept; what belongs to a request of `server.max_body` is one
MAX_ENTRIES = 10_000
MAX_SIZE = 64 << 20
SECRET_SIZE = 32
LONGEST = 366 * 86_400.0  # seconds: whatever is asked for, nothing is kept for ever
WORTH_PACKING = 1024
WORTH_A_THREAD = 256 << 10  # from here on packing would hold up the others for milliseconds

# The first byte says how the rest is written. Whoever finds another one there finds nothing.
_PLAIN, _ZLIB = b"\x01", b"\x02"


class Store(Protocol):
    """Values and sets of members, each under a kind, an owner and a key. A kind is of values or of sets, not both."""

    async def get(self, kind: str, owner: str, key: str) -> bytes | None:
        """None: it is not there, or not any more."""

    async def get_many(self, kind: str, owner: str, keys: Sequence[str]) -> dict[str, bytes]:
        """Those that are there, in the order of the keys."""

    async def has(self, kind: str, owner: str, key: str) -> bool:
        """Whether it is there, without reading it."""

    async def put(self, kind: str, owner: str, key: str, value: bytes, ttl: float, *, group: str = "") -> bool:
        """Whether it is kept. What shares a `group` (and an owner) is evicted together."""

    async def renew(self, owner: str, names: Sequence[tuple[str, str]], ttl: float) -> None:
        """Those of these (kind, key) that are there live `ttl` seconds from now on, and count as just used."""

    async def move(self, former: str, owner: str, names: Sequence[tuple[str, str]], *, group: str = "") -> None:
        """Those of these (kind, key) that are there belong to another owner from now on, unless it has one of the same
        kind and key. They live as long as they would have."""

    async def delete(self, kind: str, owner: str, key: str) -> bool:
        """Whether it was there."""

    async def add_member(self, kind: str, owner: str, key: str, member: str, ttl: float, *, group: str = "") -> None:
        """A set of short strings under a key; adding renews the whole set's life."""

    async def remove_member(self, kind: str, owner: str, key: str, member: str) -> int:
        """How many members are left; 0 also where there is no such set. An empty set is gone."""

    async def count_members(self, kind: str, owner: str, key: str) -> int:
        """While the shared store cannot be asked this is at least 1, and so is what `remove_member` gives: nobody may
        take for unneeded what another process still needs."""

    @property
    def sure(self) -> bool:
        """False while the shared store cannot be asked: then "not there" may be wrong."""

    @property
    def counters(self) -> Counters:
        """What the limits of keys are counted in."""

    @property
    def usage(self) -> UsageStore:
        """What callers used, day by day."""

    @property
    def requests(self) -> RequestStore:
        """The last requests, for operators."""

    @property
    def journals(self) -> Journals:
        """What happens in answers that are made in the background."""

    async def secret(self) -> bytes:
        """What callers are named with (HMAC): the same in all processes that share the store."""

    async def aclose(self) -> None: ...


class MemoryStore:
    """One process's memory: what is too old is gone, and the group that was not used for the longest goes first."""

    sure = True

    def __init__(self, max_entries: int = MAX_ENTRIES, max_size: int = MAX_SIZE) -> None:
        self._entries = GroupedEntries(max_entries, max_size)
        self._secret = secrets.token_bytes(SECRET_SIZE)
        self._oversize = LogThrottle()
        self.counters: Counters = MemoryCounters()
        self.usage: UsageStore = MemoryUsage()
        self.requests: RequestStore = MemoryRequests()
        self.journals: Journals = MemoryJournals()

    async def get(self, kind: str, owner: str, key: str) -> bytes | None:
        return await unpacked(self.find(name_of(kind, owner, key)))

    async def get_many(self, kind: str, owner: str, keys: Sequence[str]) -> dict[str, bytes]:
        held = {key: self.find(name_of(kind, owner, key)) for key in keys}  # at once: nothing is evicted meanwhile
        found = {key: await unpacked(data) for key, data in held.items()}
        return {key: value for key, value in found.items() if value is not None}

    async def has(self, kind: str, owner: str, key: str) -> bool:
        return self.find(name_of(kind, owner, key)) is not None

    async def put(self, kind: str, owner: str, key: str, value: bytes, ttl: float, *, group: str = "") -> bool:
        data = await packed(value, kind, self._oversize)
        return data is not None and self.keep(name_of(kind, owner, key), data, ttl, group_of(owner, group))

    async def renew(self, owner: str, names: Sequence[tuple[str, str]], ttl: float) -> None:
        self.prolong([name_of(kind, owner, key) for kind, key in names], ttl)

    async def move(self, former: str, owner: str, names: Sequence[tuple[str, str]], *, group: str = "") -> None:
        self.rename(renamed(former, owner, names), group_of(owner, group))

    async def delete(self, kind: str, owner: str, key: str) -> bool:
        return self.drop(name_of(kind, owner, key))

    async def add_member(self, kind: str, owner: str, key: str, member: str, ttl: float, *, group: str = "") -> None:
        self.add(name_of(kind, owner, key), member, ttl, group_of(owner, group))

    async def remove_member(self, kind: str, owner: str, key: str, member: str) -> int:
        name = name_of(kind, owner, key)
        self.remove(name, member)
        return len(self.members(name))

    async def count_members(self, kind: str, owner: str, key: str) -> int:
        return len(self.members(name_of(kind, owner, key)))

    async def secret(self) -> bytes:
        return self._secret

    async def aclose(self) -> None: ...

    # The same by name, for the shared store that this one stands in for

    def find(self, name: str) -> bytes | None:
        return self._entries.get(name, time.monotonic())

    def keep(self, name: str, data: bytes, ttl: float, group: tuple[str, str] | None = None) -> bool:
        return self._entries.put(name, data, time.monotonic(), min(ttl, LONGEST), group)

    def prolong(self, names: Sequence[str], ttl: float) -> None:
        now = time.monotonic()
        for name in names:
            self._entries.renew(name, now, min(ttl, LONGEST))

    def rename(self, names: Sequence[tuple[str, str]], group: tuple[str, str] | None = None) -> None:
        now = time.monotonic()
        for name, new in names:
            self._entries.rename(name, new, now, group)

    def drop(self, name: str) -> bool:
        return self._entries.drop(name, time.monotonic())

    def add(self, name: str, member: str, ttl: float, group: tuple[str, str] | None = None) -> None:
        self._entries.add_member(name, member, time.monotonic(), min(ttl, LONGEST), group)

    def remove(self, name: str, member: str) -> None:
        self._entries.remove_member(name, member, time.monotonic())

    def members(self, name: str) -> Collection[str]:
        return self._entries.members(name, time.monotonic())


class LogThrottle:
    """Lets a complaint through once a minute."""

    def __init__(self, pause: float = 60.0) -> None:
        self._pause = pause
        self._quiet_until = 0.0

    def due(self) -> bool:
        now = time.monotonic()
        if now < self._quiet_until:
            return False
        self._quiet_until = now + self._pause
        return True


def open_store(url: str, ca_file: str = "") -> Store:
    """`memory`, or the Redis that a URL names. Nobody is called yet: a Redis that is down stops no start."""
    if url == "memory":
        return MemoryStore()
    from .redis_store import RedisStore  # brings a large library along

    return RedisStore(replace(RedisAddress.read(url), ca_file=ca_file))


async def get_of_either(store: Store, kind: str, owner: str, former: str, keys: Sequence[str]) -> dict[str, bytes]:
    """What an owner has, and of the rest what it has by its former name, in the order of the keys."""
    found = await store.get_many(kind, owner, keys)
    missing = [key for key in keys if key not in found] if former else []
    if not missing:
        return found
    found |= await store.get_many(kind, former, missing)
    return {key: found[key] for key in keys if key in found}


# How things are written down


def name_of(kind: str, owner: str, key: str) -> str:
    """The name that something is kept under. Without its owner nobody can tell it, however well the key is known."""
    digest = hashlib.sha256(f"{len(owner)}:{owner}{key}".encode("utf-8", "surrogatepass"))
    return f"gw:1:{kind}:{digest.hexdigest()[:48]}"


def renamed(former: str, owner: str, names: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The name that each (kind, key) is kept under, and the one that it has with another owner."""
    return [(name_of(kind, former, key), name_of(kind, owner, key)) for kind, key in names]


def group_of(owner: str, group: str) -> tuple[str, str] | None:
    """No two owners share a group."""
    return (owner, group) if group else None


def encode(value: bytes) -> bytes:
    if len(value) >= WORTH_PACKING:
        smaller = zlib.compress(value, 1)
        if len(smaller) < len(value):
            return _ZLIB + smaller
    return _PLAIN + value


def decode(data: bytes) -> bytes | None:
    """What `encode` was given; None for anything that it did not write."""
    if data[:1] == _PLAIN:
        return data[1:] if len(data) <= MAX_VALUE + 1 else None
    if data[:1] != _ZLIB:
        return None
    unpacker = zlib.decompressobj()
    try:
        value = unpacker.decompress(data[1:], MAX_VALUE + 1)
    except zlib.error:
        return None
    whole = unpacker.eof and not unpacker.unused_data and len(value) <= MAX_VALUE
    return value if whole else None


async def packed(value: bytes, kind: str, oversize: LogThrottle) -> bytes | None:
    """The value as it is kept; None if it is too large for that."""
    if len(value) > MAX_VALUE:
        if oversize.due():
            log.warning("store: a %s of %d bytes is not kept, the limit is %d", kind, len(value), MAX_VALUE)
        return None
    if len(value) >= WORTH_A_THREAD:
        return await asyncio.to_thread(encode, value)
    return encode(value)


async def unpacked(data: bytes | None) -> bytes | None:
    if data is None:
        return None
    if len(data) >= WORTH_A_THREAD:
        return await asyncio.to_thread(decode, data)
    return decode(data)
