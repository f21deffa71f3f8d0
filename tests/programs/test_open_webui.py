"""A real Open WebUI in a real browser: two turns of a conversation, and the chips that a reader sees in them."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.fakes.browser_tab import BrowserTab
from tests.fakes.eager_model import EagerModel
from tests.fakes.groundwire import Groundwire
from tests.programs.conftest import ROOT, SEA, SKY

PROGRAM = ROOT / ".venv-webui/bin/open-webui"
PICTURES = os.environ.get("GROUNDWIRE_PICTURES")  # a folder, for who wants to see it


@pytest.fixture(scope="module")
def webui(proxy: Groundwire, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("open-webui")
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "DATA_DIR": str(folder / "data"),
        "WEBUI_AUTH": "False",
        "WEBUI_SECRET_KEY": "x",
        "OPENAI_API_BASE_URL": proxy.url,
        "OPENAI_API_KEY": "x",
        "ENABLE_OLLAMA_API": "False",
        "OFFLINE_MODE": "True",
        "HF_HUB_OFFLINE": "1",
        "RAG_EMBEDDING_ENGINE": "openai",
    }
    command = [str(PROGRAM), "serve", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=env, cwd=folder, stdout=log, stderr=log)
    try:
        _await_health(f"http://127.0.0.1:{port}/health", process, folder / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def _await_health(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 240
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx.get(url, timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    raise AssertionError(log.read_text()[-3000:])


READY = "location.pathname === '/' && document.querySelector('#chat-input') && document.querySelector('[role=dialog]')"
NEWS = (
    "[...document.querySelectorAll('[role=dialog] button')].find(button => button.innerText.startsWith('Okay')).click()"
)
CHIPS = """[...document.querySelectorAll('.chat-assistant')].map(answer =>
  [...answer.querySelectorAll('.markdown-prose button[aria-label^="View source"]')].map(chip => chip.innerText))"""
LINKS = """[...document.querySelectorAll('.chat-assistant .markdown-prose a')].map(link => link.href)"""
SKY_CHIP, SEA_CHIP = "Why the sky is blue", "Why the sea is salty"


async def ask(tab: BrowserTab, words: str, chips: int) -> None:
    """Types a question, and waits for as many chips as the page should then hold."""
    await tab.run("document.querySelector('#chat-input').focus()")
    await tab.type(words)
    await tab.until(f"{CHIPS}.flat().length === {chips}")


async def test_the_chips_name_the_sources_that_were_cited(webui: str, model: EagerModel) -> None:
    model.script()
    async with BrowserTab() as tab:
        await tab.show(f"{webui}/?models=m")
        await tab.until(READY)
        await tab.run(NEWS)
        await tab.until("!document.querySelector('[role=dialog]')")
        await ask(tab, "Why is the sea salty?", 3)
        await ask(tab, "Why is the sky blue?", 4)
        assert await tab.run(CHIPS) == [[SKY_CHIP, SKY_CHIP, SEA_CHIP], [SKY_CHIP]]
        assert await tab.run(LINKS) == [SKY, SKY, SEA, SKY]
        if PICTURES:
            await tab.picture(Path(PICTURES) / "open-webui.png")
    housekeeping = [body for body in model.requests if "### Task:" in str(body["messages"][-1]["content"])]
    assert housekeeping
    assert not any(body.get("tools") for body in housekeeping), "titles, tags and follow-ups are not searched"
