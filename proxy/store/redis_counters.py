"""The counters that many processes share. Handed the charges of a request; asks Redis once, in one script that takes
all of them or none. While Redis cannot be asked this process counts alone, from what it last saw there, and says so in
the log; what it counted of a day or a month is brought to Redis when that is back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import lru_cache

from ..values.meters import MINUTE, MOST_DEBT, NEARLY, REFILLING, Charge, Charged, Meter
from .counters import MemoryCounters
from .redis_client import Away, RedisClient
from .store import name_of

log = logging.getLogger("groundwire")

# Redis' own clock: those of the processes may differ.
CLOCK = """
local t = redis.call('time')
local now = tonumber(t[1]) + tonumber(t[2]) / 1000000
"""
# The same as `MeterStates`. For each key: most, kept, owed, need, take. What cannot be read counts as nothing.
RULES = f"""
local used, since, taken = {{}}, {{}}, 1
for i = 1, #KEYS do
    local most, kept, owed, need = unpack(ARGV, i * 5 - 4, i * 5 - 1)
    local held = redis.pcall('get', KEYS[i])
    local had, at = string.match(type(held) == 'string' and held or '', '^(%d[%d.e+-]*) (%d[%d.]*)$')
    local before = tonumber(had) or 0
    if before > 1e300 then before = 0 end
    since[i] = tonumber(at) or now
    if kept + 0 == 0 then before = math.max(0, before - math.max(0, now - since[i]) * most / {MINUTE}) end
    used[i] = before + owed
    if need + 0 > 0 and most - used[i] < need * {NEARLY!r} then taken = 0 end
end
local answer = {{taken}}
for i = 1, #KEYS do
    local most, kept, owed, need, take = unpack(ARGV, i * 5 - 4, i * 5)
    if taken == 1 then used[i] = used[i] + take end
    if kept + 0 == 0 then used[i] = math.min(used[i], most * {1 + MOST_DEBT}) end
    if owed + 0 > 0 or take * taken > 0 or since[i] > now then
        local life = math.ceil((kept + 0 > 0 and kept or {REFILLING}) * 1000)
        redis.call('set', KEYS[i], string.format('%.17g %.6f', used[i], now), 'px', life)
    end
    answer[i + 1] = string.format('%.17g', most - used[i])
end
return answer
"""
_name_of = lru_cache(maxsize=20_000)(name_of)


class RedisCounters:
    def __init__(self, redis: RedisClient) -> None:
        self._redis = redis
        self._own = MemoryCounters()
        self._alone = False
        self._unsent: dict[Meter, float] = {}  # sums that were counted alone

    async def charge(self, charges: Sequence[Charge]) -> Charged:
        try:
            charged = await self._ask(charges)
        except Away:
            return self._charge_alone(charges)
        self.back()
        for charge, room in zip(charges, charged.rooms, strict=True):
            self._own.note(charge.meter, room)
        return charged

    async def flush(self) -> None:
        unsent, self._unsent = self._unsent, {}
        if not unsent:
            return
        try:
            await self._ask([Charge(meter, owed=amount) for meter, amount in unsent.items()])
        except (Away, asyncio.CancelledError) as error:
            for meter, amount in unsent.items():
                self._owe(meter, amount)
            if not isinstance(error, Away):
                raise

    def back(self) -> None:
        """Redis can be asked again."""
        self._alone = False

    async def _ask(self, charges: Sequence[Charge]) -> Charged:
        names = [_name_of("limit", charge.meter.owner, charge.meter.name) for charge in charges]
        numbers = [
            number for meter, owed, need, take in charges for number in (meter.most, meter.kept, owed, need, take)
        ]
        taken, *rooms = await self._redis.ask("EVAL", CLOCK + RULES, len(names), *names, *map(repr, numbers))
        return Charged(taken == 1, [float(room) for room in rooms])

    def _charge_alone(self, charges: Sequence[Charge]) -> Charged:
        if not self._alone:
            self._alone = True
            log.warning("limits: Redis cannot be asked, so this process counts alone until it is back")
        charged = self._own.charge_now(charges)
        for meter, owed, _, take in charges:
            self._owe(meter, owed + take * charged.taken)
        return charged

    def _owe(self, meter: Meter, amount: float) -> None:
        if meter.kept and amount:
            self._unsent[meter] = self._unsent.get(meter, 0.0) + amount
