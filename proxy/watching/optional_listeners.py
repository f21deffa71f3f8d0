"""Who watches only where the operator wants it: the audit and traces. Handed a config; hands on the listeners, each
loaded only if it is wanted, and lets them finish at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..config.settings import Config
from .observer import Listener

if TYPE_CHECKING:
    from .audit import Audit
    from .span_export import SpanExport


class OptionalListeners:
    """`anonymous`: is anybody let in without a key? Raises `ConfigError` where the audit's file cannot be opened."""

    def __init__(self, config: Config, *, anonymous: Callable[[], bool]) -> None:
        self.listeners: list[Listener] = []
        self._audit: Audit | None = None
        self._export: SpanExport | None = None
        if config.audit.file:
            self._write_down(config, anonymous)
        if config.traces.endpoint:
            self._trace(config)

    def _write_down(self, config: Config, anonymous: Callable[[], bool]) -> None:
        from .audit import Audit

        self._audit = Audit(config.audit, contents=config.log.contents, anonymous=anonymous)
        self.listeners.append(self._audit)

    def _trace(self, config: Config) -> None:
        from .span_export import SpanExport
        from .traces import Traces

        self._export = SpanExport(config.traces, config.network.egress)
        self.listeners.append(Traces(self._export.tracer, contents=config.log.contents))

    def audit_dropped(self) -> int:
        return self._audit.dropped if self._audit else 0

    async def aclose(self) -> None:
        if self._audit is not None:
            await asyncio.to_thread(self._audit.close)
        if self._export is not None:
            await asyncio.to_thread(self._export.close)
