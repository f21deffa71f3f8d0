"""Pages that only exist after JavaScript, read through a real Chromium; and that such a page reaches nothing inside."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator

import pytest

from providers.errors import NotAllowed, PageBlocked, ProviderError, Unavailable
from providers.services.chromium import Chromium
from providers.web.browser import PROGRAMS
from providers.web.guard import Guard
from providers.web.http import Fetcher
from tests.fakes.pages import Loopback, Names, PageServer

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, PROGRAMS)), reason="no Chromium here; .ci/run installs Debian's"
)

PUBLIC = "93.184.215.14"
STORY = "Tides follow the moon, which pulls the sea towards it twice a day. " * 12
SHELL = b"<html><head><title>Tides</title></head><body><div id=app></div><script src=/app.js></script></body></html>"


@pytest.fixture
def site() -> Iterator[PageServer]:
    """A site in the public internet, as far as anybody can tell, whose pages are made by scripts."""
    with PageServer() as server:
        server.page("/app", SHELL)
        script = "fetch('/story.json').then(r => r.json()).then(story => {"
        script += "app.innerHTML = '<article><h1>' + document.title + '</h1><p>' + story.text + '</p></article>'})"
        server.page("/app.js", script.encode(), content_type="text/javascript")
        server.page("/story.json", f'{{"text": "{STORY}"}}'.encode(), content_type="application/json")
        yield server


@pytest.fixture
async def reader(site: PageServer) -> AsyncIterator[Chromium]:
    """It believes that site.example is public, and it may read 10.0.0.0/8 besides."""
    names = Names({"site.example": [[PUBLIC]], "evil.example": [[PUBLIC]], "inside.example": [["10.0.0.7"]]})
    fetcher = Fetcher(Guard(["10.0.0.0/8"]), resolve=names, network=Loopback(site.port))
    chromium = Chromium(Chromium.Settings(timeout=30), fetcher)
    yield chromium
    await chromium.aclose()


def paths(site: PageServer) -> list[str]:
    return [request.path for request in site.requests]


async def test_a_page_made_by_scripts_is_read(site: PageServer, reader: Chromium) -> None:
    page = await reader.read("http://site.example/app")
    assert page.title == "Tides"
    assert "Tides follow the moon" in page.text
    assert page.url == "http://site.example/app"
    assert page.public
    assert {"/app", "/app.js", "/story.json"} <= set(paths(site))
    again = await reader.read("http://site.example/app")
    assert again.text == page.text


async def test_a_page_of_an_allowed_network_is_read_and_not_public(site: PageServer, reader: Chromium) -> None:
    page = await reader.read("http://inside.example/app")
    assert "Tides follow the moon" in page.text
    assert not page.public


async def test_a_public_page_reaches_nothing_inside(site: PageServer, reader: Chromium) -> None:
    attempts = [
        "fetch('http://inside.example/secret')",
        "fetch('http://10.0.0.7/secret')",
        "fetch('http://169.254.169.254/secret')",
        f"fetch('http://127.0.0.1:{site.port}/secret')",
        f"fetch('http://localhost:{site.port}/secret')",
        f"new WebSocket('ws://127.0.0.1:{site.port}/secret')",
        f"new EventSource('http://127.0.0.1:{site.port}/secret')",
        f"navigator.sendBeacon('http://127.0.0.1:{site.port}/secret', 'x')",
        "fetch('/secret', {method: 'POST', body: 'x'})",
        f"document.body.append(Object.assign(new Image(), {{src: 'http://127.0.0.1:{site.port}/secret'}}))",
    ]
    frame = f"<iframe src='http://127.0.0.1:{site.port}/secret'></iframe>"
    script = "".join(f"try {{ Promise.resolve({a}).catch(() => 0) }} catch (e) {{}}\n" for a in attempts)
    site.page("/hostile", f"<html><title>H</title><body><p>{STORY}</p>{frame}<script>{script}</script>".encode())
    site.page("/secret", b"the secret")
    page = await reader.read("http://site.example/hostile")
    assert "Tides follow the moon" in page.text
    assert "secret" not in page.text
    assert "/secret" not in paths(site), "no attempt reached the server"


async def test_a_page_cannot_make_another_of_itself(site: PageServer, reader: Chromium) -> None:
    site.page("/swap", f"<html><body><p>{STORY}</p><script>location = 'http://evil.example/other'</script>".encode())
    site.page("/other", b"<html><body><p>" + b"Somebody else's words. " * 40 + b"</p></body></html>")
    page = await reader.read("http://site.example/swap")
    assert "Tides follow the moon" in page.text
    assert "Somebody else" not in page.text
    assert "/other" not in paths(site)


async def test_dialogs_and_shadow_roots(site: PageServer, reader: Chromium) -> None:
    made = f"this.attachShadow({{mode: 'open'}}).innerHTML = '<p>{STORY}</p>'"
    shadow = f"class T extends HTMLElement {{ connectedCallback() {{ {made} }} }}"
    script = f"<script>alert('hello'); confirm('sure?'); {shadow}; customElements.define('t-t', T)</script>"
    site.page("/shadow", f"<html><title>S</title><body><article><t-t></t-t></article>{script}</body></html>".encode())
    page = await reader.read("http://site.example/shadow")
    assert "Tides follow the moon" in page.text


async def test_a_page_without_measure_is_bounded(site: PageServer, reader: Chromium) -> None:
    script = "document.body.append('x '.repeat(3e6)); for (let i = 0; i < 500; i++) fetch('/story.json?' + i)"
    site.page("/huge", f"<html><body><p>{STORY}</p><script>{script}</script></body></html>".encode())
    page = await reader.read("http://site.example/huge")
    assert len(page.text) < 4_500_000
    assert len(paths(site)) <= 200


async def test_redirects_of_scripts_are_checked_too(site: PageServer, reader: Chromium) -> None:
    site.page("/jump", f"<html><body><p>{STORY}</p><script>fetch('/moved').catch(() => 0)</script>".encode())
    site.redirect("/moved", "http://169.254.169.254/secret")
    await reader.read("http://site.example/jump")
    assert "/moved" in paths(site)
    assert "/secret" not in paths(site)


@pytest.mark.parametrize(
    ("url", "error"),
    [("http://127.0.0.1/x", NotAllowed), ("http://site.example/missing", Unavailable)],
)
async def test_what_direct_refuses_is_refused(reader: Chromium, url: str, error: type[ProviderError]) -> None:
    with pytest.raises(error):
        await reader.read(url)


async def test_a_shell_that_stays_empty_is_blocked(site: PageServer, reader: Chromium) -> None:
    site.page("/empty", b"<html><body><div id=root></div><script>1</script></body></html>")
    with pytest.raises(PageBlocked):
        await reader.read("http://site.example/empty")


async def test_a_page_that_never_rests_is_read_at_the_limit(site: PageServer) -> None:
    names = Names({"site.example": [[PUBLIC]]})
    fetcher = Fetcher(Guard(), resolve=names, network=Loopback(site.port))
    reader = Chromium(Chromium.Settings(timeout=10), fetcher)
    site.page(
        "/busy", f"<html><body><p>{STORY}</p><script>setInterval(() => fetch('/story.json'), 100)</script>".encode()
    )
    try:
        page = await reader.read("http://site.example/busy")
        assert "Tides follow the moon" in page.text
    finally:
        await reader.aclose()


async def test_several_pages_at_once_and_a_caller_who_leaves(site: PageServer, reader: Chromium) -> None:
    left = asyncio.create_task(reader.read("http://site.example/app"))
    await asyncio.sleep(0.3)
    left.cancel()
    pages = await asyncio.gather(*(reader.read("http://site.example/app") for _ in range(6)))
    assert all("Tides follow the moon" in page.text for page in pages)
    with pytest.raises(asyncio.CancelledError):
        await left


async def test_a_browser_that_died_is_started_again(site: PageServer, reader: Chromium) -> None:
    await reader.read("http://site.example/app")
    process = reader._browser._process
    assert process is not None
    process.kill()
    await process.wait()
    await asyncio.sleep(0.2)
    assert "Tides follow the moon" in (await reader.read("http://site.example/app")).text


async def test_a_browser_elsewhere_over_devtools(site: PageServer, reader: Chromium) -> None:
    await reader.read("http://site.example/app")
    tools = reader._browser._tools
    assert tools is not None
    address = str(tools._socket._response.url).replace("http", "ws", 1)
    names = Names({"site.example": [[PUBLIC]]})
    fetcher = Fetcher(Guard(), resolve=names, network=Loopback(site.port))
    remote = Chromium(Chromium.Settings(cdp_url=address.partition("/devtools")[0].replace("ws", "http", 1)), fetcher)
    try:
        assert "Tides follow the moon" in (await remote.read("http://site.example/app")).text
        assert remote._browser._process is None
    finally:
        await remote.aclose()


async def test_no_browser_is_said(site: PageServer) -> None:
    fetcher = Fetcher(Guard(), resolve=Names({"site.example": [[PUBLIC]]}), network=Loopback(site.port))
    reader = Chromium(Chromium.Settings(program="/nowhere/chromium"), fetcher)
    with pytest.raises(Unavailable, match="Chromium cannot be reached"):
        await reader.read("http://site.example/app")
    await reader.aclose()
