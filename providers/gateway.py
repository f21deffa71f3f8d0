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
from .deadlines import Deadline
from .errors import ProviderError, TimedOut, Unavailable
from .limits import Throttle
from .neighbours import Neighbours, Trouble
from .registry import NamedProvider
from .settings import NO_CACHE, CacheSettings, CooldownSettings
from .shared import SharedCache

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT = 15.0  # for a provider that does not say how long it may take
GRACE = 1.0  # a provider's own time limit speaks first: its error says more than ours

Value = TypeVar("Value", bound=SearchResults | Page)
T = TypeVar("T")


class ProviderGateway:
    """`shared` is where many processes keep together what was found; `neighbours` are those processes, which have the
    same turns and cool-downs. `share` is this process's part of the calls that a provider may have at once.
    `cooled_down` is told of each provider that begins to be left alone; `clock` says when that is over.
    """

    def __init__(
        self,
        cooldown: CooldownSettings | None = None,
        cache: CacheSettings = NO_CACHE,
        shared: SharedCache | None = None,
        *,
        neighbours: Neighbours | None = None,
        share: float = 1.0,
        cooled_down: CooledDown | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        settings = cooldown or CooldownSettings()
        tell = neighbours.tell if neighbours else None
        self._cooldown_of = partial(Cooldown, settings=settings, cooled_down=cooled_down, tell=tell, clock=clock)
        self._cache = Cache(cache, shared)
        self._clients: dict[str, ProviderClient] = {}
        self._clock = clock
        self._share = share
        self._neighbours = neighbours
        self._heard: dict[tuple[str, str], tuple[Trouble, float]] = {}  # of providers that we have not asked yet
        if neighbours:
            neighbours.hear(self._hear)

    def _hear(self, trouble: Trouble) -> None:
        client, now = self._clients.get(trouble.provider), self._clock()
        if client is not None:
            news = client.cooldown.hear(trouble, now)
        else:
            place = trouble.provider, trouble.stopped
            news = place not in self._heard
            self._heard[place] = trouble, now
        if news:
            text = "provider %s is left alone for %.3g s, as another process was told: %s"
            log.info(text, trouble.provider, trouble.seconds, trouble.reason)

    def _client_of(self, member: NamedProvider) -> ProviderClient:
        client = self._clients.get(member.name)
        if client is None:
            cooldown = self._cooldown_of(member.name, reads_itself=member.reads_itself)
            client = self._clients[member.name] = ProviderClient(member, cooldown, self._neighbours, self._share)
            for place in [place for place in self._heard if place[0] == member.name]:
                cooldown.hear(*self._heard.pop(place))
        return client

    async def ask(
        self,
        member: NamedProvider,
        role: Role,
        subject: SearchQuery | str,
        work: Callable[[], Awaitable[Value]],
        caller: str = "",
    ) -> tuple[Value, float | None]:
        """What `member` answers, and its age in seconds if it is an earlier answer that was kept."""
        client = self._client_of(member)
        question = Question(member.name, role, subject)
        return await self._cache.answer(question, caller, lambda: client.call(role, work), private=member.private)

    def resting(self, name: str) -> Resting | None:
        """Whether the provider of this name is left alone."""
        client, now = self._clients.get(name), self._clock()
        if client is not None:
            return client.cooldown.resting()
        heard = (
            Resting(told.reason, at + told.seconds - now) for told, at in self._heard.values() if told.provider == name
        )
        return max((rest for rest in heard if rest.seconds > 0), key=lambda rest: rest.seconds, default=None)


class ProviderClient:
    """The way to one provider."""

    def __init__(
        self, member: NamedProvider, cooldown: Cooldown, neighbours: Neighbours | None = None, share: float = 1.0
    ) -> None:
        self._name = member.name
        own = getattr(member.provider, "timeout", None)
        self._timeout = float(own) if isinstance(own, int | float) else None
        start = partial(neighbours.start, member.name) if neighbours else None
        self._throttle = Throttle(member.limits, start, share)
        self.cooldown = cooldown

    async def call(self, role: Role, work: Callable[[], Awaitable[T]]) -> T:
        if self._throttle.unbounded:
            with self.cooldown.watch(role):
                return await self._bounded(work)
        self.cooldown.check(role)
        async with self._throttle.slot(self._timeout or DEFAULT_TIMEOUT):
            with self.cooldown.watch(role):  # checks again: much may have happened while this call stood in line
                return await self._bounded(work)

    async def _bounded(self, work: Callable[[], Awaitable[T]]) -> T:
        """The provider's answer, in its time, with no foreign exception left. Cancellation passes through."""
        limit = self._timeout + GRACE if self._timeout is not None else DEFAULT_TIMEOUT
        loop = asyncio.get_running_loop()
        deadline = Deadline(loop, loop.time() + limit)
        try:
            with deadline:
                return await work()
        except ProviderError:
            raise
        except Exception as error:  # The boundary to plugins, which may raise anything.
            if deadline.expired and isinstance(error, TimeoutError):
                raise TimedOut("no answer in time") from None
            # The stack holds source lines only. The exception's text is left out: it may hold a key.
            stack = "".join(traceback.format_tb(error.__traceback__))
            log.warning("provider %s raised %s\n%s", self._name, type(error).__name__, stack)
            raise Unavailable(f"the provider failed ({type(error).__name__})") from error
