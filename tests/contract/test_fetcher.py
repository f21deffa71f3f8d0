"""The fetcher end to end: real sockets, real TLS, a loopback server that plays the whole internet.

`Loopback` stands where TCP connections are made: it notes each address the fetcher dials and leads it to the server,
so the guard believes in public addresses. Only what is said to be allowed by `allow_networks` is dialled as it is.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import socket
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest

from providers.errors import BadRequest, NotAllowed, PageBlocked, ProviderError, TimedOut, Unavailable
from providers.web.guard import Guard
from providers.web.http import Fetcher
from providers.web.names import resolve_host
from tests.fakes.hostile import gzip_bomb
from tests.fakes.pages import Certificate, Loopback, Names, PageServer, make_certificate

CASES = json.loads((Path(__file__).parents[1] / "data/ssrf_cases.json").read_text())["cases"]
PUBLIC = "93.184.215.14"
BODY = b"<p>the page</p>"
SECRET_HEADERS = {"authorization", "cookie", "referer", "x-api-key"}


def named_in(case: dict[str, Any]) -> dict[str, list[list[str]]]:
    once = {name: [addresses] for name, addresses in case.get("dns", {}).items()}
    return {**once, **case.get("dns_seq", {})}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """One for every public name and address of the cases."""
    allowed = [case for case in CASES if case["expect"] == "allowed"]
    names = sorted({name for case in allowed for name in named_in(case) if not name.endswith(".")})
    return make_certificate(tmp_path_factory.mktemp("tls"), [*names, "2606:4700:4700::1111", "2600::"])


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer() as pages:
        yield pages


def reader(**options: Any) -> Fetcher:
    """A fetcher that may read the loopback server as an operator would let it."""
    return Fetcher(Guard(["127.0.0.0/8"]), **options)


def script(server: PageServer, case: dict[str, Any]) -> None:
    server.page("*", BODY)
    url = case["url"]
    for location in case.get("redirects", ()):
        server.redirect(urlsplit(url).path, location, status=case.get("status", 302))
        url = urljoin(url, location)


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES])
async def test_case(case: dict[str, Any], certificate: Certificate) -> None:
    names = Names(named_in(case))
    with PageServer(certificate.server) as server:
        script(server, case)
        network = Loopback(server.port)
        fetcher = Fetcher(Guard(), resolve=names, ssl_context=certificate.client, network=network)
        if case["expect"] == "allowed":
            url = await check_allowed(case, fetcher, network, names)
            assert server.requests[-1].headers["host"] == urlsplit(url).netloc
        elif case.get("status") == 300:
            assert (await fetcher.fetch(case["url"])).status == 300  # a page like any other: its Location leads nowhere
            assert network.dialled == [(PUBLIC, 443)]
        else:
            await check_blocked(case, fetcher, network)
        assert len(server.requests) == len(network.dialled)
        for asked in server.requests:
            assert SECRET_HEADERS.isdisjoint(asked.headers)


async def check_allowed(case: dict[str, Any], fetcher: Fetcher, network: Loopback, names: Names) -> str:
    hops = 1 + len(case.get("redirects", ()))
    fetched = await fetcher.fetch(case["url"])
    assert (fetched.status, fetched.body, fetched.public, fetched.cut) == (200, BODY, True, False)
    named = named_in(case)
    expected = case.get("pin") or (next(iter(named.values()))[0][0] if named else urlsplit(case["url"]).hostname)
    assert [address for address, _ in network.dialled] == [expected] * hops
    assert len(names.asked) == (hops if named else 0)
    if "redirects" in case:
        assert fetched.url == urljoin(case["url"], case["redirects"][-1])
    return fetched.url


async def check_blocked(case: dict[str, Any], fetcher: Fetcher, network: Loopback) -> None:
    with pytest.raises((BadRequest, NotAllowed, PageBlocked)) as refused:
        await fetcher.fetch(case["url"])
    # A page that only redirects may open for another reader; what the guard refused is refused for everybody.
    assert refused.value.falls_over == isinstance(refused.value, PageBlocked)
    if isinstance(refused.value, NotAllowed):
        assert str(refused.value) == "address not allowed"
    assert {address for address, _ in network.dialled} <= {PUBLIC}
    assert bool(network.dialled) == ("redirects" in case)


async def test_five_redirects_are_followed_and_not_one_more(server: PageServer) -> None:
    for n in range(30):
        server.redirect(f"/{n}", f"/{n + 1}")
    server.page("/30", BODY)
    fetched = await reader().fetch(server.url("/25"))
    assert (fetched.url, fetched.body) == (server.url("/30"), BODY)
    server.requests.clear()
    with pytest.raises(PageBlocked, match="more than 5 times"):
        await reader().fetch(server.url("/0"))
    assert [asked.path for asked in server.requests] == ["/0", "/1", "/2", "/3", "/4", "/5"]


async def test_a_loop_ends(server: PageServer) -> None:
    server.redirect("/a", "/b")
    server.redirect("/b", "/a")
    with pytest.raises(PageBlocked):
        await reader().fetch(server.url("/a"))
    assert len(server.requests) == 6


@pytest.mark.parametrize(
    ("location", "path"),
    [("next?x=1#part", "/dir/next?x=1"), ("../up", "/up"), ("?only", "/dir/page?only"), ("/a b/ü", "/a%20b/%C3%BC")],
)
async def test_a_location_may_be_relative_and_sloppy(server: PageServer, location: str, path: str) -> None:
    server.redirect("/dir/page", location)
    server.page(path, BODY)
    fetched = await reader().fetch(server.url("/dir/page"))
    assert (fetched.url, fetched.body) == (server.url(path), BODY)


@pytest.mark.parametrize("location", ["http://[::1/", "http://exa\u2100mple.com/", "http://a b.com/", "/\\evil.com"])
async def test_a_location_nobody_can_read_is_refused(server: PageServer, location: str) -> None:
    server.redirect("/", location)
    server.page("/without", b"", status=302)
    with pytest.raises(NotAllowed, match=r"^address not allowed$"):
        await reader().fetch(server.url("/"))
    with pytest.raises(BadRequest, match="nowhere"):
        await reader().fetch(server.url("/without"))


async def test_a_meta_refresh_is_text(server: PageServer) -> None:
    page = b'<meta http-equiv="refresh" content="0; url=/secret"><script>location="/secret"</script>'
    server.page("/", page, headers={"Refresh": "0; url=/secret"})
    assert (await reader().fetch(server.url("/"))).body == page
    assert [asked.path for asked in server.requests] == ["/"]


async def test_a_page_comes_with_its_type_and_charset_if_it_has_them(server: PageServer) -> None:
    server.page("/a?b=c", BODY, content_type='Text/HTML; boundary=x; Charset="ISO-8859-1"')
    fetched = await reader().fetch(server.url("/a?b=c#d"))
    assert (fetched.content_type, fetched.charset, fetched.body) == ("text/html", "iso-8859-1", BODY)
    assert fetched.url == server.url("/a?b=c")
    assert not fetched.public
    asked = server.requests[0].headers
    assert asked["host"] == f"127.0.0.1:{server.port}"
    assert (asked["accept-encoding"], asked["connection"]) == ("identity, gzip", "close")
    assert re.fullmatch(r"Groundwire/[\d.]+ \(.+\)", asked["user-agent"]), "no browser"
    assert asked["accept"].startswith("text/markdown, text/html;q=0.9, ")
    server.raw("/bare", lambda: [b"HTTP/1.0 200 OK\r\n\r\n", BODY])
    fetched = await reader().fetch(server.url("/bare"))
    assert (fetched.content_type, fetched.charset, fetched.body) == ("", "", BODY)


async def test_a_site_that_has_nothing_of_what_we_like_is_asked_for_html(server: PageServer) -> None:
    answers = iter([b"HTTP/1.1 406 No\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + BODY])
    server.raw("/", lambda: [next(answers)])
    fetched = await reader().fetch(server.url("/"))
    assert (fetched.status, fetched.body) == (200, BODY)
    first, second = (asked.headers["accept"] for asked in server.requests)
    assert "text/markdown" in first
    assert second == "text/html, */*;q=0.5"


async def test_a_site_that_refuses_html_too_is_asked_twice(server: PageServer) -> None:
    server.redirect("/old", "/")
    server.page("/", BODY, status=406)
    assert (await reader().fetch(server.url("/old"))).status == 406
    assert [asked.path for asked in server.requests] == ["/old", "/", "/"]


@pytest.mark.parametrize("status", [204, 304, 403, 404, 451, 500])
async def test_a_status_is_handed_on_for_the_reader_to_judge(server: PageServer, status: int) -> None:
    server.page("/", b"" if status in (204, 304) else BODY, status=status)
    assert (await reader().fetch(server.url("/"))).status == status


async def test_a_page_is_public_only_if_every_hop_was(server: PageServer) -> None:
    names = Names({"example.com": [[PUBLIC]], "wiki.internal": [["10.0.0.5"]]})
    network = Loopback(server.port)
    fetcher = Fetcher(Guard(["10.0.0.0/8"]), resolve=names, network=network)
    server.redirect("/in", "http://wiki.internal:3000/page")
    server.redirect("/out", "http://example.com/page")
    server.page("/page", BODY)
    assert (await fetcher.fetch("http://example.com/page")).public
    assert not (await fetcher.fetch("http://example.com/in")).public
    assert not (await fetcher.fetch("http://wiki.internal/out")).public
    assert ("10.0.0.5", 3000) in network.dialled


async def test_whether_others_may_hear_of_a_page_is_told_without_dialling(server: PageServer) -> None:
    names = Names({"example.com": [[PUBLIC]], "wiki.internal": [["10.0.0.5"]], "evil.example.com": [["127.0.0.1"]]})
    network = Loopback(server.port)
    fetcher = Fetcher(Guard(["10.0.0.0/8"]), resolve=names, network=network)
    assert await fetcher.is_public("http://example.com/")
    assert not await fetcher.is_public("http://wiki.internal/")
    with pytest.raises(NotAllowed):
        await fetcher.is_public("http://evil.example.com/")
    assert network.dialled == []


async def test_no_proxy_of_the_environment_and_no_old_connection_is_used(
    server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    network = Loopback(server.port)
    server.page("*", BODY)
    fetcher = Fetcher(Guard(), resolve=Names({"example.com": [[PUBLIC]]}), network=network)
    for _ in range(2):
        assert (await fetcher.fetch("http://example.com/")).body == BODY
    assert network.dialled == [(PUBLIC, 80)] * 2
    await fetcher.aclose()


async def test_the_system_resolver_gives_addresses() -> None:
    assert {"127.0.0.1", "::1"} & set(await resolve_host("localhost", 80))


async def test_the_certificate_must_be_for_the_name_that_was_asked(certificate: Certificate) -> None:
    names = Names({"example.com": [[PUBLIC]], "stranger.example": [[PUBLIC]]})
    with PageServer(certificate.server) as server:
        server.page("*", BODY)
        network = Loopback(server.port)
        fetcher = Fetcher(Guard(), resolve=names, ssl_context=certificate.client, network=network)
        assert (await fetcher.fetch("https://example.com/")).body == BODY
        assert server.requests[0].secure
        with pytest.raises(Unavailable):
            await fetcher.fetch("https://stranger.example/")
        with pytest.raises(Unavailable):
            await Fetcher(Guard(), resolve=names, network=network).fetch("https://example.com/")  # an unknown issuer
        assert len(server.requests) == 1
        assert network.dialled == [(PUBLIC, 443)] * 3


async def test_a_gzip_bomb_is_inflated_no_further_than_the_limit(server: PageServer) -> None:
    bomb = gzip_bomb(bytes(1_000_000), 200)
    assert len(bomb) < 250_000
    server.page("/", bomb, headers={"Content-Encoding": "gzip"})
    tracemalloc.start()
    try:
        fetched = await reader().fetch(server.url("/"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(fetched.body), fetched.cut) == (2_000_000, True)
    assert peak < 20_000_000


@pytest.mark.parametrize(("size", "cut"), [(999, False), (1000, False), (1001, True), (5000, True)])
@pytest.mark.parametrize("encoding", ["identity", "gzip", "X-GZIP", ""])
async def test_what_fits_is_kept_and_the_rest_is_owned_up_to(
    server: PageServer, encoding: str, size: int, cut: bool
) -> None:
    body = bytes(n % 251 for n in range(size))
    sent = gzip.compress(body) if "gzip" in encoding.lower() else body
    server.page("/", sent, headers={"Content-Encoding": encoding})
    fetched = await reader(max_bytes=1000).fetch(server.url("/"))
    assert (fetched.body, fetched.cut) == (body[:1000], cut)


def much_wire_and_no_text() -> Iterator[bytes]:
    packer = zlib.compressobj(wbits=31)
    yield b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + packer.compress(b"x") + packer.flush(zlib.Z_FULL_FLUSH)
    while True:
        yield b"\x00\x00\x00\xff\xff" * 10_000  # empty stored blocks


async def test_the_limit_holds_on_the_wire_too(server: PageServer) -> None:
    server.raw("/", much_wire_and_no_text)
    fetched = await reader().fetch(server.url("/"))
    assert (fetched.body, fetched.cut) == (b"x", True)


async def test_a_gzip_body_that_breaks_off_is_marked_and_one_that_is_none_refused(server: PageServer) -> None:
    server.page("/short", gzip.compress(BODY)[:-8], headers={"Content-Encoding": "gzip"})
    server.page("/none", BODY, headers={"Content-Encoding": "gzip"})
    fetched = await reader().fetch(server.url("/short"))
    assert (fetched.body, fetched.cut) == (BODY, True)
    with pytest.raises(Unavailable, match="gzip"):
        await reader().fetch(server.url("/none"))


@pytest.mark.parametrize("encoding", ["gzip, gzip, gzip", "br", "zstd", "deflate", "gzip\r\nContent-Encoding: gzip"])
async def test_an_encoding_we_did_not_ask_for_is_refused(server: PageServer, encoding: str) -> None:
    server.page("/", gzip.compress(gzip.compress(BODY)), headers={"Content-Encoding": encoding})
    with pytest.raises(Unavailable, match="not asked for"):
        await reader().fetch(server.url("/"))


async def test_a_content_length_that_lies_is_survived(server: PageServer) -> None:
    server.page("/more", b"0123456789" + bytes(1_000_000), headers={"Content-Length": "10"})
    server.page("/less", b"0123456789", headers={"Content-Length": "1000000"})
    assert (await reader().fetch(server.url("/more"))).body == b"0123456789"
    with pytest.raises(Unavailable):
        await reader().fetch(server.url("/less"))


def endless() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"
    while True:
        yield b"x" * 50_000


async def test_an_endless_body_is_cut(server: PageServer) -> None:
    server.raw("/", endless)
    fetched = await reader().fetch(server.url("/"))
    assert (fetched.body, fetched.cut) == (b"x" * 2_000_000, True)


def dripping(head: bytes, hung_up: threading.Event) -> Callable[[], Iterator[bytes]]:
    def pieces() -> Iterator[bytes]:
        try:
            yield head
            while True:
                time.sleep(0.02)
                yield b"x"
        finally:
            hung_up.set()

    return pieces


@pytest.mark.parametrize(
    "head", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["status", "headers", "body"]
)
async def test_a_drip_ends_at_the_deadline_and_the_socket_with_it(server: PageServer, head: bytes) -> None:
    hung_up = threading.Event()
    server.raw("/", dripping(head, hung_up))
    with pytest.raises(TimedOut, match="in time"):
        await reader(deadline=0.3).fetch(server.url("/"))
    assert await asyncio.to_thread(hung_up.wait, 30)


async def test_a_cancelled_fetch_hangs_up(server: PageServer) -> None:
    hung_up = threading.Event()
    server.raw("/", dripping(b"HTTP/1.1 200 OK\r\n\r\n", hung_up))
    fetch = asyncio.create_task(reader().fetch(server.url("/")))
    while not server.requests:
        await asyncio.sleep(0.01)
    fetch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetch
    assert await asyncio.to_thread(hung_up.wait, 30)


async def test_a_handshake_that_stalls_ends_at_the_deadline_and_the_socket_with_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with pytest.raises(TimedOut):
            await reader(deadline=0.3).fetch(f"https://127.0.0.1:{listener.getsockname()[1]}/")
        accepted, _ = listener.accept()
        with accepted:
            accepted.settimeout(30)
            while accepted.recv(4096):
                pass  # the hello, and then the end


async def test_a_name_that_never_resolves_ends_at_its_own_limit() -> None:
    async def never(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return [PUBLIC]

    with pytest.raises(TimedOut):
        await Fetcher(Guard(), resolve=never, deadline=0.1).fetch("http://example.com/")
    with pytest.raises(Unavailable):
        await Fetcher(Guard(), resolve=never, deadline=100).fetch("http://example.com/")


def reset(listener: socket.socket) -> None:
    accepted, _ = listener.accept()
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    accepted.close()


async def test_all_trouble_sounds_the_same(server: PageServer) -> None:
    server.raw("/garbage", lambda: [b"SSH-2.0-OpenSSH_9.6\r\n"])
    server.raw("/silence", lambda: [b""])
    server.raw("/headers", lambda: [b"HTTP/1.1 200 OK\r\n", b"X-Y: zzzzzzzz\r\n" * 150_000])
    with socket.create_server(("127.0.0.1", 0)) as closed:
        refused = f"http://127.0.0.1:{closed.getsockname()[1]}/"
    urls = [server.url("/garbage"), server.url("/silence"), server.url("/headers"), refused, "http://nowhere.example/"]
    urls.append(server.url("/plain").replace("http:", "https:"))
    said = {await trouble(reader(resolve=Names({})), url) for url in urls}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        hanging_up = threading.Thread(target=reset, args=(listener,))
        hanging_up.start()
        said.add(await trouble(reader(), f"http://127.0.0.1:{listener.getsockname()[1]}/"))
        hanging_up.join()
    assert said == {(Unavailable, "the page could not be reached")}


async def trouble(fetcher: Fetcher, url: str) -> tuple[type[ProviderError], str]:
    with pytest.raises(ProviderError) as caught:
        await fetcher.fetch(url)
    return type(caught.value), str(caught.value)
