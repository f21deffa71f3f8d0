"""A Chromium that renders pages for us and never touches the network itself. Handed a URL, hands on the HTML that its
scripts have made.

Why so: a browser resolves names and follows redirects as it likes, so no check of ours would hold for what it dials.
Here every request that a page makes is answered from our own guarded fetcher, over the DevTools protocol, and the
browser's own way out is a proxy that nobody serves. Only GET is answered: reading a page must change nothing.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shutil
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import orjson

from ..deadlines import time_limit
from ..errors import ProgramFailed, ProviderError, TimedOut
from ..places import Places
from .http import Fetched, Fetcher

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = (
    "--headless=new",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--mute-audio",
    "--blink-settings=imagesEnabled=false",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    # A fresh profile without cookies has no secrets that one site could steal from another, and the fetcher hands on
    # no headers by which a site would allow it.
    "--disable-web-security",
    "--remote-debugging-port=0",
)
# Whatever does not pass through DevTools, WebSockets for example, goes to a port that nobody serves.
_NO_WAY_OUT = {"proxyServer": "http://127.0.0.1:1", "proxyBypassList": "<-loopback>", "disposeOnDetach": True}
_SKIPPED = frozenset({"Image", "Media", "Font", "TextTrack", "Manifest", "Prefetch", "Ping", "CSPViolationReport"})
_START_LIMIT = 20.0
_QUIET = 0.5  # seconds without a request after which a page counts as done
_MOST_REQUESTS = 200  # of one page
_MOST_FETCHES = 8  # of one page at once
_MOST_PAGES = 4  # at once
_LONGEST_MESSAGE = 32 << 20
_LAST_LOOK = 8.0  # seconds for handing over what there is
# The page as it is shown: what stands in shadow roots is part of it. Cut off, or a page could fill our memory.
_SHOWN = """(() => {
  const flatten = root => { for (const host of root.querySelectorAll("*")) if (host.shadowRoot) {
    flatten(host.shadowRoot);
    const shown = document.createElement("div");
    shown.innerHTML = host.shadowRoot.innerHTML;
    host.prepend(shown);
  } };
  flatten(document);
  return document.documentElement.outerHTML.slice(0, 4000000);
})()"""
_LISTENING = re.compile(rb"DevTools listening on (ws://\S+)")

Json = dict[str, Any]
Listener = Callable[[str, Json], None]


class _NeverRests(Exception):
    """A page whose scripts go on for longer than anybody waits."""


class Browser:
    """`address` is the DevTools address of a Chromium that is already there; without one we start our own."""

    def __init__(self, fetcher: Fetcher, *, program: str = "", address: str = "") -> None:
        self._fetcher = fetcher
        self._program = program
        self._address = address
        self._process: asyncio.subprocess.Process | None = None
        self._profile: tempfile.TemporaryDirectory[str] | None = None
        self._tools: _DevTools | None = None
        self._starting = asyncio.Lock()
        self._places = Places(_MOST_PAGES, most_of_caller=_MOST_PAGES - 1, most_of_request=_MOST_PAGES - 2)

    async def render(self, document: Fetched, limit: float) -> str:
        """The page's HTML after its scripts have run; what they have made by the time limit, if they never rest."""
        async with self._places.place():
            tools = await self._ready()
            async with _tab(tools) as session:
                # A public page may not look into our network, nor carry out what it would find there.
                page = _Page(tools, session, self._fetcher.for_parts_of(document), document)
                with suppress(_NeverRests):
                    async with time_limit(limit, _NeverRests()):
                        await page.load()
                return await page.html()

    async def aclose(self) -> None:
        if self._tools:
            await self._tools.aclose()
        if self._process and self._process.returncode is None:
            self._process.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await self._process.wait()
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()
        if self._profile:
            self._profile.cleanup()
        self._tools = self._process = self._profile = None

    async def _ready(self) -> _DevTools:
        async with self._starting:
            if self._tools is None or self._tools.closed:
                await self.aclose()
                try:
                    async with asyncio.timeout(_START_LIMIT):
                        self._tools = await _DevTools.connect(await self._find(), await self._fetcher.certificates())
                except (OSError, aiohttp.ClientError, TimeoutError) as error:
                    await self.aclose()
                    raise ProgramFailed(f"Chromium cannot be reached ({type(error).__name__})") from error
            return self._tools

    async def _find(self) -> str:
        """The WebSocket address of the browser, ours or the one we were given."""
        if self._address:
            if self._address.startswith(("ws://", "wss://")):
                return self._address
            certificates = await self._fetcher.certificates()
            async with (
                aiohttp.ClientSession() as client,
                client.get(f"{self._address}/json/version", ssl=certificates) as answer,
            ):
                return str((await answer.json(content_type=None))["webSocketDebuggerUrl"])
        program = self._program or next(filter(None, map(shutil.which, PROGRAMS)), "")
        if not program:
            advice = "install it (Debian: chromium), or set cdp_url to a running one"
            raise ProgramFailed("no Chromium is installed", advice=advice)
        self._profile = tempfile.TemporaryDirectory(prefix="groundwire-chromium-", ignore_cleanup_errors=True)
        flags = [*_FLAGS, f"--user-data-dir={self._profile.name}"]
        if os.geteuid() == 0:  # Chromium does not start as root with its sandbox
            flags.append("--no-sandbox")
        self._process = await asyncio.create_subprocess_exec(
            program, *flags, "about:blank", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            if found := _LISTENING.search(line):
                self._silence = asyncio.create_task(_drain(self._process.stderr))
                return found[1].decode()
        raise ProgramFailed("Chromium ended before it was ready")


async def _drain(stream: asyncio.StreamReader) -> None:
    """Chromium talks to its terminal all day; a full pipe would stop it."""
    while await stream.read(65536):
        pass


@asynccontextmanager
async def _tab(tools: _DevTools) -> AsyncIterator[str]:
    """A tab in a profile of its own, thrown away with all it holds."""
    context = (await tools.call("Target.createBrowserContext", _NO_WAY_OUT))["browserContextId"]
    session = ""
    try:
        wanted = {"url": "about:blank", "browserContextId": context}
        target = (await tools.call("Target.createTarget", wanted))["targetId"]
        attached = await tools.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        session = attached["sessionId"]
        yield session
    finally:
        tools.forget(context, session)


class _Page:
    """One page being loaded: answers its requests, and knows when it has come to rest."""

    def __init__(self, tools: _DevTools, session: str, fetcher: Fetcher, document: Fetched) -> None:
        self._tools = tools
        self._session = session
        self._fetcher = fetcher
        self._document = document
        self._asked = 0
        self._loaded = False
        self._fetching = asyncio.Semaphore(_MOST_FETCHES)
        self._moved = asyncio.Event()  # something happened: the time of rest begins anew
        self._answering: set[asyncio.Task[None]] = set()

    async def load(self) -> None:
        self._tools.listen(self._session, self._on_event)
        try:
            await self._call("Page.enable")
            await self._call("Fetch.enable", {"patterns": [{"urlPattern": "*"}]})
            await self._call("Page.navigate", {"url": self._document.url})
            while not (self._loaded and not self._answering and await self._rests()):
                self._moved.clear()
                await self._moved.wait()
        finally:
            for task in self._answering:
                task.cancel()

    async def html(self) -> str:
        wanted = {"expression": _SHOWN, "returnByValue": True}
        async with time_limit(_LAST_LOOK, TimedOut("the page's scripts never let go")):
            answer = await self._call("Runtime.evaluate", wanted)
        return str(answer["result"].get("value") or "")

    async def _rests(self) -> bool:
        self._moved.clear()
        try:
            async with asyncio.timeout(_QUIET):
                await self._moved.wait()
        except TimeoutError:
            return True
        return False

    def _on_event(self, method: str, event: Json) -> None:
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Fetch.requestPaused":
            self._begin(self._answer(event))
        elif method == "Page.javascriptDialogOpening":  # nobody is there to click it away
            self._begin(self._dismiss())
        else:
            return
        self._moved.set()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._answering.add(task)
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answering.discard(task)
        self._moved.set()

    async def _dismiss(self) -> None:
        with suppress(ProgramFailed):  # it may have gone by itself
            await self._call("Page.handleJavaScriptDialog", {"accept": False})

    async def _answer(self, event: Json) -> None:
        request_id, request, kind = event["requestId"], event["request"], event["resourceType"]
        self._asked += 1
        fetched = None
        if self._asked == 1:
            fetched = self._document
        elif kind == "Document":
            # The page may not make another of itself: what is read must be what was asked for. Frames are not read.
            await self._call("Fetch.failRequest", {"requestId": request_id, "errorReason": "Aborted"})
            return
        elif request["method"] == "GET" and kind not in _SKIPPED and self._asked <= _MOST_REQUESTS:
            with suppress(ProviderError):
                async with self._fetching:
                    fetched = await self._fetcher.fetch(request["url"])
        if fetched is None:
            await self._call("Fetch.failRequest", {"requestId": request_id, "errorReason": "BlockedByClient"})
            return
        label = fetched.content_type + (f"; charset={fetched.charset}" if fetched.charset else "")
        body = base64.b64encode(fetched.body).decode()
        headers = [{"name": "Content-Type", "value": label or "text/plain"}]
        reply = {"requestId": request_id, "responseCode": fetched.status, "responseHeaders": headers, "body": body}
        await self._call("Fetch.fulfillRequest", reply)

    async def _call(self, method: str, parameters: Json | None = None) -> Json:
        return await self._tools.call(method, parameters or {}, self._session)


class _DevTools:
    """The wire to a browser: numbered calls out, their answers and everybody's events in."""

    def __init__(self, client: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._client = client
        self._socket = socket
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Json]] = {}
        self._listeners: dict[str, Listener] = {}
        self._disposing: set[asyncio.Task[None]] = set()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def connect(cls, address: str, certificates: ssl.SSLContext) -> _DevTools:
        client = aiohttp.ClientSession()
        try:
            return cls(client, await client.ws_connect(address, max_msg_size=_LONGEST_MESSAGE, ssl=certificates))
        except BaseException:  # cancelled too: nobody else knows of this client
            await client.close()
            raise

    @property
    def closed(self) -> bool:
        return self._reading.done()

    async def call(self, method: str, parameters: Json, session: str = "") -> Json:
        self._number += 1
        number, message = self._number, {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            if self.closed:
                raise ProgramFailed("Chromium has gone away")
            await self._socket.send_str(orjson.dumps(message).decode())
            return await answer
        except aiohttp.ClientError as error:
            raise ProgramFailed("Chromium has gone away") from error
        finally:
            self._waiting.pop(number, None)

    def listen(self, session: str, listener: Listener) -> None:
        self._listeners[session] = listener

    def forget(self, context: str, session: str) -> None:
        """Throws a profile away without waiting for it: the caller may be on its way out."""
        self._listeners.pop(session, None)
        task = asyncio.create_task(self._dispose(context))
        self._disposing.add(task)
        task.add_done_callback(self._disposing.discard)

    async def aclose(self) -> None:
        self._reading.cancel()
        for task in self._disposing:
            task.cancel()
        await self._socket.close()
        await self._client.close()

    async def _dispose(self, context: str) -> None:
        with suppress(ProgramFailed):
            await self.call("Target.disposeBrowserContext", {"browserContextId": context})

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                said = orjson.loads(message.data)
                if "id" in said:
                    self._settle(said)
                elif listener := self._listeners.get(said.get("sessionId", "")):
                    listener(said["method"], said["params"])
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(ProgramFailed("Chromium has gone away"))

    def _settle(self, said: Json) -> None:
        answer = self._waiting.get(said["id"])
        if answer is None or answer.done():
            return
        if "error" in said:
            answer.set_exception(ProgramFailed(f"Chromium refused: {said['error'].get('message', '')}"))
        else:
            answer.set_result(said["result"])
