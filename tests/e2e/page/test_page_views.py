"""The page's three views as people look at them: a search that fails, the last requests, health, on a phone, in the
dark, with a screen reader's eyes (axe-core), and under a long answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.fakes.gated_model import Gate
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, call, text
from tests.fakes.page_tab import ANSWERED, NEEDS_BROWSER, ONE_LOOP, Page

pytestmark = [NEEDS_BROWSER, ONE_LOOP]

AXE = Path(__file__).resolve().parents[2] / "clients/node/node_modules/axe-core/axe.min.js"
NOBODY = "http://127.0.0.1:9"  # where no search engine listens
SEARCH = call("web_search", {"query": "sky blue"})
OPEN = call("open_page", {"url": "https://library.example/sky.md"}, id="call_2")
WIDE = "| " + " | ".join(f"column {n}" for n in range(12)) + " |\n" + "|---" * 12 + "|\n" + "| some words " * 12 + "|\n"
RICH = text(
    "## Why it is blue\n\nAir scatters **blue light** more than red light [1].\n\n",
    "- one `item`\n  1. inside\n\n> quoted\n\n",
    f"{WIDE}\n```python\n{'long_name = ' * 20}1\n```\n\nIt took 4242 days [1]. {'https://an.example/' + 'a' * 300}\n",
    reasoning=["Let me think."],
)


@pytest.fixture(scope="module")
def failing(config: dict[str, Any]) -> Iterator[Groundwire]:
    """The first search engine is not there; the second stands in for it."""
    gone = {"name": "gone", "type": "searxng", "base_url": NOBODY, "private": False}
    with Groundwire({**config, "providers": [gone, *config["providers"]]}) as running:
        yield running


@pytest.fixture(scope="module")
def keyed(config: dict[str, Any]) -> Iterator[Groundwire]:
    keys = [{"name": "ann", "key": "key-of-a-client"}, {"name": "boss", "key": "an-admin-key", "admin": True}]
    with Groundwire({**config, "server": {"keys": keys}}) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def asked(page: Page, failing: Groundwire, model: ModelServer) -> Page:
    """The page of that server, with one answer."""
    model.script(SEARCH, OPEN, RICH)
    await page.open(failing)
    await page.ready()
    await page.answer("Why is the sky blue?")
    return page


async def listed(page: Page) -> list[str]:
    await page.run("location.hash = '#requests'")
    await page.until("document.querySelector('.rows')")
    return await page.texts(".rows tbody tr")


async def test_the_search_is_shown_with_who_failed_and_how_long_each_took(asked: Page) -> None:
    first, second = await asked.texts(".steps li")
    assert "sky blue" in first
    assert "gone: does not answer after" in first
    assert re.search(r"library · 1 result · (?:\d+ ms|from cache)", first)
    assert "library.example/sky.md" in second
    assert await asked.count(".steps [data-state=done]") == 2
    assert "1 search · 1 page" in await asked.text("footer .about")


async def test_a_request_with_a_failed_search_opens_to_its_steps(asked: Page) -> None:
    await asked.click("footer .about a")
    await asked.until("document.querySelector('.waterfall')")
    assert (await asked.run("location.hash")).startswith("#requests/req_")
    (failed,) = await asked.texts(".waterfall .failed .step-text")
    assert failed == "gone: does not answer"
    steps = await asked.texts(".waterfall .step-text")
    assert any(step.startswith("library · 1 result") for step in steps)
    assert any(step.startswith("Search: offered") for step in steps)
    widths = await asked.run(
        "[...document.querySelectorAll('.bar')].every(bar => bar.getBoundingClientRect().width >= 3)"
    )
    assert widths
    assert "sky blue" not in await asked.text("#request"), "contents are shown only where `log.contents` says so"
    rows = await listed(asked)
    assert "1 × library + 1 read" in rows[0]
    assert "1 failed" in rows[0]


async def test_why_it_did_not_search_is_said_in_words(page: Page, failing: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    await page.open(failing)
    await page.ready()
    await page.run("document.querySelector('input[value=off]').click()")
    await page.answer("Why?")
    assert "X-Groundwire-Search: off" in await page.text(".note")
    rows = await listed(page)
    assert "\toff\t" in rows[0]
    await page.run("document.querySelector('.rows a').focus()")
    await page.press("Enter")
    why = await page.until("document.querySelector('#request .note')?.innerText")
    assert why.startswith("Why did it not search?")
    assert "wants no search" in why


async def test_requests_are_filtered_and_fetched_again(page: Page, failing: Groundwire, model: ModelServer) -> None:
    await page.open(failing, "#requests")
    await page.until("document.querySelector('#requests-count').innerText")
    before = int(await page.text("#requests-count"))
    model.script(text("Blue."))
    said = {"model": "vendor/m", "messages": [{"role": "user", "content": "Hello"}]}
    assert httpx.post(f"{failing.url}/chat/completions", json=said, timeout=20).status_code == 200
    await page.click("#requests-refresh")
    await page.until(f"document.querySelector('#requests-count').innerText === '{before + 1}'")
    await page.click("#requests-filter")
    await page.write("VENDOR/M")
    await page.until(f"document.querySelector('#requests-count').innerText === '1 of {before + 1}'")
    assert await page.count(".rows tbody tr") == 1
    await page.write(" nothing like it")
    assert await page.until("document.querySelector('.nothing')?.innerText") == "No request matches the filter."


async def test_a_failed_request_shows_its_outcome(page: Page, failing: Groundwire, model: ModelServer) -> None:
    model.script(Turn(status=400, body=b'{"error": {"message": "No."}}'))
    said = {"model": "m", "input": "Hello"}
    assert httpx.post(f"{failing.url}/responses", json=said, timeout=20).status_code == 400
    await page.open(failing, "#requests")
    await page.until("document.querySelector('.rows')")
    assert await page.count(".rows tbody tr:first-child .tag.bad") == 1
    await page.show(f"{failing.root}/#requests/req_that_is_not_there")
    assert "200" in await page.until("document.querySelector('#request .error')?.innerText")


async def test_only_an_admin_sees_requests_and_health(page: Page, keyed: Groundwire) -> None:
    for view in ("requests", "health"):
        await page.open(keyed, f"#{view}")
        await page.until("document.querySelector('dialog').open")
        await page.type("key-of-a-client")
        said = await page.until(f"document.querySelector('#{view} .error')?.innerText")
        assert "admin: true" in said
    await page.open(keyed, "#health")
    await page.until("document.querySelector('dialog').open")
    await page.type("an-admin-key")
    await page.until("document.querySelector('.cards')")


async def test_health_shows_providers_models_cache_and_index(asked: Page) -> None:
    await asked.run("location.hash = '#health'")
    await asked.until("document.querySelector('.cards')")
    cards = await asked.texts(".cards li")
    gone = next(card for card in cards if card.startswith("gone"))
    library = next(card for card in cards if card.startswith("library"))
    assert "does not answer" in gone
    assert "For searching and reading pages" in library
    assert "3 documents" in library
    assert any(card.startswith("scripted") and "Last answer" in card for card in cards)
    assert any(card.startswith("Searches") and "%" in card for card in cards)


VIEWS = ["#ask", "#requests", "a request", "#health", "the key prompt"]


async def go(page: Page, view: str) -> None:
    if view == "the key prompt":
        await page.run("document.querySelector('#key-dialog').showModal()")
    elif view == "a request":
        await listed(page)
        await page.run("document.querySelector('.rows a').click()")
        await page.until("document.querySelector('.waterfall')")
    else:
        await page.run(f"location.hash = '{view}'")
        loaded = {"#ask": ".turn", "#requests": ".rows", "#health": ".cards"}
        await page.until(f"document.querySelector('{view} {loaded[view]}')")


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not here: `make test` brings it where node is")
async def test_axe_finds_nothing_serious(asked: Page) -> None:
    """In every view, light and dark, wide and narrow; with a chip's card open too."""
    await asked.run(AXE.read_text(encoding="utf-8") + "\nnull")
    found = []
    for view in VIEWS:
        await go(asked, view)
        if view == "#ask":
            await asked.run("document.querySelector('.prose .chip').focus()")
        for dark in (False, True):
            for width in (1200, 360):
                await asked.look(dark=dark, width=width)
                said = await asked.run(
                    "axe.run().then(({violations}) => violations.map(({id, impact, nodes}) => "
                    "[id, impact, nodes.map(({html, failureSummary}) => html.slice(0, 200) + failureSummary)]))"
                )
                found += [(view, dark, width, *each) for each in said if each[1] in ("serious", "critical")]
    assert found == []


