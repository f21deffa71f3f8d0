"""Callers: what a private provider found for one key is not kept for another; what is public is kept for both."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from proxy.config.settings import Config
from proxy.serving.app import build
from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
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


def test_the_log_calls_a_caller_by_the_name_of_its_key(config: dict[str, Any], model: ModelServer) -> None:
    """By the place of the key where it has no name; and never by the key itself."""
    keys = ["sk-canary-1", {"key": "sk-canary-2", "name": "alice"}, {"key": "sk-canary-3", "name": "bob's laptop"}]
    with Groundwire({**config, "server": {"keys": keys}}, {"GROUNDWIRE_KEYS": "sk-canary-4"}) as proxy:
        model.script(text("Hello."))
        question = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
        for key in ("sk-canary-2", "sk-canary-1", "sk-canary-4", "sk-canary-3", "sk-canary-5"):
            headers = {"authorization": f"Bearer {key}"}
            httpx.post(f"{proxy.url}/chat/completions", json=question, headers=headers, timeout=20)
        log = proxy.ended_log()
    lines = [line for line in log.splitlines() if "POST /v1/chat/completions" in line]
    assert [re.findall(r' key=(\w+|".*?")', line) for line in lines] == [
        ["alice"], ["key1"], ["key4"], ['"bob\'s laptop"'], []
    ]  # fmt: skip
    assert "canary" not in log


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
