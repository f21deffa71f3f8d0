"""Asking in the browser: the answer as it streams, its chips, follow-ups, stopping, and what goes wrong."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.gated_model import Gate
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, call, text
from tests.fakes.page_tab import ANSWERED, NEEDS_BROWSER, ONE_LOOP, Page

pytestmark = [NEEDS_BROWSER, ONE_LOOP]

QUESTION = "Why is the sky blue?"
SEARCH = call("web_search", {"query": "sky blue"})
OPEN = call("open_page", {"url": "https://library.example/sky.md"}, id="call_2")
CITED = text("Air scatters **blue light** more ", "than red light [1]. ", "It took 4242 days [1].")
CHIP = ".turn:last-child .prose .chip"


@pytest.fixture(scope="module")
def keyed(config: dict[str, Any]) -> Iterator[Groundwire]:
    with Groundwire({**config, "server": {"keys": ["key-of-a-client"]}}) as running:
        yield running


async def opened(page: Page, proxy: Groundwire) -> None:
    await page.open(proxy)
    await page.ready()


async def test_an_answer_comes_with_its_search_and_its_sources(
    page: Page, proxy: Groundwire, model: ModelServer
) -> None:
    model.script(SEARCH, OPEN, CITED)
    await opened(page, proxy)
    assert await page.run("document.activeElement.id") == "question"
    said = await page.answer(QUESTION)
    assert said == "Air scatters blue light more than red light 1 . It took 4242 days 1 .".replace(" 1 ", "1")
    assert await page.texts(".answer strong") == ["blue light"]
    assert await page.text(".turn h2") == QUESTION
    assert await page.texts(".sources .source-title") == ["Why the sky is blue"]
    assert await page.run("document.querySelector('.sources a').href") == "https://library.example/sky.md"
    assert "m-1" in await page.text("footer .about")


async def test_a_chip_stands_right_behind_characters_that_count_twice(
    page: Page, proxy: Groundwire, model: ModelServer
) -> None:
    model.script(SEARCH, text("😀 Blue 🌌 light", " is scattered 😀😀 [1]", " more than red light."))
    await opened(page, proxy)
    assert await page.answer(QUESTION) == "😀 Blue 🌌 light is scattered 😀😀1 more than red light."


async def test_what_is_copied_has_footnotes_and_commands_that_run(
    page: Page, proxy: Groundwire, model: ModelServer
) -> None:
    model.script(SEARCH, text("It isn't green. Air scatters blue light [1]."))
    await opened(page, proxy)
    await page.run("navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve() }")
    await page.answer("Why isn't it green?")
    await page.click(".actions button:nth-child(1)")
    markdown = await page.until("window.copied")
    assert markdown.startswith(
        "# Why isn't it green?\n\nIt isn't green. Air scatters blue light[^1].\n\n[^1]: [Why the sky"
    )
    await page.run("window.copied = ''")
    await page.click(".actions button:nth-child(2)")
    model.script(text("Because."))
    ran = subprocess.run(["sh", "-c", await page.until("window.copied")], capture_output=True, text=True, timeout=30)
    assert "Because." in ran.stdout, ran
    assert model.requests[-1]["messages"][-1]["content"] == "Why isn't it green?"
    await page.run("window.copied = ''")
    await page.click(".actions button:nth-child(3)")
    program = await page.until("window.copied")
    assert f'base_url="{proxy.url}"' in program
    assert compile(program, "copied.py", "exec")


async def test_the_text_is_there_before_the_answer_ends(page: Page, proxy: Groundwire, model: ModelServer) -> None:
    gate = Gate()
    model.script(gate.turn(["The first ", "words"], [" and the last."]))
    await opened(page, proxy)
    await page.ask(QUESTION)
    try:
        await page.until("document.querySelector('.answer').innerText.includes('The first words')")
        assert await page.run("document.querySelector('.turn').ariaBusy") == "true"
        assert await page.run("document.querySelector('#send').ariaLabel") == "Stop"
    finally:
        gate.open()
    await page.until(ANSWERED)
    assert await page.text(".answer") == "The first words and the last."
    assert await page.run("document.querySelector('#send').ariaLabel") == "Ask"


async def test_a_chip_shows_its_source_to_the_pointer_and_to_the_keyboard(
    page: Page, proxy: Groundwire, model: ModelServer
) -> None:
    model.script(SEARCH, OPEN, CITED)
    await opened(page, proxy)
    await page.answer(QUESTION)
    await page.point(CHIP)
    card = await page.until("!document.querySelector('#card').hidden && document.querySelector('#card').innerText")
    assert "Why the sky is blue" in card
    assert "library.example" in card
    assert "Page read" in card
    assert "air scatters blue light more than red light" in card
    assert "Not in this source" not in card
    await page.point("h2")
    await page.until("document.querySelector('#card').hidden")
    await page.run(f"document.querySelectorAll('{CHIP}')[0].focus()")
    await page.press("Tab")
    card = await page.until("!document.querySelector('#card').hidden && document.querySelector('#card').innerText")
    assert "Not in this source: 4242" in card
    assert await page.run("document.activeElement.getAttribute('aria-describedby')") == "card"
    assert await page.run("document.activeElement.ariaLabel") == "Source 1: Why the sky is blue"
    await page.press("Escape")
    assert await page.run("document.querySelector('#card').hidden")


async def test_a_tap_shows_the_card_and_leads_nowhere(page: Page, proxy: Groundwire, model: ModelServer) -> None:
    model.script(SEARCH, CITED)
    await opened(page, proxy)
    await page.answer(QUESTION)
    await page.look(width=360, height=740)
    await page.tap(CHIP)
    card = await page.until("!document.querySelector('#card').hidden && document.querySelector('#card').innerText")
    assert "Page read" in card
    box = await page.run(
        "(b => [b.left >= 0, b.right <= innerWidth])(document.querySelector('#card').getBoundingClientRect())"
    )
    assert box == [True, True]
    await page.tap("h2")
    await page.until("document.querySelector('#card').hidden")


async def test_a_follow_up_goes_on_with_the_conversation(page: Page, proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."), text("At night it is black."))
    await opened(page, proxy)
    await page.answer(QUESTION)
    assert await page.answer("And at night?") == "At night it is black."
    said = [message["content"] for message in model.requests[-1]["messages"]]
    assert said[-3:] == [QUESTION, "Blue.", "And at night?"]
    assert await page.count(".turn") == 2
    await page.click("#new")
    assert await page.count(".turn") == 0
    await page.answer("A new one?")
    assert [message["content"] for message in model.requests[-1]["messages"]][-1:] == ["A new one?"]


# To the server every answer of before is unknown, as to one that was started again.
FORGET = """window.fetch = (real => (path, options = {}) => real(path, {
  ...options, body: options.body?.replace(/"resp_\\w+"/, `"resp_${"0".repeat(32)}"`),
}))(window.fetch)"""


async def test_a_follow_up_to_an_answer_that_is_forgotten_tells_it_again(
    page: Page, proxy: Groundwire, model: ModelServer
) -> None:
    model.script(text("Blue."), text("Black."))
    await opened(page, proxy)
    await page.answer(QUESTION)
    await page.run(FORGET)
    assert await page.answer("And at night?") == "Black."
    said = [message["content"] for message in model.requests[-1]["messages"]]
    assert said[-3:] == [QUESTION, "Blue.", "And at night?"]


async def test_stopping_ends_the_work_upstream(page: Page, proxy: Groundwire, model: ModelServer) -> None:
    gate = Gate()
    model.script(gate.turn(["So far"], [" and no further."]))
    await opened(page, proxy)
    await page.ask(QUESTION)
    await page.until("document.querySelector('.answer').innerText.includes('So far')")
    await page.press("Escape")
    await page.until(ANSWERED)
    assert model.left.wait(10)
    gate.open()
    assert await page.text(".note") == "Stopped."
    assert await page.text(".answer") == "So far"
    model.script(text("It goes on."))
    assert await page.answer("And then?") == "It goes on."
    said = [message["content"] for message in model.requests[-1]["messages"]]
    assert said[-3:] == [QUESTION, "So far", "And then?"]


async def test_shift_and_enter_make_a_new_line_and_a_slash_leads_back(
    page: Page, proxy: Groundwire, model: ModelServer
) -> None:
    model.script(text("Yes."))
    await opened(page, proxy)
    await page.run("document.querySelector('nav a').focus()")
    await page.press("/")
    assert await page.run("[document.activeElement.id, document.activeElement.value]") == ["question", ""]
    await page.write("One")
    await page.press("Enter", shift=True)
    await page.write("two?")
    assert await page.run("document.querySelector('#question').value") == "One\ntwo?"
    await page.press("Enter")
    await page.until(ANSWERED)
    assert model.requests[-1]["messages"][-1]["content"] == "One\ntwo?"


@pytest.mark.parametrize("choice", ["on", "off"])
async def test_the_search_mode_is_sent(page: Page, proxy: Groundwire, model: ModelServer, choice: str) -> None:
    model.script(text("Yes."))
    await opened(page, proxy)
    await page.run(f"document.querySelector('input[value={choice}]').click()")
    await page.answer(QUESTION)
    assert ("tools" in model.requests[-1]) == (choice == "on")
    why = await page.text(".note")
    assert why.startswith("Why did it not search?")
    assert f"X-Groundwire-Search: {choice}" in why


async def test_an_error_says_what_to_do(page: Page, proxy: Groundwire, model: ModelServer) -> None:
    error = b'{"error": {"message": "The model is not loaded.", "type": "server_error", "code": "not_loaded"}}'
    model.script(Turn(status=500, body=error))
    await opened(page, proxy)
    await page.ask(QUESTION)
    shown = await page.until("document.querySelector('.error[role=alert]')?.innerText")
    assert "The model is not loaded." in shown
    assert "Status 500" in shown
    assert "req_" in shown
    model.script(text("Now it is."))
    await page.click(".error button")
    await page.until(f"{ANSWERED} && document.querySelectorAll('.turn').length === 2")
    assert await page.text(".turn:last-child .answer") == "Now it is."


async def test_an_answer_that_breaks_off_says_so_and_keeps_what_came(
    page: Page, proxy: Groundwire, model: ModelServer
) -> None:
    model.script(text("Half of", end="reset", finish=None, usage=None))
    await opened(page, proxy)
    await page.ask(QUESTION)
    await page.until("document.querySelector('.error[role=alert]')")
    assert await page.text(".answer") == "Half of"


async def test_thinking_is_shown_folded(page: Page, proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue.", reasoning=["Let me ", "think."]))
    await opened(page, proxy)
    assert await page.answer(QUESTION) == "Blue."
    assert not await page.run("document.querySelector('.thinking').open")
    await page.click(".thinking summary")
    assert await page.text(".thoughts") == "Let me think."


async def test_a_key_is_asked_for_and_kept_in_memory_alone(page: Page, keyed: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    await page.open(keyed)
    await page.until("document.querySelector('dialog').open")
    await page.type("a-wrong-key")
    await page.until("document.querySelector('#key-why').textContent.includes('not known')")
    await page.type("key-of-a-client")
    await page.ready()
    assert await page.answer(QUESTION) == "Blue."
    kept = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
    assert "key-of-a-client" not in await page.run(kept)
    assert "key-of-a-client" not in await page.run(
        "document.documentElement.outerHTML + document.querySelector('#key').value"
    )
    assert await page.run("indexedDB.databases().then(all => all.length)") == 0
    copied = await page.run(
        "import('/page/copy.js').then(m => m.asCurl({body: {model: 'm', input: 'x'}, search: 'on'}))"
    )
    assert "$GROUNDWIRE_KEY" in copied


async def test_without_a_key_the_page_says_what_is_missing(page: Page, keyed: Groundwire) -> None:
    await page.open(keyed)
    await page.until("document.querySelector('dialog').open")
    await page.press("Escape")
    assert "key" in await page.until("document.querySelector('#notice').innerText")
