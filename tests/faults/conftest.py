"""What the tests of faults share: the end-to-end parts, and what makes a request go one road or the other."""

from __future__ import annotations

from tests.e2e.conftest import _logs_without_faults, config, library, model, proxy

__all__ = ["_logs_without_faults", "config", "library", "model", "proxy"]
