"""A tab of a real, headless Chromium, for looking at pages as a person does. Handed an address, it shows it; keys are
pressed and things pointed at; scripts are run in the page, and waiting is done there, for something to appear. What the
browser tells meanwhile (requests, errors) is kept.
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
KEYS = {"Enter": ("\r", 13), "Escape": ("", 27), "Tab": ("", 9), "ArrowRight": ("", 39)}  # text, code
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
        self.told: list[tuple[str, dict[str, Any]]] = []  # by the browser, of its own accord
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

    async def listen(self) -> None:
        """From now on every request and every error of a page is told."""
        for domain in ("Network", "Runtime", "Log"):
            await self._call(f"{domain}.enable")

    async def heard(self, method: str) -> list[dict[str, Any]]:
        """All that was told under this name until now."""
        await self.run("null")  # what was told before this is answered
        return [told for name, told in self.told if name == method]

    async def look(self, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """As on a screen of this size, in this colour scheme; a narrow one is a phone's."""
        mobile = width < 600
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        await self._call("Emulation.setDeviceMetricsOverride", **size)
        await self._call("Emulation.setTouchEmulationEnabled", enabled=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self._call("Emulation.setEmulatedMedia", features=[scheme])

    async def bypass_policy(self, enabled: bool) -> None:
        """What a test puts into a page is held back by no policy of that page's."""
        await self._call("Page.setBypassCSP", enabled=enabled)

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
        await self.write(words)
        await self.press("Enter")

    async def write(self, words: str) -> None:
        await self._call("Input.insertText", text=words)

    async def press(self, key: str, *, shift: bool = False) -> None:
        text, code = KEYS.get(key, (key, ord(key.upper()) if len(key) == 1 else 0))
        pressed = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 * shift}
        await self._call("Input.dispatchKeyEvent", type="keyDown", **pressed, **({"text": text} if text else {}))
        await self._call("Input.dispatchKeyEvent", type="keyUp", **pressed)

    async def point(self, selector: str) -> None:
        """The mouse, at the middle of what this finds."""
        await self._call("Input.dispatchMouseEvent", type="mouseMoved", **await self._middle(selector))

    async def click(self, selector: str) -> None:
        at = await self._middle(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            await self._call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    async def tap(self, selector: str) -> None:
        at = await self._middle(selector)
        await self._call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[at])
        await self._call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    async def _middle(self, selector: str) -> dict[str, float]:
        found = f"document.querySelector({json.dumps(selector)})"
        script = "(found => { found.scrollIntoView({block: 'center'}); const box = found.getBoundingClientRect();"
        script += f" return {{x: box.x + box.width / 2, y: box.y + box.height / 2}} }})({found})"
        at: dict[str, float] = await self.run(script)
        return at

    async def picture(self, path: Path) -> None:
        said = await self._call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(said["data"]))

    async def _call(self, method: str, **parameters: Any) -> Any:
        self._calls += 1
        await self._socket.send_str(json.dumps({"id": self._calls, "method": method, "params": parameters}))
        call = self._calls
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" not in said:
                self.told.append((said["method"], said["params"]))
            elif said["id"] == call:
                assert "error" not in said, said["error"]
                return said["result"]
        raise AssertionError("the browser hung up")
