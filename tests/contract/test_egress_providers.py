"""Every service of the registry that is called over HTTP, through every kind of proxy; and what the environment says of
proxies, which counts for none of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from pydantic import BaseModel, SecretStr

from providers import registry
from providers.base import SearchQuery
from providers.errors import ProviderError, ProxyFailed
from providers.registry import NamedProvider, ProviderConfigError, ProviderEntry
from providers.web.egress import Bypass, Egress, Proxy
from tests.fakes.egress import Authority, HttpProxy, ProxyServer, SocksProxy, TlsFront
from tests.fakes.readers import READERS, URL
from tests.fakes.search import HTTP_FAKES
from tests.fakes.service import FakeServer

LOGIN = "the-user:pass-word-of-ours"
HOST = "service.example"
KINDS = ["http", "https", "socks5"]
SERVICES: dict[str, type[Any]] = {**HTTP_FAKES, **{f"{kind} reader": fake for kind, fake in READERS.items()}}
SOME = ["searxng", "duckduckgo", "tavily", "jina reader"]  # one for each way of making HTTP clients


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def start(authority: Authority) -> Iterator[Callable[..., ProxyServer]]:
    with ExitStack() as stack:

        def begin(kind: str, names: dict[str, tuple[str, int]] | None = None, **options: Any) -> ProxyServer:
            if kind == "socks5":
                return stack.enter_context(SocksProxy(names, **options))
            tls = authority.server("127.0.0.1") if kind == "https" else None
            return stack.enter_context(HttpProxy(names, tls=tls, **options))

        yield begin


def way(url: str, authority: Authority) -> Egress:
    proxy = Proxy.read(url)
    return Egress(proxy, proxy, Bypass.read([], loopback=True), str(authority.file))


@asynccontextmanager
async def built(entry: ProviderEntry, egress: Egress) -> AsyncIterator[NamedProvider]:
    named = registry.build([entry], cast(Any, None), egress)["fake"]
    try:
        yield named
    finally:
        await registry.close([named])


async def ask(service: str, entry: ProviderEntry, egress: Egress) -> Any:
    async with built(entry, egress) as named:
        provider = cast(Any, named.provider)
        if service.endswith("reader"):
            return await provider.read(URL)
        return await provider.search(SearchQuery("heat", limit=10))


def elsewhere(fake: FakeServer, scheme: str = "http") -> ProviderEntry:
    """The fake's entry, but under a name that only a proxy can resolve."""
    entry: ProviderEntry = cast(Any, fake).entry()
    parts = urlsplit(entry.base_url or "")
    return entry.model_copy(update={"base_url": f"{scheme}://{HOST}{parts.path}"})


def port_of(fake: FakeServer) -> int:
    port = urlsplit(fake.url).port
    assert port
    return port


async def failure_of(service: str, egress: Egress, scheme: str = "https") -> ProviderError:
    with SERVICES[service]() as fake, pytest.raises(ProviderError) as raised:
        await ask(service, elsewhere(fake, scheme), egress)
    return raised.value


def test_every_service_but_those_that_read_pages_or_files_is_here() -> None:
    called = {kind for kind in registry.SERVICES if getattr(registry.load(kind), "uses_egress", False)}
    assert called == registry.SERVICES.keys() - {"local", "direct", "chromium"}
    assert called == {name.removesuffix(" reader") for name in SERVICES}


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("kind", KINDS)
async def test_it_is_asked_through_the_proxy(
    kind: str, service: str, start: Callable[..., ProxyServer], authority: Authority
) -> None:
    with SERVICES[service]() as fake, TlsFront(authority.server(HOST), port_of(fake)) as front:
        proxy = start(kind, {HOST: ("127.0.0.1", front.port)}, login=LOGIN, pieces=True)
        assert await ask(service, elsewhere(fake, "https"), way(proxy.url(), authority))
        how = "socks" if kind == "socks5" else "connect"
        assert {(seen.how, seen.host, seen.port) for seen in proxy.passed} == {(how, HOST, 443)}
        assert {seen.login for seen in proxy.passed} == {LOGIN}
        assert all("proxy-authorization" not in asked.headers for asked in fake.asked)


