"""One question from many processes at once: one of them asks the provider, the others wait for what it found.

Handed a cache that all processes can reach, a question and how to answer it; hands on the answer, with its age if it
was found there. A cache that cannot be reached has nothing and grants every claim: then each asks for itself.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar, cast

import orjson

from .base import Page, SearchResults, as_page, as_results, is_whole
from .errors import ProviderError

PATIENCE = 10.0  # seconds to wait for another process's answer; then it is slow or gone, and we ask too
CLAIM = 15.0  # seconds that a process which died can keep others waiting, but for their patience
FIRST_LOOK, LONGEST_PAUSE = 0.02, 0.25  # seconds between two looks, growing

Value = TypeVar("Value", bound=SearchResults | Page)


class SharedCache(Protocol):
    """What many processes keep together, each thing for its owner. No method raises."""

    async def get(self, owner: str, key: str) -> bytes | None: ...

    async def put(self, owner: str, key: str, value: bytes, ttl: float) -> None: ...

    async def claim(self, owner: str, key: str, token: str, ttl: float) -> str:
        """The token of the one who has the claim now: ours, if nobody had it."""

    async def release(self, owner: str, key: str, token: str) -> None:
        """Gives the claim up, if it is still this token's."""


class SharedFlight:
    def __init__(self, shared: SharedCache, *, patience: float = PATIENCE, claim: float = CLAIM) -> None:
        self._shared = shared
        self._patience = patience
        self._claim = claim

    async def find(self, key: str, owners: Iterable[str]) -> tuple[SearchResults | Page, float] | None:
        """The answer that was kept for one of them, and how many seconds ago it was given."""
        for owner in owners:
            data = await self._shared.get(owner, key)
            if data is not None and (kept := decode(data, time.time())):
                return kept
        return None

    async def answer(
        self,
        key: str,
        owners: tuple[str, ...],
        ask: Callable[[], Awaitable[Value]],
        owner_of: Callable[[Value], str],
        ttl: float,
    ) -> tuple[Value, float | None]:
        """The answer, with its age if it lay there already. `owners` are those whose answers will do, the first of them
        is the one to ask in the name of; `owner_of` says for whom a fresh answer is kept.
        """
        if kept := await self.find(key, owners):
            return cast(Value, kept[0]), kept[1]
        token = secrets.token_hex(8)
        claimed = await self._await_claim(key, owners, token)
        try:
            if kept := await self.find(key, owners):  # by the one that we waited for
                return cast(Value, kept[0]), None
            value = await ask()
            whole = is_whole(value)
            if whole and (data := encode(value, time.time())) is not None:
                await self._shared.put(owner_of(value), key, data, ttl)
            return value, None
        finally:
            if claimed:
                await self._shared.release(owners[0], key, token)

    async def _await_claim(self, key: str, owners: tuple[str, ...], token: str) -> bool:
        """True when the claim is ours; False when there is no more to wait for. Only one other is waited for: if it
        gives up without an answer, its provider has failed, and those who wait must not find that out in a row.
        """
        first = await self._shared.claim(owners[0], key, token, self._claim)
        holder, pause, deadline = first, FIRST_LOOK, time.monotonic() + self._patience
        while holder == first != token and time.monotonic() < deadline:
            await asyncio.sleep(pause * random.uniform(0.7, 1.3))
            pause = min(pause * 1.5, LONGEST_PAUSE)
            if await self.find(key, owners):
                break
            holder = await self._shared.claim(owners[0], key, token, self._claim)
        return holder == token


def encode(value: SearchResults | Page, now: float) -> bytes | None:
    """The answer and when it was given; None if its text is none that another process could read."""
    try:
        return orjson.dumps([now, "page" if isinstance(value, Page) else "results", value])
    except orjson.JSONEncodeError:
        return None


def decode(data: bytes, now: float) -> tuple[SearchResults | Page, float] | None:
    """The answer and its age; None for anything that `encode` did not write. Clocks of two machines differ a little."""
    try:
        given, kind, fields = orjson.loads(data)
        value = as_page(fields) if kind == "page" else as_results(fields)
        return value, max(0.0, now - float(given))
    except (ValueError, TypeError, ProviderError):
        return None
