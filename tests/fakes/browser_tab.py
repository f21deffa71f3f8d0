"""A tab of a real, headless Chromium, for looking at pages as a person does. Handed an address, it shows it; scripts
are run in the page, and waiting is done there, for something to appear.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

import aiohttp

FLAGS = (
    *("--headless=new", "--disable-gpu", "--no-sandbox", "--disable-dev-shm-usage", "--no-first-run"),
    *("--remote-debugging-port=0", "--window-size=1200,900", "--disable-background-networking", "about:blank"),
)
# Resolves with what an expression gives as soon as it gives something; looks again whenever the page changes.
UNTIL = """new Promise((found, failed) => {
  const look = () => { try { return (%s); } catch (error) { return null; } };
  const first = look();
  if (first) { found(first); return; }
  const watch = new MutationObserver(() => { const seen = look(); if (seen) { watch.disconnect(); found(seen); } });
  watch.observe(document, {subtree: true, childList: true, characterData: true, attributes: true});
  setTimeout(() => failed(new Error("not seen: " + document.body.innerText.slice(-2000))), %d);
})"""


class BrowserTab:
    async def __aenter__(self) -> Self:
        program = shutil.which("chromium")
        assert program, "chromium is not installed"
        self._folder = tempfile.TemporaryDirectory(prefix="groundwire-tab-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [program, f"--user-data-dir={self._folder.name}", *FLAGS], stderr=subprocess.PIPE, text=True
        )
        assert self._process.stderr is not None
        address = next(line.split()[-1] for line in self._process.stderr if "DevTools listening on" in line)
        self._client = aiohttp.ClientSession()
        root = "http://" + address.split("/")[2]
        async with self._client.get(root + "/json/list") as listed:
            pages = [page for page in await listed.json() if page["type"] == "page"]
        self._socket = await self._client.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0)
        self._calls = 0
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._socket.close()
        await self._client.close()
        self._process.terminate()
        self._process.wait(10)
        assert self._process.stderr is not None
        self._process.stderr.close()
        self._folder.cleanup()

    async def show(self, url: str) -> None:
        await self._call("Page.enable")
        await self._call("Page.navigate", url=url)

    async def run(self, script: str) -> Any:
        """What the script gives; of a promise, what that gives."""
        said = await self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in said, said["exceptionDetails"].get("exception", said)["description"]
        return said["result"].get("value")

    async def until(self, expression: str, seconds: int = 60) -> Any:
        """What an expression gives, as soon as it gives something; the page may move on to another meanwhile."""
        end = time.monotonic() + seconds
        while True:
            try:
                left = max(1, int(end - time.monotonic()))
                return await asyncio.wait_for(self.run(UNTIL % (expression, left * 1000)), 5)
            except (TimeoutError, AssertionError):
                if time.monotonic() > end:
                    raise

    async def type(self, words: str) -> None:
        """As from the keyboard, into what has the focus; then Enter."""
        await self._call("Input.insertText", text=words)
        for kind in ("keyDown", "keyUp"):
            key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
            await self._call("Input.dispatchKeyEvent", type=kind, **key)

    async def picture(self, path: Path) -> None:
        said = await self._call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(said["data"]))

    async def _call(self, method: str, **parameters: Any) -> Any:
        self._calls += 1
        await self._socket.send_str(json.dumps({"id": self._calls, "method": method, "params": parameters}))
        call = self._calls
        async for message in self._socket:
            said = json.loads(message.data)
            if said.get("id") == call:
                assert "error" not in said, said["error"]
                return said["result"]
        raise AssertionError("the browser hung up")
