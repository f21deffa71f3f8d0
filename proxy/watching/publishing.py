"""Publishes the metrics of one worker, so that any of the others can add them to its own. Handed the metrics and where
a snapshot goes; writes one as soon as something has changed, ten times a second at the most, and a last one at the end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from .metrics import Metrics

log = logging.getLogger("groundwire")

EVERY = 0.1
_ANYHOW = 10  # rounds after which a snapshot is written though no request changed anything: gauges do


class Publishing:
    """`write` says whether there was room for it."""

    def __init__(self, metrics: Metrics, write: Callable[[bytes], bool]) -> None:
        self._metrics = metrics
        self._write = write
        self._timer: asyncio.TimerHandle | None = None
        self._quiet = 0
        self._complained = False

    def start(self) -> None:
        self._publish()
        self._set()

    def stop(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._publish()

    def _set(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(EVERY, self._ring)

    def _ring(self) -> None:
        self._quiet += 1
        if self._metrics.changed or self._quiet >= _ANYHOW:
            self._publish()
        self._set()

    def _publish(self) -> None:
        self._quiet = 0
        if not self._write(self._metrics.snapshot()) and not self._complained:
            self._complained = True
            log.warning("metrics: too many to be shared with the other workers; each shows its own from now on")
