"""What callers used, in a Redis that many processes share: one hash for each day, in which every figure of every row is
a number that only grows. Handed rows; adds all of them with one command, once, and reads them back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import orjson

from ..values.usage_rows import FIGURES, KEPT_DAYS, Figures, RowName, Rows
from .redis_client import LARGE, Away, RedisClient
from .store import name_of

_KEPT = (KEPT_DAYS + 1) * 86_400_000  # milliseconds
_BATCH_KEPT = 86_400_000  # how long is known that a batch has been counted
_ROOM = 4 * LARGE  # bytes that a day's rows may take without being late
_PLACE = {figure: place for place, figure in enumerate(FIGURES)}
# The first key is the batch's, the others are days. Behind two lifetimes: which key, which field, and how much.
_ADD = """
if not redis.call('set', KEYS[1], '1', 'nx', 'px', ARGV[1]) then return 0 end
for i = 2, #KEYS do
    if redis.call('type', KEYS[i]).ok ~= 'hash' then redis.call('del', KEYS[i]) end
end
for i = 3, #ARGV, 3 do
    local key, field, amount = KEYS[tonumber(ARGV[i])], ARGV[i + 1], ARGV[i + 2]
    if type(redis.pcall('hincrbyfloat', key, field, amount)) == 'table' then redis.call('hset', key, field, amount) end
end
for i = 2, #KEYS do redis.call('pexpire', KEYS[i], ARGV[2]) end
return 1
"""
# What is no hash is nothing.
_READ = "local held = redis.pcall('hgetall', KEYS[1]) return held.err and {} or held"


class RedisUsage:
    def __init__(self, redis: RedisClient) -> None:
        self._redis = redis

    async def add(self, rows: Rows, batch: str) -> bool:
        days = list({name.day: None for name in rows})
        keys = [name_of("batch", "", batch), *map(_name, days)]
        numbers = [
            argument
            for name, figures in rows.items()
            for figure, amount in zip(FIGURES, figures, strict=True)
            if amount
            for argument in (days.index(name.day) + 2, _field(name, figure), repr(amount))
        ]
        size = 100 * len(numbers)
        try:
            await self._redis.ask("EVAL", _ADD, len(keys), *keys, _BATCH_KEPT, _KEPT, *numbers, size=size)
        except Away:
            return False
        return True

    async def read(self, days: Iterable[str]) -> dict[RowName, Figures] | None:
        found: dict[RowName, Figures] = {}
        try:
            for day in days:
                answer: list[bytes] = await self._redis.ask("EVAL", _READ, 1, _name(day), size=_ROOM)
                for name, place, amount in _readable(day, answer):
                    found.setdefault(name, [0.0] * len(FIGURES))[place] = amount
        except Away:
            return None
        return found


def _name(day: str) -> str:
    return name_of("usage", "", day)


def _field(name: RowName, figure: str) -> bytes:
    return orjson.dumps([name.key, name.model, figure])


def _readable(day: str, answer: list[bytes]) -> Iterator[tuple[RowName, int, float]]:
    """What `add` wrote; anything else in the hash is nothing."""
    for field, value in zip(answer[::2], answer[1::2], strict=True):
        try:
            key, model, figure = orjson.loads(field)
            place, amount = _PLACE[figure], float(value)
        except (ValueError, TypeError, KeyError):
            continue
        if isinstance(key, str) and isinstance(model, str) and math.isfinite(amount):
            yield RowName(day, key, model), place, amount
