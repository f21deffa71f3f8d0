"""Pages through a proxy: what it is asked for, what never reaches it, and what is dialled by us all the same.

The proxies are real and on loopback; each leads every public name and address of a test to one page server.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from providers.errors import BadRequest, NotAllowed, PageBlocked, ProxyFailed, TimedOut, Unavailable
from providers.web.egress import Bypass, Egress, Proxy
from providers.web.guard import Guard
from providers.web.proxied import ProxiedFetcher
from tests.fakes.egress import Authority, HttpProxy, ProxyServer, SocksProxy
from tests.fakes.pages import Names, PageServer

CASES = json.loads((Path(__file__).parents[1] / "data/ssrf_cases.json").read_text())["cases"]
BLOCKED = [case for case in CASES if case["expect"] != "allowed" and case.get("status") != 300]
BODY = b"<p>the page</p>"
LOGIN = "the-user:pass-word-of-ours"
HOST = "pages.example"
PUBLIC = "93.184.215.14"
HERE: dict[str, list[list[str]]] = {HOST: [[PUBLIC]]}
KINDS = ["http", "https", "socks5"]


class Everywhere(dict[str, tuple[str, int]]):
    """Every name leads to the page server: the proxy of a network in which all of them exist."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port

    def get(self, host: str, default: Any = None) -> tuple[str, int]:
        return ("127.0.0.1", self._port)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def server(authority: Authority) -> Iterator[PageServer]:
    with PageServer(authority.server(HOST, "2606:4700:4700::1111", PUBLIC)) as pages:
        pages.page("*", BODY)
        yield pages


@pytest.fixture
def start(authority: Authority, server: PageServer) -> Iterator[Callable[..., ProxyServer]]:
    with ExitStack() as stack:

        def begin(kind: str, **options: Any) -> ProxyServer:
            if kind == "socks5":
                proxy: ProxyServer = SocksProxy(**options)
            else:
                proxy = HttpProxy(tls=authority.server("127.0.0.1") if kind == "https" else None, **options)
            proxy.names = Everywhere(server.port)
            return stack.enter_context(proxy)

        yield begin


def reader(
    url: str,
    authority: Authority,
    names: dict[str, list[list[str]]] | None = None,
    *,
    networks: tuple[str, ...] = (),
    listed: tuple[str, ...] = (),
    **options: Any,
) -> ProxiedFetcher:
    proxy = Proxy.read(url)
    egress = Egress(proxy, proxy, Bypass.read(listed, loopback=True), str(authority.file))
    return ProxiedFetcher(Guard(networks), egress, resolve=Names(HERE if names is None else names), **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_page_is_read_through_the_proxy_under_its_own_name(
    scheme: str, kind: str, start: Callable[..., ProxyServer], server: PageServer, authority: Authority
) -> None:
    proxy = start(kind, login=LOGIN, pieces=True)
    fetched = await reader(proxy.url(), authority).fetch(f"{scheme}://{HOST}/a?b=c")
    assert (fetched.status, fetched.body, fetched.public) == (200, BODY, True)
    (passed,) = proxy.passed
    how = "socks" if kind == "socks5" else "connect" if scheme == "https" else "forward"
    port = 443 if scheme == "https" else 80
    assert (passed.how, passed.host, passed.port, passed.login) == (how, HOST, port, LOGIN)
    (asked,) = server.requests
    assert (asked.path, asked.headers["host"], asked.secure) == ("/a?b=c", HOST, scheme == "https")
    assert not {"proxy-authorization", "authorization", "cookie", "referer"} & asked.headers.keys()


@pytest.mark.parametrize("kind", KINDS)
async def test_the_certificate_is_checked_for_the_pages_name(
    kind: str, start: Callable[..., ProxyServer], server: PageServer, authority: Authority
) -> None:
    names = {"other.example": [[PUBLIC]]}
    proxy = start(kind)
    with pytest.raises(Unavailable, match=r"^the page could not be reached$"):
        await reader(proxy.url(), authority, names).fetch("https://other.example/")
    assert proxy.hosts == ["other.example"]
    assert server.requests == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "url", ["https://[2606:4700:4700::1111]/", "http://[2606:4700:4700::1111]:8080/", f"https://{PUBLIC}/"]
)
async def test_a_public_address_may_stand_for_a_name(
    url: str, kind: str, start: Callable[..., ProxyServer], authority: Authority
) -> None:
    proxy = start(kind)
    assert (await reader(proxy.url(), authority).fetch(url)).body == BODY
    parts = urlsplit(url)
    assert [(passed.host, passed.port) for passed in proxy.passed] == [(parts.hostname, parts.port or 443)]


# What never reaches the proxy


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in BLOCKED])
async def test_what_the_guard_refuses_is_refused_here_too(
    case: dict[str, Any], start: Callable[..., ProxyServer], server: PageServer, authority: Authority
) -> None:
    url = case["url"]
    for location in case.get("redirects", ()):
        server.redirect(urlsplit(url).path or "/", location)
        url = location
    named = {name: [addresses] for name, addresses in case.get("dns", {}).items()} | case.get("dns_seq", {})
    proxy = start("http")
    with pytest.raises((BadRequest, NotAllowed, PageBlocked, Unavailable)):
        await reader(proxy.url(), authority, named).fetch(case["url"])
    first = urlsplit(case["url"]).hostname if "redirects" in case else None
    assert set(proxy.hosts) <= {first}, "but the page that tried to send us there"