@pytest.mark.parametrize("service", SOME)
@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_asked_in_the_clear_goes_there_too(
    kind: str, service: str, start: Callable[..., ProxyServer], authority: Authority
) -> None:
    with SERVICES[service]() as fake:
        proxy = start(kind, {HOST: ("127.0.0.1", port_of(fake))}, login=LOGIN)
        assert await ask(service, elsewhere(fake), way(proxy.url(), authority))
        how = "socks" if kind == "socks5" else "forward"
        assert {(seen.how, seen.host, seen.port) for seen in proxy.passed} == {(how, HOST, 80)}


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("variables", [("HTTP_PROXY", "http_proxy"), ("ALL_PROXY", "all_proxy", "DDGS_PROXY")])
async def test_the_environment_sends_nobody_through_a_proxy(
    variables: tuple[str, ...], service: str, start: Callable[..., ProxyServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = start("http")
    for variable in variables:
        monkeypatch.setenv(variable, proxy.url())
    with SERVICES[service]() as fake:
        assert await ask(service, fake.entry(), Egress())
    assert proxy.passed == []


@pytest.mark.parametrize("service", SOME)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("login", ["", "the-user:not-the-password"])
async def test_a_proxy_that_wants_another_login_is_named_with_its_fix(
    login: str, kind: str, service: str, start: Callable[..., ProxyServer], authority: Authority
) -> None:
    proxy = start(kind, login=LOGIN)
    error = await failure_of(service, way(proxy.url(login), authority))
    assert isinstance(error, ProxyFailed)
    assert "does not accept our user and password" in str(error)
    assert "`network.proxy`" in error.advice
    assert "user:password@host:port" in error.advice
    assert "not-the-password" not in str(error) + error.advice


@pytest.mark.parametrize("service", ["searxng", "tavily"])
@pytest.mark.parametrize("kind", ["http", "https"])
async def test_so_is_one_that_says_so_about_a_request_in_the_clear(
    kind: str, service: str, start: Callable[..., ProxyServer], authority: Authority
) -> None:
    error = await failure_of(service, way(start(kind, login=LOGIN).url("u:other"), authority), "http")
    assert isinstance(error, ProxyFailed)


@pytest.mark.parametrize("service", SOME)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_proxy_that_refuses_or_is_not_there(
    kind: str, service: str, start: Callable[..., ProxyServer], authority: Authority
) -> None:
    proxy = start(kind, refusal=2 if kind == "socks5" else 403)
    egress = way(proxy.url(), authority)
    error = await failure_of(service, egress)
    assert isinstance(error, ProxyFailed)
    assert "does not let this connection through" in str(error)
    assert "`network.no_proxy`" in error.advice
    address = f"127.0.0.1:{proxy.port}"
    proxy.__exit__()
    error = await failure_of(service, egress)
    assert isinstance(error, ProxyFailed)
    assert "cannot be reached" in str(error)
    assert address in error.advice
    assert address not in str(error), "a model may read it"


@pytest.mark.parametrize("service", SOME)
async def test_a_certificate_for_another_name_is_the_services_trouble(
    service: str, start: Callable[..., ProxyServer], authority: Authority
) -> None:
    with SERVICES[service]() as fake, TlsFront(authority.server("other.example"), port_of(fake)) as front:
        proxy = start("http", {HOST: ("127.0.0.1", front.port)})
        with pytest.raises(ProviderError) as raised:
            await ask(service, elsewhere(fake, "https"), way(proxy.url(), authority))
        assert not isinstance(raised.value, ProxyFailed)
        assert fake.asked == []


@pytest.mark.parametrize("service", SOME)
async def test_this_machine_is_asked_directly_unless_the_entry_says_otherwise(
    service: str, start: Callable[..., ProxyServer], authority: Authority
) -> None:
    proxy, own = start("http"), start("socks5")
    with SERVICES[service]() as fake:
        entry = fake.entry()
        assert await ask(service, entry, way(proxy.url(), authority))
        assert proxy.passed == []
        assert await ask(service, entry.model_copy(update={"proxy": SecretStr(own.url())}), way(proxy.url(), authority))
        assert own.hosts == ["127.0.0.1"] * len(own.passed) != []
        listed = elsewhere(fake).model_copy(update={"proxy": SecretStr("")})
        with pytest.raises(ProviderError):  # nobody here knows that name
            await ask(service, listed, way(proxy.url(), authority))
    assert proxy.passed == []


@pytest.mark.parametrize("kind", ["local", "direct", "chromium"])
def test_a_proxy_that_nothing_would_go_through_is_an_error(kind: str, tmp_path: Path) -> None:
    options = {"path": str(tmp_path)} if kind == "local" else {}
    entry = ProviderEntry(name="x", type=kind, options=options, proxy=SecretStr("http://proxy.example:3128"))
    with pytest.raises(ProviderConfigError) as raised:
        registry.build([entry], cast(Any, None))
    assert ("network.proxy_for_pages" in str(raised.value)) == (kind != "local")


class Plugin:
    class Settings(BaseModel, extra="forbid"):
        proxy: str = ""

    def __init__(self, settings: Settings) -> None:
        self.proxy = settings.proxy


def test_a_plugin_is_told_the_proxy_if_it_has_a_setting_for_it() -> None:
    proxy = Proxy.read("socks5://user:p%40ss@proxy.example")
    entry = ProviderEntry(name="x", type="plugin")
    assert registry._own_proxy(Plugin, entry, Egress(None, proxy)) == {
        "proxy": "socks5h://user:p%40ss@proxy.example:1080"
    }
    assert registry._own_proxy(Plugin, entry, Egress()) == {"proxy": ""}
