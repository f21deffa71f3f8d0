"""Who watches only where the operator wants it: traces. Handed a config; hands on the listeners, each loaded only if it
is wanted, and lets them finish at the end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..config.settings import Config
from .observer import Listener

if TYPE_CHECKING:
    from .span_export import SpanExport


class OptionalListeners:
    def __init__(self, config: Config) -> None:
        self.listeners: list[Listener] = []
        self._export: SpanExport | None = None
        if config.traces.endpoint:
            self._trace(config)

    def _trace(self, config: Config) -> None:
        from .span_export import SpanExport
        from .traces import Traces

        self._export = SpanExport(config.traces, config.network.egress)
        self.listeners.append(Traces(self._export.tracer, contents=config.log.contents))

    async def aclose(self) -> None:
        if self._export is not None:
            await asyncio.to_thread(self._export.close)
