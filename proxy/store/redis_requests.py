"""The last requests, in a Redis that many processes share: a sorted set of their ids by when they ended, one hash of
rows and one of steps. Handed records; writes them in batches, each once however often it is brought. While Redis is
away this process's own are shown.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from ..values.request_records import KEPT_REQUESTS, KEPT_SECONDS, RequestRecord, Row
from .redis_client import LARGE, Away, RedisClient
from .requests import MemoryRequests
from .store import decode, encode, name_of

_KEPT = int(KEPT_SECONDS * 1000)  # milliseconds
_ROOM = 4 * LARGE  # bytes that all rows may take without being late
_NAMES = [name_of(kind, "", "") for kind in ("requests", "request-rows", "request-steps")]
# Behind the lifetime, how many are kept and since when: of each one when it ended, its id, its row and its steps.
_ADD = """
for i, kind in ipairs({'zset', 'hash', 'hash'}) do
    if redis.call('type', KEYS[i]).ok ~= kind then redis.call('del', KEYS[i]) end
end
for i = 4, #ARGV, 4 do
    redis.call('zadd', KEYS[1], ARGV[i], ARGV[i + 1])
    redis.call('hset', KEYS[2], ARGV[i + 1], ARGV[i + 2])
    redis.call('hset', KEYS[3], ARGV[i + 1], ARGV[i + 3])
end
local function drop(old)
    for _, id in ipairs(old) do
        redis.call('zrem', KEYS[1], id)
        redis.call('hdel', KEYS[2], id)
        redis.call('hdel', KEYS[3], id)
    end
end
drop(redis.call('zrange', KEYS[1], 0, -1 - tonumber(ARGV[2])))
drop(redis.call('zrangebyscore', KEYS[1], '-inf', '(' .. ARGV[3]))
for i = 1, 3 do redis.call('pexpire', KEYS[i], ARGV[1]) end
"""
# What somebody else has put there is nothing.
_ROWS = """
local ids = redis.pcall('zrevrangebyscore', KEYS[1], '+inf', ARGV[1], 'limit', 0, ARGV[2])
if ids.err or #ids == 0 then return {} end
local rows = redis.pcall('hmget', KEYS[2], unpack(ids))
return rows.err and {} or rows
"""
_FIND = """
local found = {'', ''}
local ended = redis.pcall('zscore', KEYS[1], ARGV[1])
if type(ended) ~= 'string' or tonumber(ended) < tonumber(ARGV[2]) then return found end
for i = 2, 3 do
    local held = redis.pcall('hget', KEYS[i], ARGV[1])
    found[i - 1] = type(held) == 'string' and held or ''
end
return found
"""


class RedisRequests:
    def __init__(self, redis: RedisClient, now: Callable[[], float] = time.time) -> None:
        self._redis = redis
        self._now = now
        self._own = MemoryRequests(now)
        self._waiting: deque[RequestRecord] = deque(maxlen=KEPT_REQUESTS)  # older ones would be gone at once

    def note(self, record: RequestRecord) -> None:
        self._own.note(record)
        self._waiting.append(record)

    async def flush(self) -> None:
        brought = list(self._waiting)
        if not brought:
            return
        written: list[str | bytes] = []
        for record in brought:
            written += _written(record)
            await asyncio.sleep(0)  # hundreds with hundreds of steps take a second: others must not wait for it
        size = sum(len(part) for part in written if isinstance(part, bytes))
        try:
            await self._redis.ask("EVAL", _ADD, 3, *_NAMES, _KEPT, KEPT_REQUESTS, self._oldest(), *written, size=size)
        except Away:
            return  # they are brought the next time
        known = set(map(id, brought))
        self._waiting = deque((record for record in self._waiting if id(record) not in known), maxlen=KEPT_REQUESTS)

    async def rows(self, most: int) -> tuple[list[Row], bool]:
        await self.flush()
        try:
            held: Sequence[Any] = await self._redis.ask("EVAL", _ROWS, 3, *_NAMES, self._oldest(), most, size=_ROOM)
        except Away:
            rows, _ = await self._own.rows(most)
            return rows, False
        return [row for data in held if isinstance(row := _read(data), dict)], True

    async def find(self, request_id: str) -> tuple[Row | None, bool]:
        found, _ = await self._own.find(request_id)
        if found:
            return found, True
        try:
            row, held = await self._redis.ask("EVAL", _FIND, 3, *_NAMES, request_id, self._oldest(), size=_ROOM)
        except Away:
            return None, False
        shown, happened = _read(row), _read(held)
        if not isinstance(shown, dict):
            return None, True
        steps = [step for step in happened if isinstance(step, dict)] if isinstance(happened, list) else []
        return {**shown, "steps": steps}, True

    def _oldest(self) -> str:
        """When one ended that is still shown, as Redis reads it."""
        return repr(self._now() - KEPT_SECONDS)


def _written(record: RequestRecord) -> tuple[str, str, bytes, bytes]:
    row, steps = orjson.dumps(record.row()), orjson.dumps(record.steps())
    return repr(record.ended), record.id, encode(row), encode(steps)


def _read(data: object) -> Any:
    """What was written; None for anything else."""
    value = decode(data) if isinstance(data, bytes) else None
    try:
        return None if value is None else orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
