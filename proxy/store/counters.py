"""The counters of one process: meters in its memory, on a clock that never jumps. Handed the charges of a request;
hands on whether they were taken, and what is left.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..values.meters import Charge, Charged, Meter, MeterStates


class MemoryCounters:
    def __init__(self) -> None:
        self._states = MeterStates()

    async def charge(self, charges: Sequence[Charge]) -> Charged:
        return self.charge_now(charges)

    async def flush(self) -> None: ...

    # For the shared counters that these stand in for

    def charge_now(self, charges: Sequence[Charge]) -> Charged:
        return self._states.charge(charges, time.monotonic())

    def note(self, meter: Meter, room: float) -> None:
        """What another one says is left of it."""
        self._states.note(meter, meter.most - room, time.monotonic())
