"""What was found and read a short while ago, and what is being asked for right now: the same question costs one call.

Handed a question, who asks it and how to answer it; hands on the answer, with its age if it was kept. What is public is
shared between callers; what a private provider or an inner network gave is kept for the caller who asked. Behind this
process's own memory there may be one that many processes share.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from operator import methodcaller
from sys import getsizeof
from typing import Any, Generic, NamedTuple, TypeVar, cast

from .base import Page, Role, SearchQuery, SearchResults, is_whole
from .records import compared, dataclass
from .settings import CacheSettings
from .shared import SharedCache, SharedFlight

SHARED = ""  # the caller in whose name everybody's answers are kept; without client keys there is no other

Value = TypeVar("Value", bound=SearchResults | Page)
T = TypeVar("T")


class Question(NamedTuple):
    provider: str
    role: Role
    subject: SearchQuery | str  # the whole query, or the page


class Cache:
    def __init__(self, settings: CacheSettings, shared: SharedCache | None = None) -> None:
        self._ttl: dict[Role, float] = {"search": settings.search_ttl, "read": settings.page_ttl}
        self._kept = ExpiringCache(settings.max_entries, settings.max_size)
        self._single_flight = SingleFlight()
        self._shared_flight = SharedFlight(shared) if shared else None

    async def answer(
        self, question: Question, caller: str, ask: Callable[[], Awaitable[Value]], *, private: bool
    ) -> tuple[Value, float | None]:
        """The answer, and how many seconds ago it was given if nobody had to be asked. Failures are not kept."""
        inquiry = _Inquiry(question, caller, private, ask)
        now = time.monotonic()
        for owner in inquiry.owners:
            if kept := self._kept.get((owner, inquiry.key), now):
                return cast(Value, kept.value), kept.age
        call = partial(self._call, inquiry)
        given = await self._single_flight.join((inquiry.owners[0], inquiry.key), call)
        if given.own and given.caller != caller:  # known only now: this page is not for everybody
            given = await self._single_flight.join((caller, inquiry.key), call)
        return given.value, given.age

    async def _call(self, inquiry: _Inquiry[Value]) -> _Given[Value]:
        """Asks, among all processes where there are several, and keeps the answer for its owner."""
        question, ttl, age = inquiry.question, self._ttl[inquiry.question.role], None
        if self._shared_flight and ttl:
            value, age = await self._shared_flight.answer(
                repr(question), inquiry.owners, inquiry.ask, inquiry.owner_of, ttl
            )
        else:
            value = await inquiry.ask()
        if ttl and is_whole(value):
            key = inquiry.owner_of(value), inquiry.key
            self._kept.put(key, value, weight(value), time.monotonic() - (age or 0.0), ttl)
        return _Given(value, inquiry.caller, inquiry.is_own(value), age)


class _Inquiry(Generic[Value]):
    """A question in a caller's name, and who may have the answer: its caller alone, or everybody. `private`: its caller
    alone, whatever the provider gives."""

    __slots__ = ("ask", "caller", "key", "owners", "private", "question")

    def __init__(self, question: Question, caller: str, private: bool, ask: Callable[[], Awaitable[Value]]) -> None:
        self.question = question
        provider, role, subject = question
        self.key = (provider, role, subject if isinstance(subject, str) else compared(subject))
        self.caller = caller
        self.private = private
        self.ask = ask
        # Whose answers would do. The first of them is the one who will probably have it.
        self.owners = (caller,) if private or caller == SHARED else (SHARED, caller)

    def is_own(self, value: SearchResults | Page) -> bool:
        return self.private or (isinstance(value, Page) and not value.public)

    def owner_of(self, value: SearchResults | Page) -> str:
        return self.caller if self.is_own(value) else SHARED


@dataclass(frozen=True, slots=True)
class _Given(Generic[T]):
    value: T
    caller: str  # in whose name it was asked for
    own: bool  # and for whom alone it is
    age: float | None


@dataclass(frozen=True, slots=True)
class Kept:
    value: object
    age: float


class ExpiringCache:
    """Keeps values until they are too old, or too many: then those go first that were not asked for the longest."""

    def __init__(self, max_entries: int, max_size: int) -> None:
        self._max_entries = max_entries
        self._max_size = max_size
        self._entries: OrderedDict[object, tuple[object, int, float, float]] = OrderedDict()
        self._size = 0

    def get(self, key: object, now: float) -> Kept | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, _, since, ttl = entry
        if now - since >= ttl:
            self.drop(key)
            return None
        self._entries.move_to_end(key)
        return Kept(value, now - since)

    def put(self, key: object, value: object, size: int, now: float, ttl: float) -> None:
        self.drop(key)
        if size > self._max_size:
            return
        self._entries[key] = (value, size, now, ttl)
        self._size += size
        while len(self._entries) > self._max_entries or self._size > self._max_size:
            self.drop(next(iter(self._entries)))

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        return self._size

    def drop(self, key: object) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._size -= entry[1]


class SingleFlight:
    """Single flight: who asks for what is being asked for already waits for that answer. The call belongs to nobody: it
    goes on when the one who began it leaves, and is broken off when the last one does. A failure is told to all who
    wait, and to no one after them.
    """

    def __init__(self) -> None:
        self._under_way: dict[object, _Flight] = {}

    async def join(self, key: object, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        loop = asyncio.get_running_loop()
        flight = self._under_way.get(key)
        if flight is None:
            flight = self._under_way[key] = _Flight()
            flight.task = loop.create_task(self._fly(key, flight, call))
        waiter: asyncio.Future[T] = loop.create_future()
        flight.waiters.add(waiter)
        try:
            return await waiter
        finally:
            flight.waiters.discard(waiter)
            if not flight.waiters and not flight.task.done():
                self._end(key, flight)  # at once: nobody may join what is being broken off
                flight.task.cancel()
                await asyncio.wait([flight.task])

    async def _fly(self, key: object, flight: _Flight, call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Tells all who wait what comes of it. A call that fails while it is broken off has nobody left to tell."""
        try:
            value = await call()
        except asyncio.CancelledError:  # not raised again: its stack would hold the flight, and that the task
            self._land(key, flight, methodcaller("cancel"))
        except BaseException as error:  # a panic in a library's Rust is no Exception: they must hear of it too
            self._land(key, flight, methodcaller("set_exception", error))
        else:
            self._land(key, flight, methodcaller("set_result", value))

    def _land(self, key: object, flight: _Flight, tell: Callable[[asyncio.Future[Any]], object]) -> None:
        """From here on nobody joins it, and all who still wait are told."""
        self._end(key, flight)
        for waiter in flight.waiters:
            if not waiter.done():
                tell(waiter)

    def _end(self, key: object, flight: _Flight) -> None:
        if not flight.ended:
            flight.ended = True
            del self._under_way[key]


class _Flight:
    __slots__ = ("ended", "task", "waiters")

    task: asyncio.Task[None]  # set by who begins it, because it has to know the flight

    def __init__(self) -> None:
        self.waiters: set[asyncio.Future[Any]] = set()
        self.ended = False  # for those who would join it


def weight(value: SearchResults | Page) -> int:
    """About how many bytes of memory the value takes: its texts, and what Python adds to each."""
    if isinstance(value, Page):
        texts = [value.url, value.title, value.text, value.date or "", *value.links]
    else:
        texts = [value.answer]
        for hit in value.results:
            texts += (hit.title, hit.url, hit.snippet, hit.date or "")
    return sum(map(getsizeof, texts))
