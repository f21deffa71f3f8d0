"""Ordered fail-over: asks one provider after the other until one has an answer. Empty counts as failure.

Handed the providers in their order and a query or URL; hands on the answer, who gave it and why the others did not.
From a private provider nothing falls over to a public one unless the operator said so, and no hosted reader hears of
a page that is not public. A provider that cools down is passed over; if all do, that is the answer, at once: waiting
would hold the model up, and asking one all the same would keep it down.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import field, replace
from datetime import date
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from .base import (
    Observe,
    Page,
    ProviderCall,
    Role,
    SearchQuery,
    SearchResult,
    SearchResults,
    as_page,
    as_results,
    size_of,
)
from .errors import BadRequest, NoResults, NotAllowed, Outcome, PageBlocked, ProviderError, Unavailable
from .gateway import ProviderGateway
from .queries import days_of
from .records import dataclass
from .registry import NamedProvider
from .urls import cache_key, canonical, clean_domains, host_of, in_domains, scheme_of, with_ascii_host
from .web.guard import Guard

log = logging.getLogger(__name__)

_OUTSIDE = Guard()
_INSIDE = "found only addresses that may not be shown"
_LIST_INSIDE = "list the private network whose addresses it names in `tools.allow_networks`"

T = TypeVar("T", SearchResults, Page)

Providers = Literal["private"] | frozenset[str] | None  # who may be asked: those that tell nobody, some by name, or all
IsPublic = Callable[[str], Awaitable[bool]]
Ask = Callable[[NamedProvider], Awaitable[tuple[T, float | None]]]  # an answer, and its age if it was kept


@dataclass(frozen=True, slots=True)
class Failure:
    provider: str
    reason: str
    error: ProviderError | None = field(default=None, compare=False, repr=False)  # None if it was not asked
    advice: str = field(default="", compare=False)  # for the operator


class AllFailed(ProviderError):
    """Every provider was asked, or had to be left out; the text names why for each."""

    def __init__(self, what: str, failures: Sequence[Failure]) -> None:
        self.failures = tuple(failures)
        reasons = "; ".join(f"{failure.provider}: {failure.reason.rstrip('.')}" for failure in failures)
        advice = "; ".join(f"{failure.provider}: {failure.advice}" for failure in failures if failure.advice)
        super().__init__(f"{what} ({reasons or 'none is configured'}).", advice=advice)


class Withheld(ProviderError):
    """A hosted reader was passed over: the page is none of its business."""


@dataclass(frozen=True, slots=True)
class Found:
    results: SearchResults
    provider: str
    failures: tuple[Failure, ...] = ()
    age: float | None = None  # seconds since it was asked for, if nobody was asked now


@dataclass(frozen=True, slots=True)
class Opened:
    page: Page
    provider: str
    failures: tuple[Failure, ...] = ()
    age: float | None = None


@runtime_checkable
class Owner(Protocol):
    """A reader with documents of its own."""

    def owns(self, url: str) -> bool: ...


class SearchChain:
    """`gateway` is the way to the providers; chains that share members share it. `guard` knows which addresses inside
    our own network a private provider may name.
    """

    def __init__(
        self,
        members: Sequence[NamedProvider],
        *,
        public_fallback: bool = False,
        gateway: ProviderGateway | None = None,
        guard: Guard = _OUTSIDE,
    ) -> None:
        self._members = tuple(members)
        self._guard = guard
        self._public_fallback = public_fallback
        self._gateway = gateway or ProviderGateway()

    def serves(self, only: Providers) -> bool:
        """Is there anybody to ask for who may ask these alone?"""
        return bool(self.names(only))

    def names(self, only: Providers) -> tuple[str, ...]:
        """Those who may be asked, in their order."""
        return tuple(member.name for member in _permitted(self._members, "search", only))

    def stays_here(self, only: Providers) -> bool:
        """Does no query leave this machine? A private engine may still ask others."""
        return all(isinstance(member.provider, Owner) for member in _permitted(self._members, "search", only))

    async def search(
        self,
        query: SearchQuery,
        provider: str | None = None,
        caller: str = "",
        observe: Observe | None = None,
        only: Providers = None,
    ) -> Found:
        """The first useful answer. `provider` is asked first; the others stay behind it in their order. `observe` is
        told of each that was asked, or passed over because it cools down. `only` are those that may be asked.
        """
        wanted = _normalised(query)

        async def ask(member: NamedProvider) -> tuple[SearchResults, float | None]:
            async def work() -> SearchResults:
                provider: Any = member.provider
                return _select(as_results(await provider.search(wanted)), wanted, member, self._guard)

            return await self._gateway.ask(member, "search", wanted, work, caller)

        fall_over = _FallOver("search", wanted.text, self._public_fallback, observe)
        results, age, name = await fall_over.first(self._order(provider, only), ask)
        return Found(results, name, tuple(fall_over.failures), age)

    def _order(self, first: str | None, only: Providers) -> tuple[NamedProvider, ...]:
        members = _permitted(self._members, "search", only)
        if first is None:
            return members
        names = [member.name for member in members]
        if first not in names:
            raise BadRequest(f"There is no search provider {first!r}; valid names: {', '.join(names) or 'none'}.")
        return tuple(sorted(members, key=lambda member: member.name != first))


class ReadChain:
    """`is_public` is the guard's word on a URL, asked before a hosted reader hears of it."""

    def __init__(
        self,
        members: Sequence[NamedProvider],
        *,
        public_fallback: bool = False,
        gateway: ProviderGateway | None = None,
        is_public: IsPublic | None = None,
    ) -> None:
        self._members = tuple(members)
        self._public_fallback = public_fallback
        self._gateway = gateway or ProviderGateway()
        self._is_public = is_public

    def serves(self, only: Providers) -> bool:
        return bool(_permitted(self._members, "read", only))

    async def read(self, url: str, caller: str = "", observe: Observe | None = None, only: Providers = None) -> Opened:
        """The page, from the owner of the URL alone if it has one (a local document), else from the first that can."""
        readers = self._readers(url, only)
        clearance = _Clearance(url, self._is_public)
        address = with_ascii_host(url)  # another reader might look a name up by other rules than the guard

        async def ask(member: NamedProvider) -> tuple[Page, float | None]:
            async def work() -> Page:
                provider: Any = member.provider
                page = as_page(await provider.read(url if isinstance(provider, Owner) else address))
                if not page.text.strip():
                    raise PageBlocked("the page has no readable text")
                return page

            if member.hosted:
                await clearance.check()
            return await self._gateway.ask(member, "read", cache_key(url), work, caller)

        fall_over = _FallOver("read", url, self._public_fallback, observe)
        try:
            page, age, name = await fall_over.first(readers, ask)
        except AllFailed:
            if clearance.refused and all(member.hosted for member in readers):
                raise clearance.refused from None
            raise
        return Opened(page, name, tuple(fall_over.failures), age)

    def _readers(self, url: str, only: Providers) -> tuple[NamedProvider, ...]:
        """Who may read this URL. A provider that owns documents reads those and nothing else."""
        members = _permitted(self._members, "read", only)
        for member in members:
            if _owns(member, url):
                return (member,)
        if scheme_of(url) == "local":
            raise Unavailable("There is no such document.")
        readers = tuple(member for member in members if not isinstance(member.provider, Owner))
        if not readers:
            raise Unavailable("no configured reader can open web pages")
        return readers


