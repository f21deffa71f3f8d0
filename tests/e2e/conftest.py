"""What the end-to-end tests share: a scripted model, a small library to search, and a real Groundwire between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer

SITE = "https://library.example/"
LIBRARY = {
    "sky.md": "# Why the sky is blue\n\nThe sky is blue because air scatters blue light more than red light.\n\n"
    "This is called Rayleigh scattering.\n",
    "sea.md": "# Why the sea is salty\n\nRivers carry dissolved salts from rocks into the sea.\n",
    "tea (green).md": "# Green tea\n\nGreen tea is best brewed at 80 degrees.\n",
}


@pytest.fixture(autouse=True)
def _logs_without_faults() -> Iterator[None]:
    """A traceback fails the test that ran it, and not only the last one that the server is there for."""
    yield
    for running in Groundwire.running:
        running.check_log()


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    for name, text in LIBRARY.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture(scope="module")
def config(model: ModelServer, library: Path) -> dict[str, Any]:
    """The config that most tests run on; a test that needs another one changes a copy."""
    return {
        "upstreams": [{"name": "scripted", "type": "openai", "base_url": model.url, "api_key": "sk-upstream"}],
        "providers": [
            {"name": "library", "type": "local", "base_url": SITE, "private": False, "options": {"path": str(library)}}
        ],
    }


@pytest.fixture(scope="module")
def proxy(config: dict[str, Any]) -> Iterator[Groundwire]:
    with Groundwire(config) as running:
        yield running
