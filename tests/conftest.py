"""What all tests share: hypothesis does not mind a busy machine, and tries the same examples in every run, so that a
change is judged by what it changed. `make fuzz` looks for new ones. And a cache folder of their own."""

from __future__ import annotations

import os
import tempfile

from hypothesis import HealthCheck, settings

_SEARCHING = bool(os.environ.get("GROUNDWIRE_FUZZ"))
settings.register_profile(
    "groundwire", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=not _SEARCHING
)
settings.load_profile("groundwire")

# Indexes of folders are kept in a cache folder: not in that of the person who runs the tests.
_CACHE = tempfile.TemporaryDirectory(prefix="groundwire-tests-")
os.environ["XDG_CACHE_HOME"] = _CACHE.name
