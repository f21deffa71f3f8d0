"""How many pages are fetched at once: in all, from one host, for one caller and one request; and who waits for whom."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from providers.errors import ProviderError, TimedOut
from providers.places import asked_by
from providers.web.guard import Guard
from providers.web.http import Fetched, Fetcher
from tests.fakes.pages import Loopback, Names, PageServer
from tests.fakes.providers import until

PUBLIC = "93.184.215.14"
BODY = b"<p>the page</p>"
HOSTS = [f"site{n}.example" for n in range(40)]


class Slow:
    """Pages that come when the gate is opened, and how many of them were under way at the most."""

    def __init__(self, server: PageServer) -> None:
        self.opened = threading.Event()
        self.under_way = self.most = 0
        self._lock = threading.Lock()
        server.raw("*", self._pieces)
        server.page("/quick", BODY)

    def _pieces(self) -> Iterator[bytes]:
        with self._lock:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        try:
            yield b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
            deadline = time.monotonic() + 30
            while not self.opened.wait(0.02) and time.monotonic() < deadline:
                yield b" "  # so that we hear when the reader has hung up
            yield BODY
        finally:
            with self._lock:
                self.under_way -= 1


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer() as pages:
        yield pages


@pytest.fixture
def slow(server: PageServer) -> Iterator[Slow]:
    pages = Slow(server)
    yield pages
    pages.opened.set()


@pytest.fixture
def fetcher(server: PageServer) -> Callable[..., Fetcher]:
    names = Names({host: [[PUBLIC]] for host in HOSTS})
    return lambda **options: Fetcher(Guard(), resolve=names, network=Loopback(server.port), **options)


def begin(fetcher: Fetcher, host: str, caller: str = "", request: str = "") -> asyncio.Task[Fetched]:
    async def fetch() -> Fetched:
        with asked_by(caller, request):
            return await fetcher.fetch(f"http://{host}/page")

    return asyncio.create_task(fetch())


async def give_up(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_so_many_in_all_and_every_one_comes_in_the_end(slow: Slow, fetcher: Callable[..., Fetcher]) -> None:
    one = fetcher(max_fetches=5, deadline=60)
    tasks = [begin(one, host, request=host) for host in HOSTS[:20]]
    await until(lambda: slow.under_way == 5)
    await asyncio.sleep(0.1)
    assert slow.most == 5
    slow.opened.set()
    assert all(BODY in fetched.body for fetched in await asyncio.gather(*tasks))
    assert slow.most == 5


async def test_so_many_from_one_host_and_others_are_not_held_up_by_it(
    slow: Slow, fetcher: Callable[..., Fetcher]
) -> None:
    one = fetcher(max_fetches=6, max_per_host=2, deadline=60)
    busy = [begin(one, HOSTS[0], request=str(n)) for n in range(10)]
    await until(lambda: slow.under_way == 2)
    others = [begin(one, host, request=host) for host in HOSTS[1:5]]
    await until(lambda: slow.under_way == 6)  # those who wait for the busy host keep no place from them
    slow.opened.set()
    await asyncio.gather(*busy, *others)
    assert slow.most == 6
    assert len(one._hosts) == 0


async def test_a_redirect_counts_where_it_leads(
    server: PageServer, slow: Slow, fetcher: Callable[..., Fetcher]
) -> None:
    for n, host in enumerate(HOSTS[1:9]):
        server.redirect(f"/{n}", f"http://{HOSTS[0]}/{host}")
    one = fetcher(max_per_host=3, deadline=60)
    tasks = [asyncio.create_task(one.fetch(f"http://{host}/{n}")) for n, host in enumerate(HOSTS[1:9])]
    await until(lambda: slow.under_way == 3)
    await asyncio.sleep(0.1)
    slow.opened.set()
    assert {fetched.url.split("/")[2] for fetched in await asyncio.gather(*tasks)} == {HOSTS[0]}
    assert slow.most == 3


async def test_one_request_has_so_many_under_way(slow: Slow, fetcher: Callable[..., Fetcher]) -> None:
    one = fetcher(deadline=60)
    tasks = [begin(one, host, "a", "1") for host in HOSTS[:20]]
    await until(lambda: slow.under_way == 8)
    await asyncio.sleep(0.1)
    assert slow.most == 8
    slow.opened.set()
    await asyncio.gather(*tasks)


async def test_a_caller_that_holds_all_it_may_leaves_places_to_others(
    slow: Slow, fetcher: Callable[..., Fetcher]
) -> None:
    one = fetcher(max_fetches=8, deadline=60)
    tasks = [begin(one, host, "mallory", host) for host in HOSTS]
    await until(lambda: slow.under_way == 6)
    with asked_by("alice", "1"):
        assert (await one.fetch(f"http://{HOSTS[0]}/quick")).body == BODY
    assert not any(task.done() for task in tasks)
    await give_up(tasks)


async def test_who_waits_too_long_is_sent_away_with_a_reason(slow: Slow, fetcher: Callable[..., Fetcher]) -> None:
    one = fetcher(max_fetches=1, deadline=60)
    first = begin(one, HOSTS[0])
    await until(lambda: slow.under_way == 1)
    one._deadline = 0.3
    for host in HOSTS[:2]:
        with pytest.raises(TimedOut, match="too many pages are being read just now"):
            await begin(one, host)
    one._deadline = 60
    slow.opened.set()
    await first
    assert BODY in (await begin(one, HOSTS[1])).body


async def test_leaving_gives_every_place_back(slow: Slow, fetcher: Callable[..., Fetcher]) -> None:
    one = fetcher(max_fetches=3, max_per_host=2, deadline=60)
    tasks = [begin(one, host, request=str(n)) for n, host in enumerate(HOSTS[:4] * 3)]
    await until(lambda: slow.under_way == 3)
    await give_up(tasks)
    assert one._pages is not None
    assert one._pages.unused
    assert len(one._hosts) == 0
    slow.opened.set()
    assert all(BODY in page.body for page in await asyncio.gather(*(begin(one, host) for host in HOSTS[:6])))


async def test_a_page_that_is_still_being_read_keeps_its_place(
    server: PageServer, slow: Slow, fetcher: Callable[..., Fetcher]
) -> None:
    one = fetcher(max_fetches=1, max_per_host=2, deadline=60)
    async with one.fetching(f"http://{HOSTS[0]}/quick") as page:
        assert page.body == BODY
        waiting = asyncio.create_task(one.fetch(f"http://{HOSTS[1]}/quick"))
        await asyncio.sleep(0.1)
        assert len(server.requests) == 1
        parts = one.for_parts_of(page)  # which the page needs to be read at all
        assert (await parts.fetch(f"http://{HOSTS[0]}/quick")).body == BODY
    assert (await waiting).body == BODY


async def test_a_page_that_fails_gives_its_place_back(server: PageServer, fetcher: Callable[..., Fetcher]) -> None:
    one = fetcher(max_fetches=1, max_per_host=1)
    server.raw("/broken", lambda: [b"SSH-2.0\r\n"])
    server.page("/quick", BODY)
    for path in ("broken", "quick") * 3:
        with suppress(ProviderError):
            await one.fetch(f"http://{HOSTS[0]}/{path}")
    with pytest.raises(ProviderError):
        await one.fetch("http://nowhere.example/")
    assert (await one.fetch(f"http://{HOSTS[0]}/quick")).body == BODY
