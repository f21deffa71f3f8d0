"""The page at `/` in a real browser, as a person finds it. Handed a server; asks, waits, tells what is to be seen."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from tests.fakes.browser_tab import BrowserTab
from tests.fakes.groundwire import Groundwire

NEEDS_BROWSER = pytest.mark.skipif(not shutil.which("chromium"), reason="no Chromium here; .ci/run installs Debian's")
ONE_LOOP = pytest.mark.asyncio(loop_scope="module")
ANSWERED = "document.querySelector('.turn:last-child[aria-busy=false]')"


class Page(BrowserTab):
    """The page of one server. It must neither fail in its scripts nor want anything that its policy forbids."""

    async def open(self, proxy: Groundwire, at: str = "") -> None:
        await self.show("about:blank")
        self.told.clear()
        await self.listen()
        await self.look()
        self.root = proxy.root
        await self.show(f"{proxy.root}/{at}")
        await self.until("document.querySelector('nav a[aria-current]')")

    async def ready(self) -> None:
        await self.until("document.querySelector('#model').options.length")

    async def ask(self, question: str) -> None:
        await self.run("document.querySelector('#question').focus()")
        await self.type(question)

    async def answer(self, question: str) -> str:
        """Asks, waits for the end, and hands on the text of the answer."""
        await self.ask(question)
        await self.until(ANSWERED)
        return await self.text(".turn:last-child .answer")

    async def text(self, selector: str) -> str:
        return str(await self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    async def texts(self, selector: str) -> list[str]:
        found: list[str] = await self.run(
            f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.innerText)"
        )
        return found

    async def count(self, selector: str) -> int:
        return int(await self.run(f"document.querySelectorAll({json.dumps(selector)}).length"))

    async def problems(self) -> list[Any]:
        """What its scripts threw, and what its policy refused."""
        thrown = await self.heard("Runtime.exceptionThrown")
        logged = [told["entry"] for told in await self.heard("Log.entryAdded")]
        return thrown + [entry for entry in logged if "Content Security Policy" in entry["text"]]

    async def strangers(self) -> list[str]:
        """Requests to anybody but its own server."""
        sent = [told["request"]["url"] for told in await self.heard("Network.requestWillBeSent")]
        return [url for url in sent if not url.startswith((self.root, "about:"))]