@pytest.mark.parametrize(
    "url",
    [
        "http://intranet/",
        "http://wiki.internal/",
        "http://printer.local/",
        "http://a.localhost/",
        "http://10.0.0.1/",
        "http://169.254.169.254/latest",
        "https://[::1]/",
        "https://[fd00::1]/",
        "http://pages.example:22/",
        "http://private.example/",
        "http://both.example/",
    ],
)
@pytest.mark.parametrize("kind", KINDS)
async def test_private_names_and_addresses_are_refused_whether_they_resolve_here_or_not(
    kind: str, url: str, start: Callable[..., ProxyServer], server: PageServer, authority: Authority
) -> None:
    proxy = start(kind)
    names = {"private.example": [["10.1.2.3"]], "both.example": [[PUBLIC, "192.168.0.1"]]}
    fetcher = reader(proxy.url(), authority, names)
    server.redirect("/away", url)
    for asked in (url, f"http://{PUBLIC}/away"):
        with pytest.raises(NotAllowed, match=r"^address not allowed$"):
            await fetcher.fetch(asked)
    with pytest.raises(NotAllowed):
        await fetcher.is_public(url)
    assert proxy.hosts == [PUBLIC]


async def test_what_does_not_resolve_here_may_pass_if_it_looks_public(
    start: Callable[..., ProxyServer], authority: Authority
) -> None:
    proxy = start("http")
    fetcher = reader(proxy.url(), authority, {})
    assert await fetcher.is_public("http://unknown.example/")
    assert proxy.passed == []
    assert (await fetcher.fetch("http://unknown.example/")).public
    assert proxy.hosts == ["unknown.example"]


async def test_a_lookup_that_hangs_is_one_that_finds_nothing(
    start: Callable[..., ProxyServer], authority: Authority
) -> None:
    async def hangs(host: str, port: int) -> list[str]:
        raise TimeoutError

    proxy = start("http")
    url = Proxy.read(proxy.url())
    fetcher = ProxiedFetcher(Guard(), Egress(url, url), resolve=hangs)
    assert (await fetcher.fetch("http://pages.example/")).body == BODY


async def test_our_own_name_is_not_read_through_the_proxy_either(
    start: Callable[..., ProxyServer], authority: Authority
) -> None:
    proxy = start("http")
    url = Proxy.read(proxy.url())
    fetcher = ProxiedFetcher(Guard(own=[("gateway.example", 80)]), Egress(url, url), resolve=Names({}))
    with pytest.raises(NotAllowed):
        await fetcher.fetch("http://gateway.example/")
    assert proxy.passed == []


async def test_every_hop_of_a_redirect_is_asked_for_anew(
    start: Callable[..., ProxyServer], server: PageServer, authority: Authority
) -> None:
    server.redirect("/0", "https://pages.example/1")
    server.redirect("/1", "http://second.example/2")
    proxy = start("http")
    fetched = await reader(proxy.url(), authority, {**HERE, "second.example": [[PUBLIC]]}).fetch(f"http://{HOST}/0")
    assert fetched.url == "http://second.example/2"
    assert [(passed.how, passed.host) for passed in proxy.passed] == [
        ("forward", HOST),
        ("connect", HOST),
        ("forward", "second.example"),
    ]


# What is dialled by us


async def test_allowed_networks_and_listed_hosts_are_read_directly_and_checked_in_full(
    start: Callable[..., ProxyServer], server: PageServer, authority: Authority
) -> None:
    proxy = start("http")
    names = {"wiki.example": [["127.0.0.1"]], "listed.example": [["10.0.0.1"]]}
    fetcher = reader(proxy.url(), authority, names, networks=("127.0.0.0/8",), listed=(".listed.example",))
    fetched = await fetcher.fetch(f"http://wiki.example:{server.port}/")
    assert (fetched.body, fetched.public) == (BODY, False)
    with pytest.raises(NotAllowed):
        await fetcher.fetch("http://listed.example/")
    assert proxy.passed == []
    page = await fetcher.fetch(f"http://{PUBLIC}/")
    assert page.public
    assert proxy.hosts == [PUBLIC]
    with pytest.raises(NotAllowed):
        await fetcher.for_parts_of(page).fetch(f"http://wiki.example:{server.port}/")


# How a proxy fails


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_wants_another_login_is_named_with_its_fix(
    scheme: str, kind: str, start: Callable[..., ProxyServer], authority: Authority
) -> None:
    proxy = start(kind, login=LOGIN)
    with pytest.raises(ProxyFailed, match="the proxy for pages does not accept our user and password") as raised:
        await reader(proxy.url("user:not-the-password"), authority).fetch(f"{scheme}://{HOST}/")
    assert "`network.proxy`" in raised.value.advice
    assert "not-the-password" not in str(raised.value) + raised.value.advice


@pytest.mark.parametrize("kind", KINDS)
async def test_a_proxy_that_refuses_tells_no_more_than_a_page_that_is_down(
    kind: str, start: Callable[..., ProxyServer], authority: Authority
) -> None:
    proxy = start(kind, refusal=2 if kind == "socks5" else 403)
    with pytest.raises(Unavailable, match=r"^the page could not be reached$") as raised:
        await reader(proxy.url(), authority).fetch(f"https://{HOST}/")
    assert not isinstance(raised.value, ProxyFailed)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_proxy_that_is_not_there(kind: str, start: Callable[..., ProxyServer], authority: Authority) -> None:
    proxy = start(kind)
    fetcher = reader(proxy.url(), authority)
    proxy.__exit__()
    with pytest.raises(ProxyFailed, match="the proxy for pages cannot be reached"):
        await fetcher.fetch(f"https://{HOST}/")


async def test_a_proxy_that_never_answers_is_given_up_at_the_pages_limit(authority: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        fetcher = reader(f"socks5://127.0.0.1:{silent.getsockname()[1]}", authority, deadline=0.3)
        with pytest.raises(TimedOut):
            await fetcher.fetch(f"https://{HOST}/")
