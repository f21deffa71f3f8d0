"""Small real providers for the chains: they count what they are asked, and do as they are told until told otherwise."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from providers.base import Page, SearchQuery, SearchResult
from providers.limits import Limits
from providers.registry import NamedProvider

HIT = SearchResult("A", "https://example.org/a", "text")


class Engine:
    """Searches and reads. `outcome` is a value, an error to raise, or a coroutine function to run."""

    def __init__(self, outcome: Any = None, **features: Any) -> None:
        self.outcome = outcome
        self.asked: list[Any] = []
        self.started: list[float] = []
        self.cancelled = 0
        self.most_at_once = 0
        self._at_once = 0
        for name, value in features.items():
            setattr(self, name, value)

    async def search(self, query: SearchQuery) -> Any:
        return await self._answer(query, [HIT])

    async def read(self, url: str) -> Any:
        return await self._answer(url, Page(url, "Title", f"The words of {url}"))

    async def _answer(self, asked: Any, usual: Any) -> Any:
        self.asked.append(asked)
        self.started.append(time.monotonic())
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            outcome = await self.outcome() if callable(self.outcome) else self.outcome
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self._at_once -= 1
        if isinstance(outcome, BaseException):
            raise outcome
        return usual if outcome is None else outcome

    def named(self, name: str = "a", *, private: bool = False, **limits: Any) -> NamedProvider:
        return NamedProvider(name, "test", self, private, Limits(**limits))


class Gate:
    """An outcome that waits until it is opened, and then is another."""

    def __init__(self, outcome: Any = None) -> None:
        self.outcome = outcome
        self._open = asyncio.Event()

    async def __call__(self) -> Any:
        await self._open.wait()
        return self.outcome

    def open(self) -> None:
        self._open.set()


def after(seconds: float, outcome: Any = None) -> Callable[[], Awaitable[Any]]:
    async def wait() -> Any:
        await asyncio.sleep(seconds)
        return outcome

    return wait


async def until(condition: Callable[[], Any]) -> None:
    """Lets the others work until the condition holds."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)
