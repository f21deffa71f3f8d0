"""Which search engines answer from here, found out by one real query to each, all together. Handed provider entries;
hands on why each did not, nothing for one that did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from providers import registry
from providers.base import SearchQuery
from providers.chain import AllFailed, SearchChain
from providers.gateway import ProviderGateway
from providers.registry import ProviderConfigError, ProviderEntry
from providers.settings import CooldownSettings
from providers.web.guard import Guard
from providers.web.http import Fetcher
from tools.clean import one_line

from .remedies import PROBE_TEXT

LIMIT = 8.0  # seconds
_LONGEST = 120


async def try_engines(entries: Sequence[ProviderEntry], limit: float = LIMIT) -> dict[str, str]:
    """By name, why it did not answer; an empty text if it did."""
    fetcher = Fetcher(Guard([]))
    try:
        reasons = await asyncio.gather(*(_reason(entry, fetcher, limit) for entry in entries))
    finally:
        await fetcher.aclose()
    return {entry.name: one_line(reason, _LONGEST) for entry, reason in zip(entries, reasons, strict=True)}


async def _reason(entry: ProviderEntry, fetcher: Fetcher, limit: float) -> str:
    try:
        members = registry.build([entry], fetcher)
    except ProviderConfigError as error:
        return str(error)
    chain = SearchChain(list(members.values()), gateway=ProviderGateway(CooldownSettings()))
    patience = asyncio.timeout(limit)
    try:
        async with patience:
            await chain.search(SearchQuery(PROBE_TEXT, limit=3))
    except TimeoutError:
        if not patience.expired():
            raise
        return f"no answer within {limit:g} s"
    except AllFailed as failed:
        return str(failed.failures[0].error or failed)
    finally:
        await registry.close(members.values())
    return ""
