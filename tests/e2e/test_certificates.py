"""One list of certificate authorities for all that is dialled. A model, a search service, a page and a collector of
traces show certificates of a private authority: each is accepted where the operator names it, and refused elsewhere.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import certifi
import httpx
import pytest

from tests.fakes.collector import Collector
from tests.fakes.egress import Authority, TlsFront
from tests.fakes.groundwire import Groundwire, config_file, groundwire
from tests.fakes.model import ModelServer, text
from tests.fakes.ollama_model import OllamaServer
from tests.fakes.pages import PageServer
from tests.fakes.search import FakeDuckDuckGo, FakeSearxng

PAGE = b"<html><title>Heat</title><body><p>Heat pumps move heat from a cold place to a warm place, all year.</p></body>"
ADMIN = "the-key-of-an-admin"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"))


class Services(NamedTuple):
    model: ModelServer
    vendor: OllamaServer
    collector: Collector
    config: dict[str, Any]
    page: str


@pytest.fixture(scope="module")
def services(authority: Authority, model: ModelServer) -> Iterator[Services]:
    """All of them behind TLS, on 127.0.0.1."""
    with ExitStack() as stack:
        vendor, collector = stack.enter_context(OllamaServer()), stack.enter_context(Collector())
        searx, duck = stack.enter_context(FakeSearxng()), stack.enter_context(FakeDuckDuckGo())
        pages = stack.enter_context(PageServer(authority.server("127.0.0.1")))
        pages.page("/heat", PAGE)
        urls = {"model": model.url, "vendor": vendor.url, "searx": searx.url, "duck": duck.url}
        urls["collector"] = collector.url
        fronts = {}
        for name, url in urls.items():
            parts = urlsplit(url)
            assert parts.port
            front = stack.enter_context(TlsFront(authority.server("127.0.0.1"), parts.port))
            fronts[name] = f"https://127.0.0.1:{front.port}{parts.path}"
        litellm = {"type": "litellm", "api_key": "sk-vendor-key-of-ours"}
        config: dict[str, Any] = {
            "server": {"keys": [{"key": ADMIN, "admin": True}]},
            "upstreams": [
                {"name": "direct", "base_url": fronts["model"], "models": ["m"]},
                {**litellm, "name": "openai", "base_url": fronts["model"], "models": ["openai/m"]},
                {**litellm, "name": "ollama", "base_url": fronts["vendor"], "models": ["ollama_chat/qwen3"]},
            ],
            "providers": [
                {"name": "searx", "type": "searxng", "base_url": fronts["searx"]},
                {"name": "duck", "type": "duckduckgo", "base_url": fronts["duck"]},
                {"name": "reader", "type": "direct"},
            ],
            "tools": {"allow_networks": ["127.0.0.0/8"], "search": ["searx", "duck"]},
            "traces": {"endpoint": fronts["collector"] + "/v1/traces"},
            "cache": "off",
        }
        yield Services(model, vendor, collector, config, f"https://127.0.0.1:{pages.port}/heat")


def in_a_folder(authority: Authority, folder: Path) -> dict[str, str]:
    """Where OpenSSL looks besides the file, which is that of others."""
    (folder / "authority.pem").write_bytes(authority.file.read_bytes())
    subprocess.run(["openssl", "rehash", str(folder)], check=True, capture_output=True)
    return {"SSL_CERT_FILE": certifi.where(), "SSL_CERT_DIR": str(folder)}


class Way(NamedTuple):
    """How an operator names an authority, and whether it is ours."""

    network: dict[str, Any]
    env: dict[str, str]
    accepted: bool


@pytest.fixture(params=["network.ca_file", "SSL_CERT_FILE", "SSL_CERT_DIR", "nothing", "another"])
def way(request: pytest.FixtureRequest, authority: Authority, tmp_path: Path) -> Way:
    match request.param:
        case "network.ca_file":
            return Way({"ca_file": str(authority.file)}, {}, accepted=True)
        case "SSL_CERT_FILE":
            return Way({}, {"SSL_CERT_FILE": str(authority.file)}, accepted=True)
        case "SSL_CERT_DIR":
            return Way({}, in_a_folder(authority, tmp_path), accepted=True)
        case "another":
            return Way({"ca_file": str(Authority.make(tmp_path).file)}, {}, accepted=False)
    return Way({}, {}, accepted=False)


def test_one_list_of_authorities_for_all(services: Services, way: Way, tmp_path: Path) -> None:
    services.collector.spans.clear()
    config = {**services.config, "network": way.network}
    headers = {"authorization": f"Bearer {ADMIN}"}
    with Groundwire(config, way.env) as running, httpx.Client(headers=headers, timeout=60) as client:
        statuses, requests = {}, []
        for name, server in (
            ("m", services.model),
            ("openai/m", services.model),
            ("ollama_chat/qwen3", services.vendor),
        ):
            server.script(text("Hello."))
            body = {"model": name, "messages": [{"role": "user", "content": "Hi"}]}
            answer = client.post(f"{running.url}/chat/completions", json=body)
            statuses[name] = answer.status_code
            requests.append(answer.headers["x-request-id"])
            server.script()
        assert set(statuses.values()) == {200 if way.accepted else 502}, statuses
        for provider in ("searx", "duck"):
            asked = {"query": f"heat of {provider}", "provider": provider}
            found = client.post(f"{running.url}/search", json=asked).json()
            assert bool(found["results"]) == way.accepted, (provider, found)
            assert found["provider"] == (provider if way.accepted else "")
        page = client.post(f"{running.url}/open", json={"url": services.page}).json()
        assert (page["status"] == "success") == way.accepted, page
        if way.accepted:
            assert services.collector.all_of(requests[0])
        else:
            assert running.logged("traces cannot be sent")
            assert not services.collector.spans


def test_the_usage_command_trusts_the_same(authority: Authority, config: dict[str, Any], tmp_path: Path) -> None:
    config = {**config, "server": {"keys": [{"key": ADMIN, "admin": True}]}}
    env = {"GROUNDWIRE_KEY": ADMIN}
    with Groundwire(config) as running:
        port = urlsplit(running.url).port
        assert port
        with TlsFront(authority.server("127.0.0.1"), port) as front:
            at = ("usage", "--url", f"https://127.0.0.1:{front.port}", "--config")
            trusting = {**config, "network": {"ca_file": str(authority.file)}}
            groundwire(tmp_path, *at, config_file(tmp_path, trusting), env=env)
            refused = groundwire(tmp_path, *at, config_file(tmp_path, config), env=env, code=1)
            groundwire(tmp_path, *at, config_file(tmp_path, config), env={**env, "SSL_CERT_FILE": str(authority.file)})
    assert "No Groundwire answers" in refused.stderr