class _Clearance:
    """Whether hosted readers may hear of a URL: the guard is asked when the first of them would, and once."""

    def __init__(self, url: str, is_public: IsPublic | None) -> None:
        self.refused: NotAllowed | None = None
        self._url = url
        self._is_public = is_public
        self._reason: str | None = None

    async def check(self) -> None:
        if self._reason is None:
            self._reason = await self._ask()
        if self._reason:
            raise Withheld(self._reason)

    async def _ask(self) -> str:
        if self._is_public is None:
            return ""
        try:
            public = await self._is_public(self._url)
        except NotAllowed as error:
            self.refused = error
            return f"not asked, because {error}"
        except ProviderError as error:  # what cannot be looked up here may be anything
            return f"not asked, because {error}"
        return "" if public else "not asked, because the page is not public and this reader is hosted by others"


_AFTER_PRIVATE = "not asked, because a private provider came first"
_ALLOW_PUBLIC = "set `tools.public_fallback` to true if it may be asked all the same"
_NOBODY: dict[Role, str] = {"search": "No search provider had an answer", "read": "No reader could open the page"}


class _FallOver:
    """One walk down a chain: who failed so far, and who may still be asked. `asked` is what for, in words."""

    def __init__(self, role: Role, asked: str, public_fallback: bool, observe: Observe | None) -> None:
        self.failures: list[Failure] = []
        self._role = role
        self._asked = asked
        self._public_allowed = True
        self._public_fallback = public_fallback
        self._observe = observe

    async def first(self, members: Iterable[NamedProvider], ask: Ask[T]) -> tuple[T, float | None, str]:
        """The first answer, its age if it was kept, and the name of who gave it."""
        for member in members:
            if _tells_the_public(member, self._role) and not self._public_allowed:
                self.failures.append(Failure(member.name, _AFTER_PRIVATE, advice=_ALLOW_PUBLIC))
                continue
            try:
                answer, age = await self._ask(member, ask)
                return answer, age, member.name
            except ProviderError as error:
                if not error.falls_over:
                    raise
                self.failures.append(Failure(member.name, str(error), error, error.advice))
                if member.private and not self._public_fallback and not isinstance(error, Withheld):
                    self._public_allowed = False
        raise AllFailed(_NOBODY[self._role], self.failures)

    async def _ask(self, member: NamedProvider, ask: Ask[T]) -> tuple[T, float | None]:
        """One call, and a word on it to who watches. A call that is broken off has no outcome."""
        if self._observe is None:
            return await ask(member)
        began = time.monotonic()
        try:
            answer, age = await ask(member)
        except Withheld:  # it was not asked
            raise
        except ProviderError as error:
            self._report(member, error.outcome, began)
            raise
        self._report(member, "ok", began, answer, cached=age is not None)
        return answer, age

    def _report(
        self,
        member: NamedProvider,
        outcome: Outcome,
        began: float,
        answer: SearchResults | Page | None = None,
        *,
        cached: bool = False,
    ) -> None:
        assert self._observe is not None
        seconds = time.monotonic() - began
        size = size_of(answer) if answer else 0
        results = len(answer.results) if isinstance(answer, SearchResults) else None
        self._observe(ProviderCall(member.name, self._role, outcome, cached, seconds, self._asked, size, results))


