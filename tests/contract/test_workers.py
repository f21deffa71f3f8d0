"""The processes in which pages are read: who gets one when, what a page may take of it, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest
import uvloop

from providers.errors import PageBlocked, TimedOut, Unavailable
from providers.places import asked_by
from providers.web.extract import Extracted
from providers.web.worker import FRAME
from providers.web.workers import Workers, _Page
from tests.fakes.hostile import STUCK, memory, page_processes, pdf, pdf_bomb
from tests.fakes.providers import until

ROOT = Path(__file__).parents[2]
PROSE = "The lighthouse keeper wrote down the weather four times a day for thirty years and never missed an entry."
PAGE = f"<title>The log</title><body><p>{PROSE}</p><p><a href='/next'>The next volume</a></p></body>".encode()
LONG = b"<title>Long</title><ul>" + b"<li><a href='/abc/def'>some words here</a></li>" * 4000 + b"</ul>"
BEGUN = 40  # megabytes that a process holds over a large page; before the first it holds half of that
PATIENT = 120.0  # seconds: a page that is stuck stays so for longer than any test


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Workers]]:
    made = []

    def workers(limit: float = PATIENT, quick: float = 0.3) -> Workers:
        made.append(Workers(limit, quick))
        return made[-1]

    yield workers
    for one in made:
        await one.aclose()
    assert page_processes() == set()


@pytest.fixture
def workers(make: Callable[..., Workers]) -> Workers:
    return make()


async def read(workers: Workers, body: bytes = PAGE, caller: str = "", request: str = "") -> Extracted:
    with asked_by(caller, request):
        return await workers.extract(body, "text/html", "", "https://a.example/")


async def give_up(*tasks: asyncio.Task[Extracted]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_one_process_is_reused_and_gone_after_closing(workers: Workers) -> None:
    assert page_processes() == set()
    first = await read(workers)
    running = page_processes()
    assert await read(workers) == first == Extracted("The log", first.text, None, ("https://a.example/next",))
    assert len(running) == 1
    assert page_processes() == running
    await workers.aclose()
    assert page_processes() == set()


async def test_errors_come_back_as_they_were_raised(workers: Workers) -> None:
    with pytest.raises(Unavailable, match=r"not text \(image\)"):
        await workers.extract(b"\x89PNG\r\n" + bytes(50), "image/png", "", "https://a.example/")
    with pytest.raises(PageBlocked, match="is empty"):
        await read(workers, b"")


async def test_a_stuck_page_is_killed_and_the_loop_goes_on(make: Callable[..., Workers]) -> None:
    workers = make(limit=3)
    ticks, longest = 0, 0.0

    async def tick() -> None:
        nonlocal ticks, longest
        while True:
            begun = time.monotonic()
            await asyncio.sleep(0.01)
            ticks += 1
            longest = max(longest, time.monotonic() - begun)

    ticking = asyncio.create_task(tick())
    with pytest.raises(TimedOut, match="too long"):
        await read(workers, STUCK)
    ticking.cancel()
    assert ticks > 30
    assert longest < 2.0
    assert page_processes() == set()


async def test_closing_twice_or_before_the_first_page_is_nothing(workers: Workers) -> None:
    await workers.aclose()
    await workers.aclose()
    assert page_processes() == set()


def test_the_process_ends_with_its_parent() -> None:
    script = (
        "import asyncio, os\n"
        "from providers.web.workers import Workers\n"
        "async def main():\n"
        "    workers = Workers()\n"
        "    await workers.extract(b'<p>hello there</p>', 'text/html', '', 'https://a.example/')\n"
        "    print(*(one._process.pid for one in workers._processes), flush=True)\n"
        "    os._exit(0)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=60)
    orphan = int(done.stdout)
    deadline = time.monotonic() + 20
    while Path(f"/proc/{orphan}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{orphan}").exists()
    assert done.stderr == ""


def serve(script: str, *pages: bytes) -> subprocess.CompletedProcess[bytes]:
    """The program that reads pages, with nobody who looks after it."""
    job = b'{"content_type": "text/html", "charset": "", "url": "https://a.example/"}'
    jobs = b"".join(FRAME.pack(len(job), len(page)) + job + page for page in pages)
    command = [sys.executable, "-c", f"from providers.web import worker; {script}"]
    return subprocess.run(command, input=jobs, capture_output=True, cwd=ROOT, timeout=100)


async def at_work(besides: int = 0) -> int:
    """The one process that has begun with a page."""
    await until(lambda: any(memory(process) > BEGUN for process in page_processes() - {besides}))
    (process,) = page_processes() - {besides}
    return process


class TestDeath:
    @pytest.mark.parametrize("run", [asyncio.run, uvloop.run])  # which tell of a closed pipe in different words
    @pytest.mark.parametrize("later", [0.0, 0.001, 0.02, 0.3])
    def test_processes_that_died_while_they_idled_cost_no_page(self, run: Callable[..., None], later: float) -> None:
        async def main() -> None:
            workers = Workers(PATIENT)
            await asyncio.gather(*(read(workers, LONG, caller) for caller in "abc"))
            idle = page_processes()
            assert len(idle) > 1
            for process in idle:
                os.kill(process, 9)
            await asyncio.sleep(later)
            assert (await read(workers)).title == "The log"
            assert page_processes().isdisjoint(idle)
            await workers.aclose()

        run(main())

    async def test_one_that_dies_over_a_page_twice_costs_that_page_and_no_other(self, workers: Workers) -> None:
        stuck = asyncio.create_task(read(workers, STUCK, "a"))
        first = await at_work()
        os.kill(first, 9)
        second = await at_work(besides=first)
        other = asyncio.create_task(read(workers, LONG, "b"))
        await until(lambda: len(page_processes() - {first, second}) == 1)
        os.kill(second, 9)
        with pytest.raises(Unavailable, match="broke its reader"):
            await stuck
        assert (await other).title == "Long"

    async def test_one_that_dies_once_costs_a_second_try_and_no_error(self, workers: Workers) -> None:
        page = asyncio.create_task(read(workers, LONG * 10, "a"))
        os.kill(await at_work(), 9)
        assert (await page).title == "Long"

    def test_one_that_holds_much_memory_makes_room_for_another(self) -> None:
        done = serve("worker._FRESH = 0; worker.serve(20)", PAGE, PAGE)
        assert (done.returncode, done.stdout.count(b'"The log"'), done.stderr) == (0, 1, b"")

    def test_one_that_nobody_ends_is_ended_by_the_time_it_has_used(self) -> None:
        done = serve("worker.serve(1)", PAGE, STUCK, PAGE)
        assert (done.returncode, done.stdout.count(b'"The log"'), done.stderr) == (-signal.SIGXCPU, 1, b"")


class TestMemory:
    async def test_a_pdf_that_grows_is_an_error_and_takes_half_a_gigabyte_at_the_most(self, workers: Workers) -> None:
        most = 0.0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max([most, *(memory(process, "VmHWM") for process in page_processes())])
                await asyncio.sleep(0.005)

        watching = asyncio.create_task(watch())
        with pytest.raises(Unavailable, match=r"broke its reader|more memory"):
            await workers.extract(pdf_bomb(), "application/pdf", "", "https://a.example/")
        watching.cancel()
        assert 100 < most < 540
        assert (await read(workers)).title == "The log"

    async def test_an_ordinary_pdf_is_read(self, workers: Workers) -> None:
        drawn = [b"BT /F1 12 Tf 10 700 Td (Page %d of the log) Tj ET" % number for number in range(300)]
        body = pdf(map(zlib.compress, drawn))
        page = await workers.extract(body, "application/pdf", "", "https://a.example/")
        cut = "[Cut short: these are the first 200 of 300 pages.]"
        assert page.text.startswith(f"{cut}\n\nPage 0 of the log\n\nPage 1 of the log")
        assert page.cut_short == cut

    async def test_a_base_of_a_megabyte_is_not_put_before_every_link(self, workers: Workers) -> None:
        link = b"<p><a href='q'>some words that lead on</a></p>"
        page = await read(workers, b"<base href='http://x.example/" + b"a" * 1_000_000 + b"/'>" + link * 20_000)
        assert page.links == ("https://a.example/q",)
        assert len(page.text) < 1_500_000


class TestTurns:
    async def test_a_hostile_caller_holds_up_no_other(self, workers: Workers) -> None:
        hostile = [asyncio.create_task(read(workers, STUCK, "mallory", str(n % 3))) for n in range(30)]
        await asyncio.sleep(0.1)
        for _ in range(3):
            assert (await read(workers, caller="alice")).title == "The log"
        assert not any(task.done() for task in hostile)
        assert len(page_processes()) <= 6
        await give_up(*hostile)

    async def test_not_even_without_names(self, make: Callable[..., Workers]) -> None:
        """Thirty requests of nobody's, each with a stuck page: whoever comes next waits for thirty short turns."""
        workers = make(quick=0.02)
        hostile = [asyncio.create_task(read(workers, STUCK, "", str(n))) for n in range(30)]
        await asyncio.sleep(0.1)
        assert (await read(workers, request="the next")).title == "The log"
        assert not any(task.done() for task in hostile)
        assert len(page_processes()) <= 6
        await give_up(*hostile)

    async def test_a_long_page_that_made_room_is_read_after_all(self, make: Callable[..., Workers]) -> None:
        workers = make(quick=0.01)
        pages = await asyncio.gather(*(read(workers, LONG, str(n)) for n in range(8)))
        assert {page.title for page in pages} == {"Long"}

    async def test_a_long_page_stays_where_nobody_waits(self, make: Callable[..., Workers]) -> None:
        workers = make(quick=0.0)
        assert (await read(workers, LONG)).title == "Long"
        (process,) = page_processes()
        assert (await read(workers, LONG)).title == "Long"
        assert page_processes() == {process}

    async def test_whoever_waits_behind_a_cancelled_page_gets_their_own(self, make: Callable[..., Workers]) -> None:
        workers = make(quick=PATIENT)
        stuck = [asyncio.create_task(read(workers, STUCK)) for _ in range(2)]
        await until(lambda: len(page_processes()) == 2)
        waiting = asyncio.create_task(read(workers))
        await asyncio.sleep(0)
        stuck[0].cancel()
        assert (await waiting).links == ("https://a.example/next",)
        assert stuck[0].cancelled()
        assert not stuck[1].done()
        await give_up(stuck[1])

    async def test_leaving_at_any_moment_loses_no_place(self, make: Callable[..., Workers]) -> None:
        workers = make(quick=0.01)
        chance = random.Random(7)
        tasks = []
        for n in range(60):
            body = chance.choice((PAGE, PAGE, LONG, STUCK))
            tasks.append(asyncio.create_task(read(workers, body, str(n % 3), str(n))))
            await asyncio.sleep(chance.uniform(0, 0.03))
            chance.choice(tasks).cancel()
        await give_up(*tasks)
        assert workers._places.unused
        assert workers._slow_places.unused
        assert page_processes() <= {process._process.pid for process in workers._idle}
        pages = await asyncio.gather(*(read(workers, caller=str(n)) for n in range(6)))
        assert {page.title for page in pages} == {"The log"}


class Mistaken(Workers):
    """It asks for what the process knows nothing of, as only a bug does."""

    async def extract(self, body: bytes, content_type: str, charset: str, url: str) -> Extracted:
        return cast(Extracted, await self._answer(_Page(body, {"task": "unknown"})))


async def test_a_bug_in_the_process_is_in_the_log_with_its_stack(caplog: pytest.LogCaptureFixture) -> None:
    workers = Mistaken()
    try:
        with pytest.raises(Unavailable, match=r"the page cannot be read \(KeyError\)"):
            await workers.extract(b"What stands on the page.", "text/html", "", "https://example.org/")
    finally:
        await workers.aclose()
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "worker.py" in record.getMessage()
    assert "What stands" not in record.getMessage()
