"""Ordered fail-over: asks one provider after the other until one has an answer. Empty counts as failure.

Handed the providers in their order and a query or URL; hands on the answer, who gave it and why the others did not.
From a private provider nothing falls over to a public one unless the operator said so.
"""

from __future__ import annotations

import asyncio
import logging
import re
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable
from urllib.parse import urlsplit

from .base import Page, SearchQuery, SearchResult, SearchResults, as_page, as_results
from .errors import BadRequest, NoResults, PageBlocked, ProviderError, TimedOut, Unavailable
from .registry import Named
from .web.guard import Guard

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT = 15.0  # for a provider that does not say how long it may take
GRACE = 1.0  # a provider's own time limit speaks first: its error says more than ours

_OUTSIDE = Guard()

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Failure:
    provider: str
    reason: str


class AllFailed(ProviderError):
    """Every provider was asked, or had to be left out; the text names why for each."""

    def __init__(self, what: str, failures: Sequence[Failure]) -> None:
        self.failures = tuple(failures)
        reasons = "; ".join(f"{failure.provider}: {failure.reason.rstrip('.')}" for failure in failures)
        super().__init__(f"{what} ({reasons or 'none is configured'}).")


@dataclass(frozen=True, slots=True)
class Found:
    results: SearchResults
    provider: str
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class Opened:
    page: Page
    provider: str
    failures: tuple[Failure, ...] = ()


@runtime_checkable
class Owner(Protocol):
    """A reader with documents of its own."""

    def owns(self, url: str) -> bool: ...


class SearchChain:
    def __init__(self, members: Sequence[Named], *, public_fallback: bool = False) -> None:
        self._members = tuple(members)
        self._public_fallback = public_fallback

    async def search(self, query: SearchQuery, provider: str | None = None) -> Found:
        """The first useful answer. `provider` is asked first; the others stay behind it in their order."""
        wanted = _with_clean_domains(query)

        async def ask(member: Named) -> SearchResults:
            provider: Any = member.provider
            return _select(as_results(await provider.search(wanted)), wanted, public=not member.private)

        fall_over = _FallOver("No search provider had an answer", public_fallback=self._public_fallback)
        results, name = await fall_over.first(self._order(provider), ask)
        return Found(results, name, tuple(fall_over.failures))

    def _order(self, first: str | None) -> tuple[Named, ...]:
        if first is None:
            return self._members
        names = [member.name for member in self._members]
        if first not in names:
            raise BadRequest(f"There is no search provider {first!r}; valid names: {', '.join(names) or 'none'}.")
        return tuple(sorted(self._members, key=lambda member: member.name != first))


class ReadChain:
    def __init__(self, members: Sequence[Named], *, public_fallback: bool = False) -> None:
        self._members = tuple(members)
        self._public_fallback = public_fallback

    async def read(self, url: str) -> Opened:
        """The page, from the owner of the URL alone if it has one (a local document), else from the first that can."""

        async def ask(member: Named) -> Page:
            provider: Any = member.provider
            page = as_page(await provider.read(url))
            if not page.text.strip():
                raise PageBlocked("the page has no readable text")
            return page

        fall_over = _FallOver("No reader could open the page", public_fallback=self._public_fallback)
        page, name = await fall_over.first(self._readers(url), ask)
        return Opened(page, name, tuple(fall_over.failures))

    def _readers(self, url: str) -> tuple[Named, ...]:
        """Who may read this URL. A provider that owns documents reads those and nothing else."""
        for member in self._members:
            if isinstance(member.provider, Owner) and member.provider.owns(url):
                return (member,)
        if _scheme(url) == "local":
            raise Unavailable("There is no such document.")
        return tuple(member for member in self._members if not isinstance(member.provider, Owner))


class _FallOver:
    """One walk down a chain: who failed so far, and who may still be asked."""

    def __init__(self, verdict: str, *, public_fallback: bool) -> None:
        self.failures: list[Failure] = []
        self._verdict = verdict
        self._public_allowed = True
        self._public_fallback = public_fallback

    async def first(self, members: Iterable[Named], ask: Callable[[Named], Awaitable[T]]) -> tuple[T, str]:
        for member in members:
            if not member.private and not self._public_allowed:
                self._note(member, "not asked, because `public_fallback` is off and a private provider came first")
                continue
            try:
                return await _bounded(member, ask), member.name
            except ProviderError as error:
                if not error.falls_over:
                    raise
                self._note(member, str(error))
                self._public_allowed = self._public_allowed and (self._public_fallback or not member.private)
        raise AllFailed(self._verdict, self.failures)

    def _note(self, member: Named, reason: str) -> None:
        self.failures.append(Failure(member.name, reason))


