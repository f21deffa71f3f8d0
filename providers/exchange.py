"""The lines to all providers, shared by the search chain and the read chain of one house.

Handed a member of a chain, what to ask it and how; hands on its answer from the cache, from a call that is under way or
from one of its own, which waits for its turn, keeps to its time and is not made while the provider cools down.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable
from typing import TypeVar

from .base import Page, SearchQuery, SearchResults
from .cache import Cache, Question
from .cooldown import Health, Role
from .errors import ProviderError, TimedOut, Unavailable
from .limits import Turns
from .registry import Named
from .settings import NO_CACHE, CacheSettings, CooldownSettings
from .shared import SharedShelf

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT = 15.0  # for a provider that does not say how long it may take
GRACE = 1.0  # a provider's own time limit speaks first: its error says more than ours

Answer = TypeVar("Answer", bound=SearchResults | Page)
T = TypeVar("T")


class Exchange:
    """`shared` is where many processes keep together what was found; turns and cool-downs are each process's own."""

    def __init__(
        self,
        cooldown: CooldownSettings | None = None,
        cache: CacheSettings = NO_CACHE,
        shared: SharedShelf | None = None,
    ) -> None:
        self._cooldown = cooldown or CooldownSettings()
        self._cache = Cache(cache, shared)
        self._lines: dict[str, Line] = {}

    async def ask(
        self,
        member: Named,
        role: Role,
        subject: SearchQuery | str,
        work: Callable[[], Awaitable[Answer]],
        caller: str = "",
    ) -> tuple[Answer, float | None]:
        """What `member` answers, and its age in seconds if it is an earlier answer that was kept."""
        if member.name not in self._lines:
            self._lines[member.name] = Line(member, self._cooldown)
        line = self._lines[member.name]
        question = Question(member.name, role, subject)
        return await self._cache.answer(question, caller, lambda: line.call(role, work), private=member.private)


class Line:
    """The way to one provider."""

    def __init__(self, member: Named, cooldown: CooldownSettings) -> None:
        self._name = member.name
        own = getattr(member.provider, "timeout", None)
        self._timeout = float(own) if isinstance(own, int | float) else None
        self._turns = Turns(member.limits)
        self._health = Health(member.name, cooldown, reads_itself=member.reads_itself)

    async def call(self, role: Role, work: Callable[[], Awaitable[T]]) -> T:
        self._health.check(role)
        async with self._turns.turn(self._timeout or DEFAULT_TIMEOUT):
            with self._health.watch(role):  # checks again: much may have happened while this call stood in line
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
