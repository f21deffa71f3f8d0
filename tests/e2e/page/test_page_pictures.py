"""The pictures in the documents, made by asking the demo what a reader of them would ask. `make screenshots` puts them
into docs/; every other run makes them for itself, and sees that they are not too large.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from tests.fakes.groundwire import Groundwire
from tests.fakes.page_tab import NEEDS_BROWSER, ONE_LOOP, Page
from tests.fakes.search import FakeSearxng
from tests.fakes.service import Reply

pytestmark = [NEEDS_BROWSER, ONE_LOOP]

DOCS = Path(__file__).resolve().parents[3] / "docs"
LARGEST = 200_000
QUESTIONS = [
    "What happens when a provider fails?",
    "How are pages kept from giving orders?",
    "Which models can search?",
]


@pytest.fixture(scope="module")
def engine() -> Iterator[FakeSearxng]:
    with FakeSearxng() as fake:
        fake.reply = Reply(503, b"Busy", wait=0.6)
        yield fake


@pytest.fixture(scope="module")
def demo(engine: FakeSearxng) -> Iterator[Groundwire]:
    """As `make demo` runs it, with a search engine in front that takes its time and then fails."""
    config = yaml.safe_load((DOCS / "demo.yaml").read_text(encoding="utf-8"))
    (documents,) = config["providers"]
    documents["options"]["path"] = str(DOCS)
    config["providers"] = [
        {"name": "searxng", "type": "searxng", "base_url": engine.url, "private": True},
        documents,
    ]
    config["tools"]["search"] = ["searxng", "docs"]
    with Groundwire(config) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get("GROUNDWIRE_PICTURES")
    return DOCS.parent / named if named else tmp_path_factory.mktemp("pictures")


async def test_a_picture_of_an_answer(page: Page, demo: Groundwire, folder: Path) -> None:
    await page.open(demo)
    await page.look(width=1200, height=860)
    await page.ready()
    await page.answer("How does Groundwire check citations?")
    await page.run("document.querySelector('.prose .chip').focus()")
    await page.until("!document.querySelector('#card').hidden")
    await page.picture(folder / "page.png")
    assert 20_000 < (folder / "page.png").stat().st_size < LARGEST


async def test_a_picture_of_the_requests(page: Page, demo: Groundwire, folder: Path) -> None:
    """The oldest of them is opened, in which the search engine failed."""
    streamed = {"model": "demo", "input": "How does Groundwire check citations?", "stream": True}
    assert httpx.post(f"{demo.url}/responses", json=streamed, timeout=60).status_code == 200
    for question in QUESTIONS:
        asked = httpx.post(f"{demo.url}/responses", json={"model": "demo", "input": question}, timeout=60)
        assert asked.status_code == 200
    off = {"model": "demo", "messages": [{"role": "user", "content": "Hello"}]}
    httpx.post(f"{demo.url}/chat/completions", json=off, headers={"X-Groundwire-Search": "off"}, timeout=60)
    await page.open(demo, "#requests")
    await page.until("document.querySelector('.rows')")
    await page.run("document.querySelector('.rows tbody tr:last-child a').click()")
    await page.until("document.querySelector('.waterfall')")
    await page.look(width=1200, height=1080)
    await page.picture(folder / "requests.png")
    assert 20_000 < (folder / "requests.png").stat().st_size < LARGEST
