"""Whole programs of other people, in front of a model that searches whenever it may. `make test-clients` sets them up
and runs these tests; elsewhere they are skipped, because installing them takes minutes and gigabytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.eager_model import EagerModel, Said
from tests.fakes.groundwire import Groundwire

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / ".venv-programs/bin"
NODE = ROOT / "tests/programs/node/node_modules/.bin"
SITE = "https://library.example/"
SKY, SEA = f"{SITE}sky.md", f"{SITE}sea.md"
LINK = f"[[1]]({SKY})"
LIBRARY = {
    "sky.md": "# Why the sky is blue\n\nThe sky is blue, over the salty sea too, because air scatters blue light.\n",
    "sea.md": "# Why the sea is salty\n\nRivers carry dissolved salts from the rocks under the sky into the sea.\n",
}
ANSWERS = (
    Said("search queries", '{"queries": ["sky blue"]}'),
    Said("Look the sky up", "Blue [1].", calls=[("search_web", {"query": "sky blue"}), ("fetch_url", {"url": SKY})]),
    Said("colour has the sky", "Blue [1]."),
    Said("into sky.txt", "Scattering does it [1].\n\nsky.txt\n```\nblue = [1]\n```\n"),
    Said("sea salty", "The sky is blue [2], again [2], and rivers carry salt [1]."),
    Said("sky blue", "Scattering [1]."),
    Said("### Task:", '{"title": "Sky", "tags": ["sky"], "follow_ups": ["Why?"], "queries": []}'),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before any fixture starts a program that is not there."""
    if os.environ.get("GROUNDWIRE_PROGRAMS"):
        return
    skipped = pytest.mark.skip(reason="programs of other people are run by `make test-clients`")
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(skipped)


@pytest.fixture(scope="module")
def model() -> Iterator[EagerModel]:
    with EagerModel(ANSWERS) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(model: EagerModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Groundwire]:
    folder = tmp_path_factory.mktemp("library")
    for name, words in LIBRARY.items():
        (folder / name).write_text(words)
    upstream = {"name": "eager", "type": "openai", "base_url": model.url}
    library = {"name": "library", "type": "local", "base_url": SITE, "private": False, "options": {"path": str(folder)}}
    with Groundwire({"upstreams": [upstream], "providers": [library]}) as running:
        yield running
