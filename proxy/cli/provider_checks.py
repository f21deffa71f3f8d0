"""Of `groundwire check`: every provider is tried with one real query, every reader with one real page.

Handed a house and its parts; hands on findings, and notes about what is configured to no use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from providers.base import Inspectable, Inspection, Role, SearchQuery
from providers.chain import AllFailed, Owner, ReadChain, SearchChain
from providers.documents.report import Indexing, summary
from providers.errors import NoResults, ProviderError, TimedOut
from providers.gateway import ProviderGateway
from providers.registry import SERVICES, NamedProvider, ProviderEntry

from ..house import House
from . import remedies
from .findings import Finding, Trouble, counted, tried
from .remedies import PROBE_TEXT

PROBE_QUERY = SearchQuery(PROBE_TEXT, limit=3)


def roles_to_try(house: House, member: NamedProvider) -> list[Role]:
    """What it is there for, else all that it can do. Documents of its own are tried by searching them."""
    able: list[Role] = []
    if member.can_search:
        able.append("search")
    if member.can_read:
        able.append("read")
    if isinstance(member.provider, Owner):
        return able[:1]
    used = {"search": house.searchers, "read": house.readers}
    return [role for role in able if member in used[role]] or able


async def try_provider(
    member: NamedProvider, entry: ProviderEntry, role: Role, gateway: ProviderGateway, page: str, limit: float
) -> Finding:
    async def attempt() -> str:
        try:
            indexed = await _index(member.provider, limit) if role == "search" else ""
            found = await (_search(member, gateway) if role == "search" else _read(member, gateway, page))
            return "; ".join(filter(None, [indexed, found]))
        except ProviderError as error:
            fix = remedies.for_provider(member, entry, role, error)
            raise Trouble(str(error), fix) from None

    own = getattr(member.provider, "timeout", None)  # a slow provider that is within its own time works
    longest = max(limit, own + 2) if isinstance(own, int | float) else limit
    when_late = remedies.for_provider(member, entry, role, TimedOut(""))
    return await tried(member.name, role, attempt(), longest, when_late, url=_address(member, role, page))


def _address(member: NamedProvider, role: Role, page: str) -> str:
    """What is asked: the service, or the page itself by those who open it themselves. Nobody is asked for a folder."""
    if isinstance(member.provider, Owner):
        return ""
    alone = getattr(member.provider, "search_url", "") if role == "search" else ""  # not where its pages are read
    return alone or member.base_url or (page if role == "read" else "")


async def _index(provider: object, limit: float) -> str:
    """What is in its index, if it has one, and what is not; one that takes long is not waited for."""
    if not isinstance(provider, Indexing):
        return ""
    patience = asyncio.timeout(limit)
    try:
        async with patience:
            report = await provider.indexed()
    except TimeoutError:
        if not patience.expired():
            raise
        return f"{summary(await provider.index_report())} (`groundwire index` makes the index now)"
    return summary(report)


async def _search(member: NamedProvider, gateway: ProviderGateway) -> str:
    try:
        found = await SearchChain([member], gateway=gateway).search(PROBE_QUERY)
    except AllFailed as failed:
        error = failed.failures[0].error or failed
        # Somebody's documents, or what a plugin knows, need not be about our query; the web is.
        if isinstance(error, NoResults) and (isinstance(member.provider, Owner) or member.type not in SERVICES):
            return f"can be searched; nothing there is about {PROBE_QUERY.text!r}"
        raise error from None
    told = await _inspect(member)
    if told.problem:
        raise Trouble(told.problem, told.fix.format(name=repr(member.name)))
    return "; ".join(filter(None, [counted(len(found.results.results), "result"), told.remark]))


async def _inspect(member: NamedProvider) -> Inspection:
    """What a provider that works can tell of its settings."""
    told = await member.provider.inspect() if isinstance(member.provider, Inspectable) else None
    return told if isinstance(told, Inspection) else Inspection()


async def _read(member: NamedProvider, gateway: ProviderGateway, page: str) -> str:
    try:
        read = await ReadChain([member], gateway=gateway).read(page)
    except AllFailed as failed:
        raise failed.failures[0].error or failed from None
    return f"{counted(len(read.page.text), 'character')} of {page}"


def notes_on(house: House) -> Iterator[str]:
    for member in house.providers.values():
        if member not in house.searchers and member not in house.readers:
            yield f"provider {member.name!r} is configured, but neither `tools.search` nor `tools.read` uses it"
    if not house.searchers:
        yield "no configured provider can search, so models are not offered web_search"
    yield from _on_readers(house)


def _on_readers(house: House) -> Iterator[str]:
    able = [name for name, member in house.providers.items() if member.can_read]
    if able and not house.readers:
        yield f"`tools.read` is empty, so models are not offered open_page; `read: [{', '.join(able)}]` would offer it"
    elif all(isinstance(member.provider, Owner) for member in house.readers):
        yield "no configured reader can open web pages; `{name: reader, type: direct}` under `providers` can"
