"""A whole Groundwire behind a proxy: model, search and page are reached through it, under names that it alone resolves;
and `groundwire check` says what is wrong with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.fakes.egress import Authority, HttpProxy, ProxyServer, SocksProxy, TlsFront
from tests.fakes.groundwire import Groundwire, config_file, groundwire
from tests.fakes.model import ModelServer, call, text
from tests.fakes.pages import PageServer
from tests.fakes.search import FakeSearxng

MODELS, SEARCH, PAGES = "models.example", "search.example", "pages.example"
LOGIN = "the-user:pass-word-of-ours"
QUESTION = [{"role": "user", "content": f"What does https://{PAGES}/heat say?"}]
PAGE = b"<html><title>Heat</title><body><p>Heat pumps move heat from a cold place to a warm place, all year.</p></body>"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def engine() -> Iterator[FakeSearxng]:
    with FakeSearxng() as fake:
        yield fake


@pytest.fixture
def pages(authority: Authority) -> Iterator[PageServer]:
    with PageServer(authority.server(PAGES)) as server:
        server.page("/heat", PAGE)
        yield server


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


def behind(server: ProxyServer, authority: Authority, **network: Any) -> dict[str, Any]:
    """A config in which everything has a public name."""
    return {
        "network": {"proxy": server.url(), "ca_file": str(authority.file), **network},
        "upstreams": [{"name": "up", "base_url": f"https://{MODELS}/v1", "api_key": "sk-upstream-key-1"}],
        "providers": [
            {"name": "searx", "type": "searxng", "base_url": f"http://{SEARCH}"},
            {"name": "reader", "type": "direct"},
        ],
    }


@pytest.mark.parametrize("kind", [HttpProxy, SocksProxy])
def test_model_search_and_page_are_reached_through_it(
    kind: type[ProxyServer], model: ModelServer, engine: FakeSearxng, pages: PageServer, authority: Authority
) -> None:
    model.script(
        call("web_search", {"query": "heat"}),
        call("open_page", {"url": f"https://{PAGES}/heat"}),
        text("Heat moves [1]."),
    )
    with TlsFront(authority.server(MODELS), port_of(model.url)) as front, kind(login=LOGIN) as proxy:
        proxy.names = {
            MODELS: ("127.0.0.1", front.port),
            SEARCH: ("127.0.0.1", port_of(engine.url)),
            PAGES: ("127.0.0.1", pages.port),
        }
        with Groundwire(behind(proxy, authority, proxy_for_pages=True)) as running:
            sent = {"model": "m", "messages": QUESTION}
            answer = httpx.post(f"{running.url}/chat/completions", json=sent, timeout=30)
            log = running.ended_log()
    assert answer.status_code == 200
    assert set(proxy.hosts) == {MODELS, SEARCH, PAGES}
    assert {passed.login for passed in proxy.passed} == {LOGIN}
    assert "Heat pumps move heat" in str(model.requests[-1])
    assert len(pages.requests) == 1
    assert LOGIN.partition(":")[2] not in log + answer.text


def test_pages_go_their_own_way_unless_it_is_said(
    model: ModelServer, engine: FakeSearxng, authority: Authority
) -> None:
    with HttpProxy({SEARCH: ("127.0.0.1", port_of(engine.url))}) as proxy:
        config = behind(proxy, authority)
        config["upstreams"][0]["base_url"] = model.url  # on this machine, so not through the proxy
        model.script(call("open_page", {"url": f"https://{PAGES}/heat"}), text("Not there."))
        with Groundwire(config) as running:
            sent = {"model": "m", "messages": QUESTION}
            assert httpx.post(f"{running.url}/chat/completions", json=sent, timeout=30).status_code == 200
            assert httpx.post(f"{running.url}/search", json={"query": "heat"}, timeout=30).json()["results"]
    assert set(proxy.hosts) == {SEARCH}
    assert "could not be reached" in str(model.requests[-1])


@pytest.mark.parametrize(
    ("network", "variables", "passes"),
    [
        ({}, {"HTTP_PROXY": "{}", "http_proxy": "{}", "ALL_PROXY": "{}", "DDGS_PROXY": "{}"}, False),
        ({"trust_env": True}, {"HTTP_PROXY": "{}"}, True),
        ({"trust_env": True}, {"all_proxy": "{}"}, True),
        ({"trust_env": True}, {"HTTP_PROXY": "{}", "NO_PROXY": "search.example"}, False),
        ({"proxy": "{}"}, {"NO_PROXY": ".example"}, False),
        ({"proxy": "{}", "no_proxy": ["search.example"]}, {}, False),
        ({"proxy": "{}"}, {"NO_PROXY": "other.example"}, True),
    ],
)
def test_what_the_environment_may_say(
    network: dict[str, Any], variables: dict[str, str], passes: bool, model: ModelServer, engine: FakeSearxng
) -> None:
    with HttpProxy({SEARCH: ("127.0.0.1", port_of(engine.url))}) as proxy:
        said = {name: value.format(proxy.url()) if isinstance(value, str) else value for name, value in network.items()}
        config = {
            "network": said,
            "upstreams": [{"name": "up", "base_url": model.url}],
            "providers": [{"name": "searx", "type": "searxng", "base_url": f"http://{SEARCH}"}],
        }
        env = {name: value.format(proxy.url()) for name, value in variables.items()}
        with Groundwire(config, env) as running:
            found = httpx.post(f"{running.url}/search", json={"query": "heat"}, timeout=30)
    assert set(proxy.hosts) == ({SEARCH} if passes else set())
    assert bool(found.json()["results"]) == passes


class TestCheck:
    @pytest.fixture
    def names(self, model: ModelServer, engine: FakeSearxng, pages: PageServer) -> dict[str, tuple[str, int]]:
        return {SEARCH: ("127.0.0.1", port_of(engine.url)), "example.com": ("127.0.0.1", pages.port)}

    def findings(self, folder: Path, config: dict[str, Any], code: int = 1) -> dict[str, dict[str, Any]]:
        done = groundwire(folder, "check", "--config", config_file(folder, config), "--json", code=code)
        assert LOGIN.partition(":")[2] not in done.stdout + done.stderr
        assert "not-the-password" not in done.stdout + done.stderr
        return {finding["subject"]: finding for finding in json.loads(done.stdout)["findings"]}

    @pytest.mark.parametrize("kind", [HttpProxy, SocksProxy])
    def test_a_login_that_is_not_accepted(
        self, kind: type[ProxyServer], tmp_path: Path, authority: Authority, names: dict[str, tuple[str, int]]
    ) -> None:
        with kind(names, login=LOGIN) as proxy:
            config = behind(proxy, authority, proxy_for_pages=True, proxy=proxy.url("the-user:not-the-password"))
            config["upstreams"].append(
                {"name": "own", "base_url": f"https://{MODELS}/v1", "proxy": proxy.url("a:not-the-password")}
            )
            found = self.findings(tmp_path, config)
        for subject in ("up", "own", "searx", "reader"):
            assert "does not accept our user and password" in found[subject]["detail"], subject
            origin = "`proxy` of upstream 'own'" if subject == "own" else "`network.proxy`"
            assert f"that it accepts in {origin}: {proxy.scheme}://user:password@host:port" in found[subject]["fix"]

    def test_a_proxy_that_refuses_and_one_that_is_not_there(
        self, tmp_path: Path, authority: Authority, names: dict[str, tuple[str, int]]
    ) -> None:
        with HttpProxy(names, refusal=403) as proxy:
            config = behind(proxy, authority, proxy_for_pages=True)
            config["providers"][0]["base_url"] = f"https://{SEARCH}"
            found = self.findings(tmp_path, config)
            address = f"127.0.0.1:{proxy.port}"
        for subject in ("up", "searx"):
            assert "does not let this connection through" in found[subject]["detail"], subject
            assert found[subject]["fix"].startswith(f"let the proxy {address} pass this host")
        found = self.findings(tmp_path, config)
        for subject in ("up", "searx", "reader"):
            assert "cannot be reached" in found[subject]["detail"], subject
            assert found[subject]["fix"].startswith(f"see that the proxy {address} runs")
