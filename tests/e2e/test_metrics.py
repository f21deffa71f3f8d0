"""`GET /metrics` of a running Groundwire: who may read it, what it says of providers, and that nobody makes it grow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire, gone
from tests.fakes.log_lines import entry, eventually
from tests.fakes.model import ModelServer, Turn, call, text
from tests.fakes.samples import Samples

CLIENT = httpx.Client(timeout=20, limits=httpx.Limits(max_keepalive_connections=0))
ALICE, ADMIN = {"authorization": "Bearer gw-key-of-alice"}, {"authorization": "Bearer gw-key-of-the-admin"}
KEYS = [{"key": "gw-key-of-alice", "name": "alice"}, {"key": "gw-key-of-the-admin", "name": "chief", "admin": True}]
SEARCH_OFF = {"x-groundwire-search": "off"}


@pytest.fixture(scope="module")
def proxy(config: dict[str, Any]) -> Iterator[Groundwire]:
    with Groundwire({**config, "server": {"keys": KEYS}}) as running:
        yield running


def post(proxy: Groundwire, path: str = "chat/completions", headers: Any = None, **fields: Any) -> httpx.Response:
    if path == "chat/completions":
        fields = {"model": "m", "messages": [{"role": "user", "content": "Why is the sky blue?"}], **fields}
    return CLIENT.post(f"{proxy.url}/{path}", json=fields, headers={**ALICE, **(headers or {})})


def scraped(proxy: Groundwire, headers: Mapping[str, str] = ADMIN) -> Samples:
    answer = CLIENT.get(f"{proxy.root}/metrics", headers=dict(headers))
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return Samples(answer.content)


# Who may read the metrics


def test_with_keys_an_admin_alone(proxy: Groundwire) -> None:
    for headers, status, code in (({}, 401, "invalid_api_key"), (ALICE, 403, "admin_only")):
        answer = CLIENT.get(f"{proxy.root}/metrics", headers=headers)
        assert answer.status_code == status
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        assert answer.json()["error"]["code"] == code
    assert scraped(proxy)("groundwire_requests_total", dialect="http", upstream="", outcome="refused") >= 2
    assert eventually(lambda: scraped(proxy)("groundwire_loop_lag_seconds_count"))


def test_cool_downs_and_a_server_that_is_not_there(config: dict[str, Any]) -> None:
    down = {"name": "down", "type": "searxng", "base_url": gone()["base_url"].removesuffix("/v1")}
    changed = {
        "upstreams": [{**gone(), "retries": 1, "retry_wait": 0.01}],
        "providers": [down, *config["providers"]],
        "tools": {"search": ["down", "library"], "public_fallback": True},
        "cooldown": {"failures": 1},
        "log": {"format": "json"},
    }
    with Groundwire(changed) as proxy:
        said = entry(proxy, CLIENT.post(f"{proxy.url}/search", json={"query": "sky"}))
        assert [(s["provider"], s["outcome"]) for s in said["searches"]] == [("down", "unavailable"), ("library", "ok")]
        said = entry(proxy, CLIENT.post(f"{proxy.url}/search", json={"query": "sea"}))
        assert [s["outcome"] for s in said["searches"]] == ["cooling_down", "ok"]
        said = entry(proxy, post(proxy, headers=SEARCH_OFF))
        assert (said["upstream"], said["status"], said["outcome"]) == ("gone", 502, "upstream_unreachable")
        assert said["model_failures"] == [{"upstream": "gone", "status": 502}] * 2
        assert (said["rounds"], said["retries"]) == (2, 1)
        shown = scraped(proxy, {})  # without keys, everybody who reaches it
        assert shown("groundwire_provider_cooldowns_total", provider="down") == 1
        assert shown("groundwire_provider_seconds_count", tool="web_search", provider="down") == 1
        assert shown("groundwire_requests_total", dialect="chat", upstream="gone", outcome="failed") == 1
        assert shown("groundwire_retries_total", upstream="gone", outcome="asked") == 1
        assert shown("groundwire_retries_total", upstream="gone", outcome="spent") == 1


# What cannot grow


def misbehave(proxy: Groundwire, model: ModelServer, word: str) -> None:
    """A client and a server that put a word of their own wherever they can."""
    root = proxy.root
    for path in (
        f"/{word}",
        f"/v1/{word}",
        f"/v1/models/{word}",
        f"/v1/chat/completions/{word}",
        f"/v1/responses/{word}",
    ):
        CLIENT.get(f"{root}{path}?{word}={word}", headers={**ALICE, "x-request-id": word, "x-groundwire-search": word})
    for method in ("DELETE", "PUT", "PATCH", "OPTIONS", "HEAD", "PROPFIND"):
        CLIENT.request(method, f"{root}/v1/{word}", headers=ALICE)
    CLIENT.get(f"{root}/metrics", headers={"authorization": f"Bearer {word}"})
    post(proxy, "search", query="sky", provider=word)
    post(proxy, "search", query=word)
    post(proxy, "open", url=f"{SITE}{word}.md")
    model.script(Turn(status=400, body=json.dumps({"error": {"message": word, "code": word, "type": word}}).encode()))
    for headers in ({}, SEARCH_OFF):
        post(proxy, headers=headers, model=f"m-{word}", user=word)
    model.script(call(word, {"query": word}), call("web_search", {"query": "sky", "provider": word}), text("Blue."))
    post(proxy, model=f"m-{word}", stream=True)
    model.script(text("Blue."))
    for path in ("completions", "embeddings", f"images/{word}", f"audio/{word}"):
        post(proxy, path, model=f"m-{word}", input=word, prompt=word)


def test_no_client_and_no_server_can_make_the_metrics_grow(proxy: Groundwire, model: ModelServer) -> None:
    for word in ("alpha", "beta"):
        misbehave(proxy, model, word)
    settled = scraped(proxy)
    for word in ("gamma", "delta", "epsilon"):
        misbehave(proxy, model, word)
    grown = scraped(proxy)
    assert grown.series == settled.series
    assert grown.since(settled), "and yet they were counted"
    values = {value for _, labels in grown.series for _, value in labels}
    assert not [value for value in values if any(word in value for word in ("alpha", "gamma", "delta"))]