def _permitted(members: tuple[NamedProvider, ...], role: Role, only: Providers) -> tuple[NamedProvider, ...]:
    if only is None:
        return members
    if only == "private":
        return tuple(member for member in members if not _tells_the_public(member, role))
    return tuple(member for member in members if member.name in only)


def _tells_the_public(member: NamedProvider, role: Role) -> bool:
    """A reader of our own that dials the page tells nobody but the page."""
    ours = role == "read" and member.reads_itself and not member.hosted
    return not member.private and not ours


def _owns(member: NamedProvider, url: str) -> bool:
    if not isinstance(member.provider, Owner):
        return False
    try:
        return member.provider.owns(url)
    except Exception as error:  # A boundary: a plugin may raise anything, and only its type is sure to hold no secret.
        log.warning("provider %s raised %s when asked for its documents", member.name, type(error).__name__)
        return False


def _normalised(query: SearchQuery) -> SearchQuery:
    """The query in the one spelling that providers are asked and answers are kept under."""
    text = " ".join(query.text.split())
    if not query.allowed_domains and not query.blocked_domains:
        return query if text == query.text else replace(query, text=text)
    allowed = clean_domains(query.allowed_domains)
    if query.allowed_domains and not allowed:
        raise BadRequest("None of the allowed domains is a domain name.")
    blocked = clean_domains(query.blocked_domains)
    return replace(
        query, text=text, allowed_domains=tuple(sorted(set(allowed))), blocked_domains=tuple(sorted(set(blocked)))
    )


def _select(found: SearchResults, query: SearchQuery, member: NamedProvider, guard: Guard) -> SearchResults:
    """What may be shown: web or local URLs that the filters let through, each once, no more than asked for."""
    chosen: dict[str, SearchResult] = {}
    first, last = days_of(query, relative=True)
    named = False
    for result in found.results:
        if _may_name(member, result.url, guard):
            named = True
            if _is_wanted(result.url, query) and (result.date is None or _in_range(result.date, first, last)):
                chosen.setdefault(canonical(result.url), result)
    if not named and found.results:
        raise NoResults(_INSIDE, advice=_LIST_INSIDE)
    if not chosen and found.results:
        raise NoResults("nothing found that passes the filters")
    if not chosen and not found.answer:
        raise NoResults("nothing found")
    return SearchResults(tuple(chosen.values())[: query.limit], found.answer, found.note, found.partial)


def _is_wanted(url: str, query: SearchQuery) -> bool:
    """By its domain, which it must have."""
    host, allowed, blocked = host_of(url), query.allowed_domains, query.blocked_domains
    if not host or (blocked and in_domains(host, blocked)):
        return False
    return not allowed or in_domains(host, allowed)


def _may_name(member: NamedProvider, url: str, guard: Guard) -> bool:
    """No engine has any business naming addresses inside our network, unless `allow_networks` lists them. Documents of
    its own a provider may always name."""
    if guard.may_name(url):
        return True
    if scheme_of(url) == "local":
        return member.private or isinstance(member.provider, Owner)
    return _owns(member, url)


def _in_range(day: str, first: date | None, last: date | None) -> bool:
    """A dated result must lie in the range that was asked for; most pages carry no date, and those stay."""
    if not re.match(r"\d{4}-\d\d-\d\d", day):
        return True
    return str(first or "") <= day[:10] <= str(last or "9999")
