"""What all tests share: hypothesis does not mind a busy machine, and tries the same examples in every run, so that a
change is judged by what it changed. `make fuzz` looks for new ones."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_SEARCHING = bool(os.environ.get("GROUNDWIRE_FUZZ"))
settings.register_profile(
    "groundwire", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=not _SEARCHING
)
settings.load_profile("groundwire")
