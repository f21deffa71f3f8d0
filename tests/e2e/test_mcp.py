"""`/mcp`: the official SDK's client finds our two tools behind the same keys, limits and policies, in both of the
protocol's ages; web pages and other methods are kept out.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.search import FakeSearxng
from tests.fakes.service import Reply
from tools import prompts

KEY = "a-client-key"
PAGE = SITE + "sky.md"
AGES = ["legacy", "auto"]  # with a handshake, and without
ROOT = Path(__file__).resolve().parents[2]
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "web_search", "arguments": {"query": "sky blue"}},
}


@pytest.fixture(scope="module")
def slow() -> Iterator[FakeSearxng]:
    with FakeSearxng() as fake:
        fake.reply = Reply(wait=60)
        yield fake


@pytest.fixture(scope="module")
def server(config: dict[str, Any], slow: FakeSearxng) -> Iterator[Groundwire]:
    one = {"private": False, "concurrency": 1, "timeout": 60}
    providers = [*config["providers"], {"name": "slow", "type": "searxng", "base_url": slow.url, **one}]
    keys = [
        {"name": "host", "key": KEY, "search": {"providers": ["library"]}},
        {"name": "one", "key": "one-search-only", "searches_per_minute": 1, "search": {"providers": ["library"]}},
        {"name": "none", "key": "no-search-at-all", "search": {"mode": "off"}},
        {"name": "slow", "key": "a-slow-engine", "search": {"providers": ["slow"]}},
        {"name": "elsewhere", "key": "elsewhere-alone", "search": {"allowed_domains": ["elsewhere.example"]}},
    ]
    tools = {"search": ["library", "slow"], "read": ["library"]}
    access = {"keys": keys, "cors": ["https://app.example"]}
    with Groundwire({**config, "providers": providers, "tools": tools, "server": access}) as running:
        yield running


def address(server: Groundwire) -> str:
    return server.url.removesuffix("/v1") + "/mcp"


@asynccontextmanager
async def connected(server: Groundwire, age: str = "auto", key: str = KEY) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {key}"}) as http,
        Client(streamable_http_client(address(server), http_client=http), mode=age) as client,
    ):
        yield client


def post(server: Groundwire, body: Any, key: str = KEY, **headers: str) -> httpx.Response:
    sent = {"accept": "application/json, text/event-stream", "authorization": f"Bearer {key}", **headers}
    return httpx.post(address(server), json=body, headers=sent, timeout=20)


def text_of(result: Any) -> str:
    (block,) = result.content
    return str(block.text)


@pytest.mark.parametrize("age", AGES)
async def test_the_tools_are_described_as_models_know_them(server: Groundwire, age: str) -> None:
    async with connected(server, age) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert list(tools) == ["web_search", "open_page"]
    described = re.sub(r"Today is \d{4}-\d\d-\d\d\.", "Today is {today}.", tools["web_search"].description)
    assert described == prompts.WEB_SEARCH_UNCITED.replace("{then}", prompts.OPEN_FOR_DETAILS)
    assert tools["open_page"].description == prompts.OPEN_PAGE_UNCITED
    assert tools["web_search"].input_schema["required"] == ["query"]


@pytest.mark.parametrize("age", AGES)
async def test_a_search_and_a_page(server: Groundwire, age: str) -> None:
    async with connected(server, age) as client:
        found = await client.call_tool("web_search", {"query": "sky blue", "limit": 2})
        opened = await client.call_tool("open_page", {"urls": [PAGE, "http://127.0.0.1:1/x"]})
    assert not found.is_error
    assert f"URL: {PAGE}" in text_of(found)
    assert "To cite" not in text_of(found)
    assert found.structured_content["provider"] == "library"
    source = found.structured_content["sources"][0]
    assert (source["n"], source["title"], source["url"]) == (1, "Why the sky is blue", PAGE)
    assert not opened.is_error
    assert "Rayleigh scattering" in text_of(opened)
    assert [page["status"] for page in opened.structured_content["pages"]] == ["success", "error"]
    assert [source["url"] for source in opened.structured_content["sources"]] == [PAGE]


async def test_what_goes_wrong_is_said_to_the_model(server: Groundwire) -> None:
    async with connected(server) as client:
        empty = await client.call_tool("web_search", {"query": " "})
        unknown = await client.call_tool("web_dance", {})
        closed = await client.call_tool("open_page", {"url": "http://127.0.0.1:1/x"})
        secret = await client.call_tool("web_search", {"query": f"who owns {KEY}"})
        nothing = await client.call_tool("web_search", {"query": "zebra crossings"})
    assert [result.is_error for result in (empty, unknown, closed, secret, nothing)] == [True, True, True, True, False]
    assert "query" in text_of(empty)
    assert "web_search, open_page" in text_of(unknown)
    assert KEY not in text_of(secret)
    assert nothing.structured_content["sources"] == []


async def test_policies_and_limits_count_here(server: Groundwire) -> None:
    async with connected(server, key="no-search-at-all") as client:
        assert (await client.list_tools()).tools == []
        refused = await client.call_tool("web_search", {"query": "sky"})
    assert refused.is_error
    assert "may not search" in text_of(refused)
    async with connected(server, key="elsewhere-alone") as client:
        assert (await client.call_tool("open_page", {"url": PAGE})).is_error
    async with connected(server, key="one-search-only") as client:
        assert not (await client.call_tool("web_search", {"query": "sky blue"})).is_error
        spent = await client.call_tool("web_search", {"query": "salty sea"})
        assert spent.is_error
        assert prompts.NO_SEARCHES_LEFT.partition("{")[0].rstrip(".") in text_of(spent)
        assert not (await client.call_tool("open_page", {"url": PAGE})).is_error


def test_the_edge_keeps_its_rules(server: Groundwire) -> None:
    assert post(server, CALL).json()["result"]["structuredContent"]["sources"][0]["url"] == PAGE
    assert post(server, CALL, "wrong").status_code == 401
    assert post(server, CALL, host="evil.example").status_code == 403
    assert post(server, CALL, origin="https://evil.example").status_code == 403
    assert post(server, CALL, origin="http://localhost:6274").status_code == 403
    listed = post(server, CALL, origin="https://app.example")
    assert (listed.status_code, listed.headers["access-control-allow-origin"]) == (200, "https://app.example")
    headers = {"authorization": f"Bearer {KEY}"}
    for method in ("GET", "DELETE"):
        assert httpx.request(method, address(server), headers=headers, timeout=20).status_code == 405
    assert httpx.post(address(server), content=b"{", headers=headers, timeout=20).status_code == 415
    assert "error" in post(server, ["x"]).json()


async def test_who_leaves_stops_the_search(server: Groundwire, slow: FakeSearxng) -> None:
    """The engine takes one search at a time: it gets the second only when the first is over."""
    headers = {"accept": "application/json, text/event-stream", "authorization": "Bearer a-slow-engine"}
    async with httpx.AsyncClient(headers=headers, timeout=50) as client:
        for count in (1, 2):
            body = {**CALL, "params": {"name": "web_search", "arguments": {"query": f"sky {count}"}}}
            asking = asyncio.create_task(client.post(address(server), json=body))
            async with asyncio.timeout(30):
                while len(slow.asked) < count:
                    await asyncio.sleep(0.02)
            asking.cancel()
            await asyncio.wait([asking])


def test_without_the_extra_it_says_what_to_install() -> None:
    code = """
import asyncio, sys
sys.modules["mcp"] = None
from proxy.serving.mcp_route import McpRoute
from proxy.values.errors import RequestError
try:
    asyncio.run(McpRoute(None)({}, None, None))
except RequestError as error:
    print(error.failed.status, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.stdout.startswith("404"), done.stderr
    assert "groundwire[mcp]" in done.stdout


def test_it_is_loaded_when_first_asked_for() -> None:
    code = "import json, sys, proxy.serving.app; print(json.dumps([name for name in sys.modules if 'mcp' in name]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert json.loads(done.stdout) == ["proxy.serving.mcp_route"]