async def _bounded(member: Named, ask: Callable[[Named], Awaitable[T]]) -> T:
    """One provider's answer, in its time, with no foreign exception left. Cancellation passes through."""
    own = getattr(member.provider, "timeout", None)
    limit = own + GRACE if isinstance(own, int | float) else DEFAULT_TIMEOUT
    try:
        async with asyncio.timeout(limit):
            return await ask(member)
    except ProviderError:
        raise
    except TimeoutError:
        raise TimedOut("no answer in time") from None
    except Exception as error:  # The boundary to plugins, which may raise anything.
        # The stack holds source lines only. The exception's text is left out: it may hold a key.
        stack = "".join(traceback.format_tb(error.__traceback__))
        log.warning("provider %s raised %s\n%s", member.name, type(error).__name__, stack)
        raise Unavailable(f"the provider failed ({type(error).__name__})") from error


def _with_clean_domains(query: SearchQuery) -> SearchQuery:
    allowed = clean_domains(query.allowed_domains)
    if query.allowed_domains and not allowed:
        raise BadRequest("None of the allowed domains is a domain name.")
    return replace(query, allowed_domains=allowed, blocked_domains=clean_domains(query.blocked_domains))


def _select(found: SearchResults, query: SearchQuery, *, public: bool) -> SearchResults:
    """What may be shown: web or local URLs that the filters let through, each once, no more than asked for.

    A public engine has no business naming addresses inside our network; a private one may.
    """
    chosen: dict[str, SearchResult] = {}
    for result in found.results:
        host = host_of(result.url)
        if not host or in_domains(host, query.blocked_domains) or (public and not _leads_outside(result.url)):
            continue
        if query.allowed_domains and not in_domains(host, query.allowed_domains):
            continue
        if _in_range(result.date, query):
            chosen.setdefault(_same_page(result.url), result)
    if not chosen and found.results:
        raise NoResults("nothing found that passes the filters")
    if not chosen and not found.answer:
        raise NoResults("nothing found")
    return replace(found, results=tuple(chosen.values())[: query.limit])


def _leads_outside(url: str) -> bool:
    if _scheme(url) == "local":
        return True
    try:
        _OUTSIDE.parse(url)
    except ProviderError:
        return False
    return True


def host_of(url: str) -> str:
    """The host that domain filters look at, in ASCII; the label of a `local:label/path`; empty for anything else."""
    scheme = _scheme(url)
    if scheme == "local":
        return url[len("local:") :].partition("/")[0].lower()
    try:
        return _ascii(urlsplit(url.strip()).hostname or "") if scheme in ("http", "https") else ""
    except ValueError:
        return ""


def in_domains(host: str, domains: Iterable[str]) -> bool:
    """Exact or below: `docs.example.org` is in `example.org`, `badexample.org` is not."""
    return any(host == domain or host.endswith("." + domain) for domain in domains)


def clean_domains(given: Iterable[str]) -> tuple[str, ...]:
    """Domains as people and models write them (`*.example.org`, `https://example.org/`), in the form of `host_of`."""

    def bare() -> Iterator[str]:
        for text in given:
            host = text.strip().lower().partition("://")[2] or text.strip().lower()
            yield _ascii(re.split(r"[/:?#]", host, maxsplit=1)[0].removeprefix("*").strip("."))

    return tuple(domain for domain in bare() if domain)


def _ascii(host: str) -> str:
    host = host.lower().rstrip(".")
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        return host


def _scheme(url: str) -> str:
    return url.strip().partition(":")[0].lower()


def _same_page(url: str) -> str:
    """The spelling under which two results count as one page."""
    page = url.strip().partition("#")[0]
    return page.rstrip("/").partition("://")[2].removeprefix("www.") or page


def _in_range(date: str | None, query: SearchQuery) -> bool:
    """A dated result must lie in the range that was asked for; most pages carry no date, and those stay."""
    if date is None or not re.match(r"\d{4}-\d\d-\d\d", date):
        return True
    return (query.published_after or "") <= date[:10] <= (query.published_before or "9999")
