"""Every upstream through every kind of proxy: what passes there, what is checked behind it, and how a proxy fails."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, aclosing, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr

from providers.web.egress import Bypass, Egress, Proxy
from proxy.upstreams.litellm_transport import LitellmTransport
from proxy.upstreams.openai_transport import OpenAITransport
from proxy.upstreams.transport import Transport
from proxy.values.events import Event, Failed, Finished, TextDelta
from tests.fakes.anthropic_model import AnthropicServer
from tests.fakes.egress import Authority, HttpProxy, ProxyServer, SocksProxy, TlsFront
from tests.fakes.gemini_model import GeminiServer
from tests.fakes.model import ModelServer, text
from tests.fakes.ollama_model import OllamaServer

KEY = "sk-of-the-operator-1"
LOGIN = "the-user:pass-w%3Ard-of-ours"
PLAIN_LOGIN = "the-user:pass-w:rd-of-ours"
QUESTION = {"role": "user", "content": "Why is the sky blue?"}
HOST = "models.example"

LANES: dict[str, tuple[type[ModelServer], str]] = {
    "fast": (ModelServer, "m"),
    "litellm-openai": (ModelServer, "openai/m"),
    "anthropic": (AnthropicServer, "anthropic/claude-sonnet-4-5"),
    "gemini": (GeminiServer, "gemini/gemini-2.5-flash"),
    "ollama": (OllamaServer, "ollama_chat/qwen3"),
}
KINDS = ["http", "https", "socks5"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, ModelServer]]:
    with ExitStack() as stack:
        made = {kind: stack.enter_context(kind()) for kind in {kind for kind, _ in LANES.values()}}
        yield {name: made[kind] for name, (kind, _) in LANES.items()}


@pytest.fixture
def start() -> Iterator[Callable[..., ProxyServer]]:
    with ExitStack() as stack:

        def begin(kind: str, authority: Authority, names: dict[str, tuple[str, int]], **options: Any) -> ProxyServer:
            if kind == "socks5":
                return stack.enter_context(SocksProxy(names, **options))
            tls = authority.server("127.0.0.1") if kind == "https" else None
            return stack.enter_context(HttpProxy(names, tls=tls, **options))

        yield begin


def port_of(server: ModelServer) -> int:
    port = urlsplit(server.url).port
    assert port is not None
    return port


def way(url: str, authority: Authority, **more: Any) -> Egress:
    proxy = Proxy.read(url)
    return Egress(proxy, proxy, Bypass.read([], loopback=True), str(authority.file), **more)


@asynccontextmanager
async def upstream(lane: str, base: str, egress: Egress) -> AsyncIterator[Transport]:
    made: Transport
    if lane == "fast":
        made = OpenAITransport("up", base, KEY, egress=egress)
    else:
        made = LitellmTransport("up", KEY, api_base=base, egress=egress)
    try:
        yield made
    finally:
        await made.aclose()


async def ask(lane: str, base: str, egress: Egress) -> list[Event]:
    body = {"model": LANES[lane][1], "messages": [QUESTION], "stream": True}
    async with upstream(lane, base, egress) as made, aclosing(made.stream(body, {})) as batches:
        return [event async for batch in batches for event in batch]


def said(events: list[Event]) -> str:
    assert any(isinstance(event, Finished) for event in events), events
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def failed(events: list[Event]) -> Failed:
    (event,) = events
    assert isinstance(event, Failed)
    return event


def base_of(server: ModelServer, scheme: str) -> str:
    """As the operator would write it: a public name, which only the proxy can resolve."""
    return f"{scheme}://{HOST}{urlsplit(server.url).path}"


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("kind", KINDS)
async def test_the_question_goes_through_the_proxy_and_the_answer_comes_back(
    kind: str,
    scheme: str,
    lane: str,
    authority: Authority,
    servers: dict[str, ModelServer],
    start: Callable[..., ProxyServer],
) -> None:
    server = servers[lane]
    server.script(text("The sky ", "is blue."))
    with TlsFront(authority.server(HOST), port_of(server)) as front:
        target = ("127.0.0.1", front.port if scheme == "https" else port_of(server))
        proxy = start(kind, authority, {HOST: target}, login=PLAIN_LOGIN, pieces=True)
        events = await ask(lane, base_of(server, scheme), way(proxy.url(LOGIN), authority))
    assert said(events) == "The sky is blue."
    how = "socks" if kind == "socks5" else "connect" if scheme == "https" else "forward"
    port = 443 if scheme == "https" else 80
    assert {(seen.how, seen.host, seen.port, seen.login) for seen in proxy.passed} == {(how, HOST, port, PLAIN_LOGIN)}
    assert "proxy-authorization" not in server.heads[-1], "it is for the proxy alone"
    if scheme == "https":
        assert KEY.encode() not in b"".join(proxy.seen), "the proxy sees no more than a name"


@pytest.mark.parametrize("lane", ["fast", "litellm-openai", "anthropic"])
@pytest.mark.parametrize("kind", KINDS)
async def test_the_certificate_is_checked_for_the_real_name(
    kind: str,
    lane: str,
    authority: Authority,
    servers: dict[str, ModelServer],
    start: Callable[..., ProxyServer],
) -> None:
    server = servers[lane]
    server.script(text("Never."))
    with TlsFront(authority.server("another.example"), port_of(server)) as front:
        proxy = start(kind, authority, {HOST: ("127.0.0.1", front.port)})
        event = failed(await ask(lane, base_of(server, "https"), way(proxy.url(), authority)))
    assert event.status == 502
    assert not str(event.error["code"]).startswith("upstream_proxy")
    assert server.requests == []


@pytest.mark.parametrize("lane", ["fast", "litellm-openai", "anthropic"])
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_proxy_that_wants_another_password_is_named_and_the_password_is_not(
    kind: str,
    scheme: str,
    lane: str,
    authority: Authority,
    servers: dict[str, ModelServer],
    start: Callable[..., ProxyServer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="groundwire")
    proxy = start(kind, authority, {}, login="other:login")
    event = failed(await ask(lane, base_of(servers[lane], scheme), way(proxy.url(LOGIN), authority)))
    assert (event.status, event.error["code"]) == (502, "upstream_proxy_auth")
    for secret in Proxy.read(proxy.url(LOGIN)).secrets:
        assert secret not in str(event) + caplog.text


@pytest.mark.parametrize("lane", ["fast", "litellm-openai", "anthropic"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_proxy_that_refuses_and_one_that_is_not_there(
    kind: str, lane: str, authority: Authority, servers: dict[str, ModelServer], start: Callable[..., ProxyServer]
) -> None:
    proxy = start(kind, authority, {}, refusal=2 if kind == "socks5" else 403)
    url = proxy.url()
    base = base_of(servers[lane], "https")
    event = failed(await ask(lane, base, way(url, authority)))
    assert (event.status, event.error["code"]) == (502, "upstream_proxy_refused")
    proxy.__exit__()
    event = failed(await ask(lane, base, way(url, authority)))
    assert (event.status, event.error["code"]) == (502, "upstream_proxy_unreachable")


@pytest.mark.parametrize("lane", ["fast", "litellm-openai", "anthropic"])
async def test_this_machine_and_what_is_listed_are_reached_directly(
    lane: str, authority: Authority, servers: dict[str, ModelServer], start: Callable[..., ProxyServer]
) -> None:
    server = servers[lane]
    server.script(text("Directly."))
    proxy = start("http", authority, {})
    assert said(await ask(lane, server.url, way(proxy.url(), authority))) == "Directly."
    assert proxy.passed == []
    own = way(proxy.url(), authority).said(SecretStr(proxy.url()), "`proxy` of upstream 'up'")
    assert said(await ask(lane, server.url, own)) == "Directly."
    assert {seen.how for seen in proxy.passed} == {"forward"}


@pytest.mark.parametrize("kind", ["http", "socks5"])
async def test_a_proxy_that_accepts_and_never_answers_is_given_up_at_the_connect_limit(
    kind: str, authority: Authority, start: Callable[..., ProxyServer]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        proxy = Proxy.read(f"{kind}://127.0.0.1:{silent.getsockname()[1]}")
        made = OpenAITransport("up", f"https://{HOST}/v1", KEY, egress=Egress(proxy, proxy), connect_timeout=0.3)
        body = {"model": "m", "messages": [QUESTION], "stream": False}
        async with aclosing(made.stream(body, {})) as batches:
            event = failed([event async for batch in batches for event in batch])
        await made.aclose()
    assert (event.status, event.error["code"]) == (504, "upstream_timeout")


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_the_environment_sends_nobody_through_a_proxy(
    variable: str,
    lane: str,
    authority: Authority,
    servers: dict[str, ModelServer],
    start: Callable[..., ProxyServer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proxy = start("http", authority, {})
    monkeypatch.setenv(variable, proxy.url())
    servers[lane].script(text("Directly."))
    assert said(await ask(lane, servers[lane].url, Egress())) == "Directly."
    assert proxy.passed == []
