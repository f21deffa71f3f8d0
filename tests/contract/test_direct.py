"""Our own reader against a loopback server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest

from providers.base import ReadProvider
from providers.errors import NotAllowed, PageBlocked, ProviderError, TimedOut, Unavailable
from providers.registry import ProviderEntry, build
from providers.services.direct import Direct
from providers.web.guard import Guard
from providers.web.http import Fetcher
from tests.fakes.hostile import STUCK, page_processes
from tests.fakes.pages import PageServer

PROSE = "The lighthouse keeper wrote down the weather four times a day for thirty years and never missed an entry."
PAGE = f"<title>The log</title><body><p>{PROSE}</p><p><a href='/next'>The next volume</a></p></body>"


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer() as pages:
        yield pages


@pytest.fixture
async def reader() -> AsyncIterator[Direct]:
    direct = Direct(Direct.Settings(), Fetcher(Guard(["127.0.0.0/8"])))
    yield direct
    await direct.aclose()


class TestReading:
    async def test_a_page(self, server: PageServer, reader: Direct) -> None:
        server.page("/log", PAGE.encode())
        page = await reader.read(server.url("/log"))
        assert isinstance(reader, ReadProvider)
        assert page.url == server.url("/log")
        assert page.title == "The log"
        assert page.text == f"{PROSE}\n\n[The next volume]({server.url('/next')})"
        assert page.links == (server.url("/next"),)

    async def test_the_address_is_where_it_was_in_the_end(self, server: PageServer, reader: Direct) -> None:
        server.redirect("/old", "/new/log")
        server.page("/new/log", PAGE.replace("/next", "next").encode())
        page = await reader.read(server.url("/old"))
        assert page.url == server.url("/new/log")
        assert page.links == (server.url("/new/next"),)

    async def test_charset_of_the_header(self, server: PageServer, reader: Direct) -> None:
        server.page("/", f"<p>灯塔日志 {PROSE}</p>".encode("gb18030"), content_type="text/html; charset=GB2312")
        assert "灯塔日志" in (await reader.read(server.url("/"))).text

    async def test_a_page_that_is_cut_says_so(self, server: PageServer) -> None:
        server.page("/", (f"<p>{PROSE}</p>" * 100).encode())
        direct = Direct(Direct.Settings(max_bytes=1000), Fetcher(Guard(["127.0.0.0/8"])))
        page = await direct.read(server.url("/"))
        await direct.aclose()
        assert page.text.startswith(PROSE)
        assert page.text.endswith("[The page is longer than can be read; the rest was left out.]")
        assert len(page.text) < 1200

    async def test_meta_refresh_is_not_followed(self, server: PageServer, reader: Direct) -> None:
        server.page("/", f'<meta http-equiv=refresh content="0;url=/secret"><p>{PROSE}</p>'.encode())
        await reader.read(server.url("/"))
        assert [asked.path for asked in server.requests] == ["/"]

    async def test_many_at_once(self, server: PageServer, reader: Direct) -> None:
        for number in range(20):
            server.page(f"/{number}", PAGE.replace("The log", f"Volume {number}").encode())
        pages = await asyncio.gather(*(reader.read(server.url(f"/{number}")) for number in range(20)))
        assert [page.title for page in pages] == [f"Volume {number}" for number in range(20)]

    async def test_made_by_the_registry(self, server: PageServer) -> None:
        entry = ProviderEntry(name="reader", type="direct", timeout=9, options={"max_bytes": 500_000})
        named = build([entry], Fetcher(Guard([])))["reader"]
        assert named.can_read
        assert not named.can_search
        with pytest.raises(NotAllowed):
            await named.provider.read(server.url("/"))  # type: ignore[attr-defined]
        assert server.requests == []


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (404, Unavailable, "does not exist"),
        (410, Unavailable, "does not exist"),
        (401, PageBlocked, "log in"),
        (403, PageBlocked, "refuses"),
        (429, PageBlocked, "this often"),
        (451, PageBlocked, "legal"),
        (418, PageBlocked, "418"),
        (500, PageBlocked, "trouble"),
        (503, PageBlocked, "trouble"),
    ],
)
async def test_refusals(
    server: PageServer, reader: Direct, status: int, error: type[ProviderError], message: str
) -> None:
    server.page("/", PAGE.encode(), status=status)
    with pytest.raises(error, match=message):
        await reader.read(server.url("/"))


async def test_gates_and_pictures_are_refused(server: PageServer, reader: Direct) -> None:
    server.page("/gate", b"<title>Just a moment...</title><p>Verify you are human</p>")
    server.page("/shell", b"<div id=root></div><script src=/app.js></script>")
    server.page("/picture", b"\x89PNG\r\n\x1a\n" + bytes(100))
    server.page("/nothing", b"")
    for path, error in (
        ("/gate", PageBlocked),
        ("/shell", PageBlocked),
        ("/picture", Unavailable),
        ("/nothing", PageBlocked),
    ):
        with pytest.raises(error):
            await reader.read(server.url(path))


async def test_the_whole_of_it_has_a_limit(server: PageServer) -> None:
    server.page("/", STUCK)
    direct = Direct(Direct.Settings(timeout=1.5), Fetcher(Guard(["127.0.0.0/8"])))
    begun = time.monotonic()
    with pytest.raises(TimedOut):
        await direct.read(server.url("/"))
    assert time.monotonic() - begun < 20
    server.page("/", PAGE.encode())
    for _ in range(20):  # on a busy machine a new process may itself take a while to start
        with suppress(TimedOut):
            assert (await direct.read(server.url("/"))).title == "The log"
            break
    else:
        pytest.fail("after a page that was stuck, no other is read")
    await direct.aclose()
    assert page_processes() == set()
