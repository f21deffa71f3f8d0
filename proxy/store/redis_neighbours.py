"""What processes tell each other of their providers, over a Redis. Handed a provider's trouble: keeps it there for as
long as it lasts and says so to all, each of which looks for itself. Nothing is asked on the way of a search, but by
providers that have a `rate` or a `min_gap`: those ask once when they may start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import orjson

from providers.neighbours import STOPPED, Stopped, Trouble

from .redis_client import Away, RedisClient
from .redis_counters import CLOCK
from .redis_news import RedisNews
from .store import name_of

# What is known already to last longer stays.
_TELL = """
if redis.call('pttl', KEYS[1]) < tonumber(ARGV[2]) then redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2]) end
redis.pcall('publish', KEYS[2], '')
"""
_LOOK = """
local found = {}
for i = 1, #KEYS do
    local held = redis.pcall('get', KEYS[i])
    if type(held) == 'string' then
        found[#found + 1] = i
        found[#found + 1] = held
        found[#found + 1] = redis.call('pttl', KEYS[i])
    end
end
return found
"""
# The last starts, the oldest first. Answers with whether the next one is ours, and in how many seconds it is.
_START = (
    CLOCK
    + """
local burst, window, gap, patience = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local at = now
local first = redis.call('lindex', KEYS[1], -burst)
local last = redis.call('lindex', KEYS[1], -1)
if first then at = math.max(at, tonumber(first) + window) end
if last then at = math.max(at, tonumber(last) + gap) end
local wait = string.format('%.6f', at - now)
if at - now > patience then return {0, wait} end
redis.call('rpush', KEYS[1], string.format('%.6f', at))
redis.call('ltrim', KEYS[1], -burst, -1)
redis.call('pexpire', KEYS[1], math.ceil((at - now + window + gap + 1) * 1000))
return {1, wait}
"""
)


class RedisNeighbours:
    """`scope` is what all those share that ask the same providers, by these names."""

    def __init__(self, redis: RedisClient, news: RedisNews, scope: str, providers: Sequence[str]) -> None:
        self._redis = redis
        self._news = news
        self._scope = scope
        self._channel = name_of("trouble", scope, "")
        self._places: list[tuple[str, Stopped]] = [(name, stopped) for name in providers for stopped in STOPPED]
        self._names = [self._name(*place) for place in self._places]
        self._heard: Callable[[Trouble], None] = lambda _: None
        self._under_way: set[asyncio.Task[None]] = set()
        self._look_again = False
        self._looking = False

    def hear(self, heard: Callable[[Trouble], None]) -> None:
        self._heard = heard

    async def open(self) -> None:
        """From now on we hear of others; first of what was told before we came."""
        if self._places:
            await self._news.listen(self._channel, self._notice)

    async def aclose(self) -> None:
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def tell(self, trouble: Trouble) -> None:
        self._run(self._tell(trouble))

    async def start(self, provider: str, burst: int, window: float, gap: float, patience: float) -> float | None:
        numbers = map(repr, (burst, window, gap, patience))
        try:
            _, wait = await self._redis.ask("EVAL", _START, 1, name_of("starts", self._scope, provider), *numbers)
        except Away:
            return None
        return float(wait)

    async def _tell(self, trouble: Trouble) -> None:
        name = self._name(trouble.provider, trouble.stopped)
        said = orjson.dumps([trouble.reason, trouble.trips])
        with suppress(Away):
            await self._redis.ask("EVAL", _TELL, 2, name, self._channel, said, max(1, int(trouble.seconds * 1000)))

    def _notice(self) -> None:
        self._look_again = True
        if not self._looking:
            self._looking = True
            self._run(self._look())

    async def _look(self) -> None:
        try:
            while self._look_again:
                self._look_again = False
                found = await self._redis.ask("EVAL", _LOOK, len(self._names), *self._names)
                for place, said, left in zip(found[::3], found[1::3], found[2::3], strict=True):
                    self._take(self._places[place - 1], said, left / 1000)
        except Away:
            return  # who hears again looks again
        finally:
            self._looking = False

    def _take(self, place: tuple[str, Stopped], said: bytes, seconds: float) -> None:
        with suppress(ValueError, TypeError):  # what we did not write is nothing
            reason, trips = orjson.loads(said)
            if seconds > 0:
                self._heard(Trouble(*place, seconds, str(reason), int(trips)))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _name(self, provider: str, stopped: Stopped) -> str:
        return name_of("trouble", self._scope, f"{provider} {stopped}")
