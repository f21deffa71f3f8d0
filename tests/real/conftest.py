"""The real model, started once for all tests of this folder. Only `make test-model` sets it up and says where it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.server import RealModel

PYTHON = os.environ.get("GROUNDWIRE_REAL_MODEL", "")


@pytest.fixture(scope="session")
def model() -> Iterator[RealModel]:
    if not PYTHON:
        pytest.skip("needs a real model: GROUNDWIRE_REAL_MODEL, which `make test-model` sets")
    with RealModel(Path(PYTHON).absolute()) as running:
        yield running
