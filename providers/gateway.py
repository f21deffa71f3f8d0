"""The one way to all providers, shared by the search chain and the read chain of one house.

Handed a member of a chain, what to ask it and how; hands on its answer from the cache, from a call that is under way or
from one of its own, which waits for its turn, keeps to its time and is not made while the provider cools down.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from .base import Page, Role, SearchQuery, SearchResults
from .cache import Cache, Question
from .cooldown import Cooldown, CooledDown, Resting
from .errors import ProviderError, TimedOut, Unavailable
from .limits import Throttle
from .registry import NamedProvider
from .settings import NO_CACHE, CacheSettings, CooldownSettings
from .shared import SharedCache

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT = 15.0  # for a provider that does not say how long it may take
GRACE = 1.0  # a provider's own time limit speaks first: its error says more than ours

Value = TypeVar("Value", bound=SearchResults | Page)
T = TypeVar("T")


class ProviderGateway:
    """`shared` is where many processes keep together what was found; turns and cool-downs are each process's own.
    `cooled_down` is told of each provider that begins to be left alone; `clock` says when that is over.
    """

    def __init__(
        self,
        cooldown: CooldownSettings | None = None,
        cache: CacheSettings = NO_CACHE,
        shared: SharedCache | None = None,
        *,
        cooled_down: CooledDown | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        settings = cooldown or CooldownSettings()
        self._cooldown_of = partial(Cooldown, settings=settings, cooled_down=cooled_down, clock=clock)
        self._cache = Cache(cache, shared)
        self._clients: dict[str, ProviderClient] = {}

    async def ask(
        self,
        member: NamedProvider,
        role: Role,
        subject: SearchQuery | str,
        work: Callable[[], Awaitable[Value]],
        caller: str = "",
    ) -> tuple[Value, float | None]:
        """What `member` answers, and its age in seconds if it is an earlier answer that was kept."""
        if member.name not in self._clients:
            cooldown = self._cooldown_of(member.name, reads_itself=member.reads_itself)
            self._clients[member.name] = ProviderClient(member, cooldown)
        client = self._clients[member.name]
        question = Question(member.name, role, subject)
        return await self._cache.answer(question, caller, lambda: client.call(role, work), private=member.private)

    def resting(self, name: str) -> Resting | None:
        """Whether the provider of this name is left alone."""
        client = self._clients.get(name)
        return client.resting() if client else None


class ProviderClient:
    """The way to one provider."""

    def __init__(self, member: NamedProvider, cooldown: Cooldown) -> None:
        self._name = member.name
        own = getattr(member.provider, "timeout", None)
        self._timeout = float(own) if isinstance(own, int | float) else None
        self._throttle = Throttle(member.limits)
        self._cooldown = cooldown

    def resting(self) -> Resting | None:
        return self._cooldown.resting()

    async def call(self, role: Role, work: Callable[[], Awaitable[T]]) -> T:
        self._cooldown.check(role)
        async with self._throttle.slot(self._timeout or DEFAULT_TIMEOUT):
            with self._cooldown.watch(role):  # checks again: much may have happened while this call stood in line
                return await self._bounded(work)

    async def _bounded(self, work: Callable[[], Awaitable[T]]) -> T:
        """The provider's answer, in its time, with no foreign exception left. Cancellation passes through."""
        limit = self._timeout + GRACE if self._timeout is not None else DEFAULT_TIMEOUT
        try:
            async with asyncio.timeout(limit):
                return await work()
        except ProviderError:
            raise
        except TimeoutError:
            raise TimedOut("no answer in time") from None
        except Exception as error:  # The boundary to plugins, which may raise anything.
            # The stack holds source lines only. The exception's text is left out: it may hold a key.
            stack = "".join(traceback.format_tb(error.__traceback__))
            log.warning("provider %s raised %s\n%s", self._name, type(error).__name__, stack)
            raise Unavailable(f"the provider failed ({type(error).__name__})") from error