async def test_nothing_is_wider_than_a_phone(asked: Page) -> None:
    for view in VIEWS:
        await go(asked, view)
        await asked.look(width=360, height=740)
        assert await asked.run("document.documentElement.scrollWidth") <= 360, view
        if view == "#ask":
            wider = "[...document.querySelectorAll('.wide, pre')].map(e => e.scrollWidth > e.clientWidth)"
            assert await asked.run(wider) == [True, True], "these scroll for themselves"


async def test_it_is_dark_where_the_reader_wants_it_dark(asked: Page) -> None:
    shades = []
    for dark in (False, True):
        await asked.look(dark=dark)
        colours = await asked.run("(s => [s.backgroundColor, s.color])(getComputedStyle(document.body))")
        shades.append([sum(map(int, json.loads(f"[{colour[4:-1]}]"))) for colour in colours])
    (paper, ink), (dark_paper, dark_ink) = shades
    assert paper > 700 > 150 > ink
    assert dark_paper < 150 < 600 < dark_ink


async def test_every_control_is_reached_by_the_keyboard_and_shows_its_focus(asked: Page) -> None:
    await asked.run("document.querySelector('.brand').focus()")
    reached = []
    for _ in range(40):
        await asked.press("Tab")
        reached.append(await asked.run("(e => e.id || e.className || e.textContent)(document.activeElement)"))
        if reached[-1] == "send":
            break
    assert reached[:3] == ["Ask", "Requests", "Health"]
    assert {"chip", "wide", "quiet", "question", "model", "new", "send"} <= set(reached)
    shown = await asked.run("getComputedStyle(document.activeElement).outlineStyle")
    assert shown == "solid"


async def test_the_page_stays_alive_under_a_long_answer(page: Page, failing: Groundwire, model: ModelServer) -> None:
    """200 kB in 4,000 pieces; before the last of them somebody types, and all that came is there."""
    part = "The sky is **blue** because air scatters it. "
    gate = Gate()
    model.script(gate.turn([f"{part * 2}\n\n" if n % 9 == 0 else part for n in range(4000)], ["The end."]))
    await page.open(failing)
    await page.ready()
    await page.ask("Why?")
    try:
        await page.until("document.querySelector('.answer').textContent.length > 170000", 100)
        await page.write("Meanwhile")
        assert await page.run("document.querySelector('#question').value") == "Meanwhile"
    finally:
        gate.open()
    await page.until(ANSWERED)
    assert (await page.text(".answer")).endswith("The end.")
