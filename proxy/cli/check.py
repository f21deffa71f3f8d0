"""`groundwire check`, the doctor: tries every upstream and provider, and the store, live, all together, each for a
bounded time.

Handed a config; prints what each try saw and, where something is broken, the one thing to do. What a foreign server
says is shown as one clean line, without the keys that it was sent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import asdict, replace

from providers.gateway import ProviderGateway

from ..config.secrets import secrets_of
from ..config.settings import Config
from ..house import House
from ..store.store import MemoryStore, Store
from ..values.secrets import masked
from .findings import Finding, Report, Trouble, tried
from .provider_checks import notes_on, roles_to_try, try_provider
from .remedies import PROBE_PAGE
from .running import opened, run_with_config
from .upstream_checks import try_aliases, try_upstream

LIMIT = 15.0  # seconds for each try


def run(given: argparse.Namespace) -> int:
    return run_with_config(check, given, providers="critical")  # what they say is in the report


async def check(config: Config, given: argparse.Namespace) -> int:
    """Prints the report; the exit code says whether anything is broken."""
    async with opened(config) as house:
        report = await examine(house)
    if given.json:
        findings = [asdict(finding) for finding in report.findings]
        shown = {"ok": report.ok, "findings": findings, "notes": report.notes}
        print(json.dumps(shown, ensure_ascii=False, indent=2))
    else:
        _print(report)
    return 0 if report.ok else 1


async def examine(house: House, *, page: str = PROBE_PAGE, limit: float = LIMIT) -> Report:
    """Tries everything at once, readers with `page`, each for about `limit` seconds."""
    gateway, egress = ProviderGateway(house.config.cooldown), house.config.network.egress
    entries = {entry.name: entry for entry in house.config.providers}
    async with asyncio.TaskGroup() as group:
        upstreams = [group.create_task(try_upstream(upstream, egress, limit)) for upstream in house.upstreams]
        roles = [
            group.create_task(try_provider(member, entries[member.name], role, gateway, page, limit))
            for role in ("search", "read")
            for member in house.providers.values()
            if role in roles_to_try(house, member)
        ]
        store = group.create_task(_try_store(house.store, limit))
    findings = [
        *(finding for upstream in upstreams for finding in upstream.result()),
        *await try_aliases(house),  # by now the upstreams have listed what they have
        *(role.result() for role in roles),
        *store.result(),
    ]
    secrets = secrets_of(house.config)  # a report is pasted into issues, and servers repeat what they were sent
    shown = [replace(found, url=masked(found.url, secrets), detail=masked(found.detail, secrets)) for found in findings]
    return Report(shown, list(notes_on(house)))


def _print(report: Report) -> None:
    width = max(len(f"{finding.kind} {finding.subject}") for finding in report.findings)
    for finding in report.findings:
        subject, state = f"{finding.kind} {finding.subject}", "ok" if finding.ok else "BROKEN"
        said = f"{finding.url}: {finding.detail}" if finding.url else finding.detail
        print(f"{subject:<{width}}  {state:<6}  {finding.seconds * 1000:6.0f} ms  {said}")
        if finding.fix:
            print(f"{'':<{width}}  → {finding.fix}")
    for note in report.notes:
        print(f"note: {note}")


async def _try_store(store: Store, limit: float) -> list[Finding]:
    if isinstance(store, MemoryStore):
        return []
    from ..store.redis_store import RedisStore

    assert isinstance(store, RedisStore)
    start = "see that Redis runs there and that this machine reaches it, or correct `store`, or set `store: memory`"

    async def attempt() -> str:
        if complaint := await store.complaint():
            fix = "correct the user and password in `store`" if "password" in complaint else start
            raise Trouble(f"it {complaint}", fix)
        return "keeps what it is given"

    return [await tried("redis", "store", attempt(), limit, start)]
