"""What the chain saves and what failing costs: calls under a repeated load, equal searches at once, time to fail over.

Needs nothing but the project; the providers are small ones in this process. Prints one line per figure.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from providers.base import SearchQuery, SearchResult  # noqa: E402
from providers.chain import SearchChain  # noqa: E402
from providers.errors import RateLimited  # noqa: E402
from providers.gateway import ProviderGateway  # noqa: E402
from providers.registry import NamedProvider  # noqa: E402
from providers.settings import NO_CACHE, CacheSettings  # noqa: E402


class Engine:
    """Answers after `seconds`, or refuses."""

    def __init__(self, seconds: float = 0.0, *, refuses: bool = False) -> None:
        self.calls = 0
        self._seconds = seconds
        self._refuses = refuses

    async def search(self, query: SearchQuery) -> list[SearchResult]:
        self.calls += 1
        if self._refuses:
            raise RateLimited("too many requests", retry_after=30)
        await asyncio.sleep(self._seconds)
        return [SearchResult(query.text, "https://example.org/" + query.text.replace(" ", "-"))]


async def repeated_load(cache: CacheSettings) -> int:
    """2,000 searches over 200 queries, some far more often than others, 100 at a time. How many calls they cost."""
    engine, choice = Engine(0.01), random.Random(1)
    chain = SearchChain([NamedProvider("e", "e", engine)], gateway=ProviderGateway(cache=cache))
    queries = choice.choices([f"query {n}" for n in range(200)], [1 / (n + 1) for n in range(200)], k=2000)
    for first in range(0, 2000, 100):
        await asyncio.gather(*(chain.search(SearchQuery(query)) for query in queries[first : first + 100]))
    return engine.calls


async def equal_searches() -> tuple[int, float]:
    engine = Engine(0.05)
    chain = SearchChain([NamedProvider("e", "e", engine)])
    began = time.perf_counter()
    await asyncio.gather(*(chain.search(SearchQuery("the same")) for _ in range(500)))
    return engine.calls, (time.perf_counter() - began) * 1000


async def fail_over() -> tuple[int, float, float]:
    broken, sound = Engine(refuses=True), Engine()
    chain = SearchChain([NamedProvider("a", "a", broken), NamedProvider("b", "b", sound)])
    times = []
    for n in range(200):
        began = time.perf_counter()
        await chain.search(SearchQuery(f"query {n}"))
        times.append((time.perf_counter() - began) * 1000)
    return broken.calls, times[0], statistics.median(times[1:])


async def main() -> None:
    kept, joined = await repeated_load(CacheSettings()), await repeated_load(NO_CACHE)
    print(f"2,000 searches over 200 queries: {kept} calls with the cache, {joined} with single flight alone")
    calls, spent = await equal_searches()
    print(f"500 equal searches at once: {calls} call, {spent:.0f} ms for a service that takes 50 ms")
    asked, first, later = await fail_over()
    print(f"429 and fail over: {first:.2f} ms, then {later:.2f} ms (median); who refused was asked {asked}× in 200")


if __name__ == "__main__":
    asyncio.run(main())
