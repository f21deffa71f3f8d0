"""A server over a folder of documents: it begins to read as it starts, answers from what is ready, and says so."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx

from providers.documents import keeping
from providers.services.local import Local
from tests.fakes.groundwire import Groundwire
from tests.fakes.island import make_island


def searched(proxy: Groundwire, query: str) -> Any:
    return httpx.post(f"{proxy.url}/search", json={"query": query, "limit": 3}, timeout=30).json()


async def indexed(folder: Path, index: Path) -> None:
    service = Local(Local.Settings(path=folder, index=index))
    await service.indexed()
    await service.aclose()


def test_a_server_answers_from_what_is_ready_and_says_so(tmp_path: Path) -> None:
    folder, index = tmp_path / "island", tmp_path / "index.sqlite"
    folder.mkdir()
    (folder / "tower.md").write_text("# The tower\n\nThe tower of Skarholm has ninety steps.\n")
    asyncio.run(indexed(folder, index))
    make_island(folder)
    options = {"path": str(folder), "index": str(index), "refresh": 0}
    providers = [{"name": "island", "type": "local", "options": options}]
    with keeping.locked(index) as ours:  # as another process does that reads the folder, and takes long
        assert ours
        with Groundwire({"upstreams": [{"name": "demo", "type": "demo"}], "providers": providers}) as proxy:
            half = searched(proxy, "how many steps has the tower")
            assert half["results"][0]["url"] == "local:island/tower.md"
            assert "island: 1 of 11 documents are indexed so far" in half["message"]
            assert "1 of 11 documents are indexed so far" in searched(proxy, "seventeen wooden racks")["message"]


def test_a_server_begins_to_read_as_it_starts(tmp_path: Path) -> None:
    make_island(tmp_path / "island")
    providers = [{"name": "island", "type": "local", "options": {"path": str(tmp_path / "island"), "wait": 60}}]
    with Groundwire({"upstreams": [{"name": "demo", "type": "demo"}], "providers": providers}) as proxy:
        found = searched(proxy, "how deep is the copper mine")
        assert found["results"][0]["url"] == "local:island/mine.pdf"
        assert "212 metres" in found["results"][0]["snippet"]
        assert proxy.logged("documents island: 10 indexed")
