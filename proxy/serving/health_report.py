"""`GET /v1/groundwire/health`: how every provider and upstream does, by what was seen of it, for an admin. Handed the
house and what its listeners know; hands out one report. It asks nobody.
"""

from __future__ import annotations

import time
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from providers.base import Remarking
from providers.documents.report import Indexed
from providers.registry import NamedProvider
from providers.web.http import release

from ..house import House
from ..store.store import MemoryStore
from ..watching.health import Health, iso
from .delivery import send_json
from .status_routes import check_admin


class HealthReportRoute:
    def __init__(self, house: House, health: Health) -> None:
        self._house = house
        self._health = health
        self._began = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        check_admin(scope)
        house = self._house
        report = {
            "providers": [self._provider(named) for named in house.providers.values()],
            "upstreams": [self._upstream(client.name, client.config.type) for client in house.upstreams],
            "cache": {"search": self._health.of_cache("search"), "read": self._health.of_cache("read")},
            "store": "memory" if isinstance(house.store, MemoryStore) else "redis",
            "store_reachable": house.store.sure,
            "version": release(),
            "uptime_seconds": round(time.monotonic() - self._began, 3),
        }
        await send_json(send, 200, orjson.dumps(report))

    def _provider(self, named: NamedProvider) -> dict[str, Any]:
        seen = self._health.of_provider(named.name)
        resting = self._house.gateway.resting(named.name)
        why = (resting.reason if resting else "") or seen.why
        if isinstance(named.provider, Remarking) and named.provider.remark:
            why = f"{why} {named.provider.remark}".strip()
        row: dict[str, Any] = {
            "name": named.name,
            "type": named.type,
            "roles": self._roles(named),
            "state": "cooling_down" if resting else seen.state,
            "why": why,
            "until": iso(time.time() + resting.seconds) if resting else None,
            "calls": seen.calls,
            "failures": seen.failures,
            "last_outcome": seen.last_outcome,
            "last_ms": seen.last_ms,
        }
        if isinstance(named.provider, Indexed):
            index = named.provider.index_state()
            row["index"] = {
                "documents": index.documents,
                "pending": index.pending,
                "state": index.state,
                "skipped": index.skipped,
            }
        return row

    def _roles(self, named: NamedProvider) -> list[str]:
        """What it is used for, which may be less than it can."""
        used = (("search", self._house.searchers), ("read", self._house.readers))
        return [role for role, members in used if named in members]

    def _upstream(self, name: str, kind: str) -> dict[str, Any]:
        seen = self._health.of_upstream(name)
        return {
            "name": name,
            "type": kind,
            "state": seen.state,
            "why": seen.why,
            "last_ok": iso(seen.last_ok),
            "last_failure": iso(seen.last_failure),
        }
