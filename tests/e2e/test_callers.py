"""Callers: what a private provider found for one key is not kept for another; what is public is kept for both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from proxy.config.settings import Config
from proxy.serving.app import build
from tests.e2e.conftest import SITE
from tests.fakes.model import ModelServer, call, text


@asynccontextmanager
async def running(config: Config) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application in this process, which is started and stopped as a server does it."""
    app, said, heard = build(config), asyncio.Queue[Any](), asyncio.Queue[Any]()
    life = asyncio.create_task(app({"type": "lifespan", "asgi": {"version": "3.0"}}, said.get, heard.put))
    said.put_nowait({"type": "lifespan.startup"})
    await heard.get()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        yield client
    said.put_nowait({"type": "lifespan.shutdown"})
    await life


@pytest.mark.parametrize(("private", "cached"), [(True, [False, False, True]), (False, [False, True, True])])
async def test_each_key_has_its_own_memory(
    model: ModelServer, library: Path, private: bool, cached: list[bool]
) -> None:
    provider = {"name": "library", "type": "local", "base_url": SITE, "private": private}
    config: dict[str, Any] = {
        "server": {"keys": ["key-of-alice", "key-of-bob"]},
        "upstreams": [{"name": "scripted", "base_url": model.url}],
        "providers": [{**provider, "options": {"path": str(library)}}],
        "tools": {"search": ["library"], "read": ["library"]},
    }
    seen = []
    async with running(Config.model_validate(config)) as client:
        for key in ("key-of-alice", "key-of-bob", "key-of-alice"):
            model.script(call("web_search", {"query": "sky blue"}), text("Scattering [1]."))
            question = {"model": "m", "messages": [{"role": "user", "content": "Why is the sky blue?"}]}
            answer = await client.post(
                "/v1/chat/completions", json=question, headers={"authorization": f"Bearer {key}"}
            )
            assert answer.status_code == 200
            result = model.requests[1]["messages"][-1]["content"]
            assert "Rayleigh" in result or "scatters" in result
            seen.append("Cached" in result)
    assert seen == cached
