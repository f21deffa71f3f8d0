"""How many processes serve. Handed the config; looks how many cores this process may use where that is left to it."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

from ..config.settings import Config

_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container: microseconds of all cores in each period, or `max`


def worker_count(config: Config) -> int:
    """`auto` is one for each core, where workers have a store that they can share."""
    wanted = config.server.workers
    if wanted != "auto":
        return wanted
    return 1 if config.store == "memory" else usable_cores()


def usable_cores(quota: Path = _QUOTA) -> int:
    """Those that this process may run on, and no more than its container may keep busy."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not every system has it
        cores = os.cpu_count() or 1
    with suppress(OSError, ValueError):
        busy, period = quota.read_text().split()
        if busy != "max":
            cores = min(cores, math.ceil(int(busy) / int(period)))
    return max(1, cores)
