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
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.search import FakeSearxng
from tests.fakes.service import Reply
from tools import prompts

KEY = "key-of-a-client"
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
        {"name": "request", "key": "one-request-only", "requests_per_minute": 1},
        {"name": "slow", "key": "a-slow-engine", "search": {"providers": ["slow"]}},
        {"name": "elsewhere", "key": "elsewhere-alone", "search": {"allowed_domains": ["elsewhere.example"]}},
    ]
    tools = {"search": ["library", "slow"], "read": ["library"]}
    access = {"keys": keys, "cors": ["https://app.example"]}
    with Groundwire({**config, "providers": providers, "tools": tools, "server": access}) as running:
        yield running


@pytest.fixture(scope="module")
def hasty(config: dict[str, Any], slow: FakeSearxng) -> Iterator[Groundwire]:
    providers = [{"name": "slow", "type": "searxng", "base_url": slow.url, "private": False, "timeout": 60}]
    with Groundwire({**config, "providers": providers, "server": {"request_timeout": 0.5}}) as running:
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
    assert "library" in text_of(found)
    source = found.structured_content["sources"][0]
    assert (source["n"], source["title"], source["url"]) == (1, "Why the sky is blue", PAGE)
    assert not opened.is_error
    assert "Rayleigh scattering" in text_of(opened)
    assert "http://127.0.0.1:1/x" in text_of(opened)
    for result in (found, opened):  # hosts show their model one of the two
        assert result.structured_content["text"] == text_of(result)
        assert "<<<web-" in text_of(result)
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


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("open_page", {"urls": 5}),
        ("open_page", {"urls": True}),
        ("open_page", {"urls": "x y" * 1000}),
        ("open_page", {"urls": [0] * 50_000}),
        ("open_page", {"urls": [f"https://library.example/{n}" for n in range(10_000)]}),
        ("open_page", {"url": {"a": 1}}),
        ("open_page", {"url": "https://library.example/" + "a" * 1_000_000}),
        ("open_page", {"url": PAGE, "query": "x" * 1_000_000}),
        ("open_page", {}),
        ("web_search", {"query": "a" * 1_000_000}),
        ("web_search", {"query": ["x"] * 50_000}),
        ("web_search", {"query": "sky", "allowed_domains": ["a.org"] * 50_000}),
        ("web_search", {"query": "\u200b\u0000 "}),
        ("web_search", {"query": "sky", "limit": {}}),
        ("web_search", {"query": "sky", "published_after": "soon"}),
        ("w\u200beb" * 100_000, {}),
    ],
)
def test_wrong_arguments_are_answered_in_a_few_words(server: Groundwire, tool: str, arguments: Any) -> None:
    answer = post(server, {**CALL, "params": {"name": tool, "arguments": arguments}})
    assert answer.status_code == 200
    result = answer.json()["result"]
    assert result["isError"]
    assert len(answer.content) < 2000
    assert "\u200b" not in answer.text
    if tool in ("web_search", "open_page"):
        assert prompts.BAD_CALL.partition("{")[0] in result["content"][0]["text"]


async def test_a_refusal_of_the_edge_is_one_of_the_protocol(server: Groundwire) -> None:
    """The client shows what an error of JSON-RPC says, and of all others that there was one."""
    for key, status, words in (("wrong", 401, "API key"), ("one-request-only", 429, "per minute")):
        for _ in range(2):
            refused = post(server, CALL, key)
        assert refused.status_code == status
        said = refused.json()
        assert (said["jsonrpc"], said["id"], words in said["error"]["message"]) == ("2.0", None, True)
        assert isinstance(said["error"]["code"], int)
        with pytest.raises(BaseExceptionGroup) as caught:
            async with connected(server, key=key):
                raise AssertionError("it was let in")
        assert caught.group_contains(MCPError, match=words)


def test_a_method_that_is_not_served_is_said_in_the_protocols_words(server: Groundwire) -> None:
    refused = httpx.get(address(server), headers={"authorization": f"Bearer {KEY}"}, timeout=20)
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    assert "POST" in refused.json()["error"]["message"]


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


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/search", {"query": "sky"}),
        ("/v1/alpha/search", {"commands": {"search_query": [{"q": "sky"}]}}),
        ("/search", {"query": "sky"}),
        ("/search?q=sky&format=json", None),
        ("/compat/openwebui/search", {"query": "sky"}),
        ("/mcp", CALL),
    ],
)
def test_no_search_takes_longer_than_a_request_may(hasty: Groundwire, path: str, body: Any) -> None:
    """The engine behind would take a minute."""
    headers = {"accept": "application/json, text/event-stream"}
    late = httpx.request("POST" if body else "GET", hasty.root + path, json=body, headers=headers, timeout=20)
    assert late.status_code == (200 if path == "/mcp" else 504), "a model reads the reason"
    assert "longer than this server allows" in late.text


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
    assert sorted(json.loads(done.stdout)) == ["proxy.dialects.mcp", "proxy.serving.mcp_route"]
