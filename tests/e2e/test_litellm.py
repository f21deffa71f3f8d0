"""Models behind LiteLLM through the whole house: searched, cited, streamed, and refused where something cannot be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.fakes.anthropic_model import AnthropicServer
from tests.fakes.gemini_model import GeminiServer
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, call, text
from tests.fakes.ollama_model import OllamaServer
from tests.fakes.vendor_model import VendorServer

LINK = f"[[1]]({SITE}sky.md)"
SEARCH = Turn(calls=[("c1", "web_search", {"query": "sky blue"})], reasoning=["hm"])
VENDORS = {
    "anthropic/claude-sonnet-4-5": AnthropicServer,
    "gemini/gemini-2.5-flash": GeminiServer,
    "ollama_chat/qwen3": OllamaServer,
}


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, VendorServer]]:
    running = {name: kind() for name, kind in VENDORS.items()}
    for server in running.values():
        server.__enter__()
    yield running
    for server in running.values():
        server.__exit__()


@pytest.fixture(scope="module")
def proxy(servers: dict[str, VendorServer], config: dict[str, Any]) -> Iterator[Groundwire]:
    upstreams = [
        {
            "name": name.partition("/")[0],
            "type": "litellm",
            "base_url": server.url,
            "api_key": "sk-vendor-key-of-ours",
            "models": [name],
        }
        for name, server in servers.items()
    ]
    with Groundwire({**config, "upstreams": [*upstreams, *config["upstreams"]]}) as running:
        yield running


def ask(proxy: Groundwire, model: str, **fields: Any) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "Why is the sky blue?"}], **fields}
    return httpx.post(f"{proxy.url}/chat/completions", json=body, timeout=60)


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("stream", [True, False])
def test_searched_and_cited(proxy: Groundwire, servers: dict[str, VendorServer], vendor: str, stream: bool) -> None:
    server = servers[vendor]
    server.script(SEARCH, text("Scattering ", "[1]."))
    answer = ask(proxy, vendor, stream=stream)
    assert answer.status_code == 200, answer.text
    if stream:
        chunks = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        said = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks)
        results = chunks[-1]["search_results"]
    else:
        said, results = answer.json()["choices"][0]["message"]["content"], answer.json()["search_results"]
    assert said == f"Scattering {LINK}."
    assert results[0]["url"] == SITE + "sky.md"
    assert server.complaints == []
    assert len(server.requests) == 2
    assert "Rayleigh" in json.dumps(server.requests[1])


def vendor_lists(answer: httpx.Response) -> dict[str, list[Any]]:
    """What only the vendor has, as a client adds it up."""
    lists: dict[str, list[Any]] = {}
    for line in answer.text.splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                for key, value in (choice["delta"].get("provider_specific_fields") or {}).items():
                    lists.setdefault(key, []).extend(value)
    return lists


def test_signatures_of_all_pieces_grow_with_their_number(proxy: Groundwire, servers: dict[str, VendorServer]) -> None:
    """Not with its square: each is told once."""
    vendor = "gemini/gemini-2.5-flash"
    server = servers[vendor]
    assert isinstance(server, GeminiServer)
    server.signs_text = True
    try:
        sizes = []
        for count in (50, 400):
            server.script(text(*(f"word{n} " for n in range(count))))
            answer = ask(proxy, vendor, stream=True)
            assert len(set(vendor_lists(answer)["thought_signatures"])) == count
            assert len(vendor_lists(answer)["thought_signatures"]) == count
            sizes.append(len(answer.content))
        assert sizes[1] < 10 * sizes[0]
    finally:
        server.signs_text = False


def test_results_that_a_vendor_found_itself_grow_with_their_number(
    proxy: Groundwire, servers: dict[str, VendorServer]
) -> None:
    """LiteLLM tells all of them whenever there is one more."""
    vendor = "anthropic/claude-sonnet-4-5"
    server = servers[vendor]
    assert isinstance(server, AnthropicServer)
    try:
        sizes = []
        for server.searches in (20, 160):
            server.script(text("Hello."))
            answer = ask(proxy, vendor, stream=True)
            found = [block["content"][0]["url"] for block in vendor_lists(answer)["web_search_results"]]
            assert found == [f"https://found.example/{at:08}" for at in range(server.searches)]
            sizes.append(len(answer.content))
        assert sizes[1] < 10 * sizes[0]
    finally:
        server.searches = 0


@pytest.mark.parametrize("vendor", VENDORS)
def test_the_last_round_is_accepted(config: dict[str, Any], servers: dict[str, VendorServer], vendor: str) -> None:
    """A model that keeps calling: in its last round it is forced to answer in the way that its vendor allows."""
    server = servers[vendor]
    server.script(
        SEARCH,
        call("web_search", {"query": "sky"}, id="c2"),
        call("web_search", {"query": "x"}, id="c3"),
        text("At last."),
    )
    upstream = {
        "name": "v",
        "type": "litellm",
        "base_url": server.url,
        "api_key": "sk-vendor-key-of-ours",
        "models": [vendor],
    }
    with Groundwire({**config, "upstreams": [upstream], "tools": {"max_rounds": 2}}) as proxy:
        answer = ask(proxy, vendor)
    assert answer.json()["choices"][0]["message"]["content"] == "At last.", answer.text
    assert server.complaints == []


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("mode", ["prompted", "none"])
def test_models_that_cannot_call(
    config: dict[str, Any], servers: dict[str, VendorServer], vendor: str, mode: str
) -> None:
    server = servers[vendor]
    leak = '<tool_call>{"name": "web_search", "arguments": {"query": "sky blue"}}</tool_call>'
    server.script(*([text(leak)] if mode == "prompted" else []), text("Scattering [1]."))
    upstream = {"name": "v", "type": "litellm", "base_url": server.url, "api_key": "sk-vendor-key", "models": [vendor]}
    with Groundwire({**config, "upstreams": [{**upstream, "tool_calls": mode}]}) as proxy:
        answer = ask(proxy, vendor)
    assert answer.json()["choices"][0]["message"]["content"] == f"Scattering {LINK}.", answer.text
    assert server.complaints == []
    assert not any("tools" in request for request in server.requests)
    assert "Rayleigh" in json.dumps(server.requests[-1])


def test_without_search_it_answers_too(proxy: Groundwire, servers: dict[str, VendorServer]) -> None:
    model = "anthropic/claude-sonnet-4-5"
    servers[model].script(text("Hello."))
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
    answer = httpx.post(f"{proxy.url}/chat/completions", json=body, headers={"x-groundwire-search": "off"}, timeout=60)
    assert answer.json()["choices"][0]["message"]["content"] == "Hello."
    assert "tools" not in servers[model].requests[0]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2),
        ("logprobs", True),
        ("audio", {"voice": "x"}),
        ("functions", [{"name": "f"}]),
        ("tools", [{"type": "custom", "custom": {"name": "f"}}]),
    ],
)
def test_what_it_cannot_carry_is_refused(proxy: Groundwire, field: str, value: Any) -> None:
    answer = ask(proxy, "anthropic/claude-sonnet-4-5", **{field: value})
    assert answer.status_code == 400
    assert (answer.json()["error"]["param"], answer.json()["error"]["code"]) == (field, "unsupported_parameter")


def test_a_parameter_that_the_vendor_does_not_know(proxy: Groundwire, servers: dict[str, VendorServer]) -> None:
    model = "anthropic/claude-sonnet-4-5"
    for _ in range(2):
        servers[model].script(text("Hello."))
        answer = ask(proxy, model, logit_bias={"1": 1})
        assert answer.status_code == 200, answer.text
        assert len(servers[model].requests) == 1
        assert "logit_bias" not in servers[model].requests[0]
    assert proxy.log.read_text().count("refuses logit_bias: left out for an hour") == 1


def test_its_models_are_listed(proxy: Groundwire) -> None:
    listed = [entry["id"] for entry in httpx.get(f"{proxy.url}/models", timeout=20).json()["data"]]
    assert set(VENDORS) <= set(listed)


def test_other_paths_are_not_for_it(proxy: Groundwire, model: ModelServer) -> None:
    answer = httpx.post(f"{proxy.url}/embeddings", json={"model": "gemini/gemini-2.5-flash", "input": "x"}, timeout=20)
    assert answer.status_code == 404
    assert "serves chat completions only" in answer.json()["error"]["message"]


def test_a_vendor_may_be_the_fallback(
    servers: dict[str, VendorServer], config: dict[str, Any], model: ModelServer
) -> None:
    name = "ollama_chat/qwen3"
    upstreams = [
        {**config["upstreams"][0], "models": ["m"], "fallback": [f"vendor/{name}"]},
        {"name": "vendor", "type": "litellm", "base_url": servers[name].url, "models": [name]},
    ]
    with Groundwire({**config, "upstreams": upstreams}) as proxy:
        for headers in ({}, {"x-groundwire-search": "off"}):
            model.script(Turn(status=503, body=b"{}"))
            servers[name].script(text("Hello."))
            body = {"model": "m", "messages": [{"role": "user", "content": "Hi there, who are you?"}]}
            answer = httpx.post(f"{proxy.url}/chat/completions", json=body, headers=headers, timeout=60)
            assert answer.json()["choices"][0]["message"]["content"] == "Hello.", answer.text
