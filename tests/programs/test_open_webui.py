"""A real Open WebUI in a real browser: two turns of a conversation, and the chips that a reader sees in them. Then its
own web search, for which it asks a second Groundwire, with a key: as a tool of the model, before the model is asked,
and through each of its engines that Groundwire can be.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes import clients_page
from tests.fakes.browser_tab import BrowserTab
from tests.fakes.eager_model import EagerModel
from tests.fakes.groundwire import Groundwire
from tests.programs.conftest import LIBRARY, ROOT, SEA, SITE, SKY

PROGRAM = ROOT / ".venv-webui/bin/open-webui"
PICTURES = os.environ.get("GROUNDWIRE_PICTURES")  # a folder, for who wants to see it


KEY = "gw-for-nothing-but-search"


@pytest.fixture(scope="module")
def engine(model: EagerModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Groundwire]:
    """Groundwire as a search engine: another one than `proxy`, so that its log tells who asked for what."""
    folder = tmp_path_factory.mktemp("shelf")
    for name, words in LIBRARY.items():
        (folder / name).write_text(words)
    library = {"name": "shelf", "type": "local", "base_url": SITE, "private": False, "options": {"path": str(folder)}}
    upstream = {"name": "eager", "type": "openai", "base_url": model.url}
    with Groundwire({"server": {"keys": [KEY]}, "upstreams": [upstream], "providers": [library]}) as running:
        yield running


def search_settings(engine: Groundwire) -> dict[str, str]:
    """As docs/search_engines.md has them. `ENABLE_LOCAL_WEB_FETCH` lets addresses pass that only the loader knows."""
    return {
        "ENABLE_WEB_SEARCH": "True",
        "WEB_SEARCH_ENGINE": "external",
        "EXTERNAL_WEB_SEARCH_URL": f"{engine.root}/compat/openwebui/search",
        "EXTERNAL_WEB_SEARCH_API_KEY": KEY,
        "WEB_LOADER_ENGINE": "external",
        "EXTERNAL_WEB_LOADER_URL": f"{engine.root}/compat/openwebui/load",
        "EXTERNAL_WEB_LOADER_API_KEY": KEY,
        "SEARXNG_QUERY_URL": engine.root.replace("://", f"://x:{KEY}@") + "/search",
        "TAVILY_API_BASE_URL": engine.root,
        "TAVILY_API_KEY": KEY,
        "BYPASS_WEB_SEARCH_EMBEDDING_AND_RETRIEVAL": "True",
        "ENABLE_LOCAL_WEB_FETCH": "True",
    }


@pytest.fixture(scope="module")
def webui(proxy: Groundwire, engine: Groundwire, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("open-webui")
    words = shlex.split(clients_page.snippet("Open WebUI", "sh", proxy.root))
    assert words[2:] == ["open-webui", "serve"]
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "DATA_DIR": str(folder / "data"),
        "WEBUI_AUTH": "False",
        "WEBUI_SECRET_KEY": "x",
        **dict(word.split("=", 1) for word in words if "=" in word),
        "ENABLE_OLLAMA_API": "False",
        "OFFLINE_MODE": "True",
        "HF_HUB_OFFLINE": "1",
        "RAG_EMBEDDING_ENGINE": "openai",
        **search_settings(engine),
    }
    command = [str(PROGRAM), *words[3:], "--host", "127.0.0.1", "--port", str(port)]
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


@pytest.fixture(scope="module")
def api(webui: str) -> Iterator[httpx.Client]:
    """For what its page sends: signed in as the one user of an Open WebUI without accounts, who has read the news."""
    with httpx.Client(base_url=webui, timeout=60) as client:
        signed = client.post("/api/v1/auths/signin", json={"email": "", "password": ""}).json()
        client.headers["Authorization"] = f"Bearer {signed['token']}"
        seen = {"ui": {"version": client.get("/api/version").json()["version"]}}
        assert client.post("/api/v1/users/user/settings/update", json=seen).is_success
        yield client


READY = """location.pathname === '/' && !!document.querySelector('#chat-input')
  && !!document.querySelector('[aria-label="Selected model: m"]')"""
SEARCHING = """!!document.querySelector('[aria-label="Web Search"][aria-pressed="true"]')"""
CHIPS = """[...document.querySelectorAll('.chat-assistant')].map(answer =>
  [...answer.querySelectorAll('.markdown-prose button[aria-label^="View source"]')].map(chip => chip.innerText))"""
LINKS = """[...document.querySelectorAll('.chat-assistant .markdown-prose a')].map(link => link.href)"""
SKY_CHIP, SEA_CHIP = "Why the sky is blue", "Why the sea is salty"


async def ask(tab: BrowserTab, words: str, chips: int) -> None:
    """Types a question, and waits for as many chips as the page should then hold."""
    await tab.run("document.querySelector('#chat-input').focus()")
    await tab.type(words)
    await tab.until(f"{CHIPS}.flat().length === {chips}")


@pytest.mark.usefixtures("api")
async def test_the_chips_name_the_sources_that_were_cited(webui: str, model: EagerModel) -> None:
    model.script()
    async with BrowserTab() as tab:
        await tab.show(f"{webui}/?models=m")
        await tab.until(READY)
        await ask(tab, "Why is the sea salty?", 3)
        await ask(tab, "Why is the sky blue?", 4)
        assert await tab.run(CHIPS) == [[SKY_CHIP, SKY_CHIP, SEA_CHIP], [SKY_CHIP]]
        assert await tab.run(LINKS) == [SKY, SKY, SEA, SKY]
        if PICTURES:
            await tab.picture(Path(PICTURES) / "open-webui.png")
    housekeeping = [body for body in model.requests if "### Task:" in str(body["messages"][-1]["content"])]
    assert housekeeping
    assert not any(body.get("tools") for body in housekeeping), "titles, tags and follow-ups are not searched"


def housekeeping(body: dict[str, Any]) -> bool:
    return "<chat_history>" in str(body["messages"][-1]["content"])


@pytest.mark.usefixtures("api")
async def test_its_own_search_as_a_tool_of_the_model(webui: str, model: EagerModel, engine: Groundwire) -> None:
    """What it does where search is switched on in a chat: the model is given `search_web` and `fetch_url`."""
    model.script()
    async with BrowserTab() as tab:
        await tab.show(f"{webui}/?models=m&web-search=true")
        await tab.until(f"{READY} && {SEARCHING}")
        await ask(tab, "Look the sky up.", 1)
        assert await tab.run(CHIPS) == [["library.example"]]
    first, second = (body for body in model.requests if not housekeeping(body))
    offered = {tool["function"]["name"] for tool in first["tools"]}
    assert {"search_web", "fetch_url"} <= offered
    assert not {"web_search", "open_page"} & offered, "Groundwire steps aside for a search of the client's own"
    found, read = (message["content"] for message in second["messages"] if message["role"] == "tool")
    assert SKY in found
    assert "air scatters blue light" in read
    assert "searches=shelf:ok" in engine.logged("POST /compat/openwebui/search 200")
    assert "pages=shelf:ok" in engine.logged("POST /compat/openwebui/load 200")


def test_its_own_search_before_the_model_is_asked(api: httpx.Client, model: EagerModel) -> None:
    """For models whose function calling is set to `legacy`. The numbers in the answer are Open WebUI's, and stay so."""
    model.script()
    question = {"role": "user", "content": "What colour has the sky?"}
    fields = {"features": {"web_search": True}, "params": {"function_calling": "legacy"}, "stream": False}
    answer = api.post("/api/chat/completions", json={"model": "m", "messages": [question], **fields}).json()
    assert answer["choices"][0]["message"]["content"] == "Blue [1]."
    (source,) = answer["sources"]
    assert source["metadata"][0] == {"source": SKY, "title": "Why the sky is blue"}
    queries, *_, last = model.requests
    assert housekeeping(queries)
    assert "tools" not in queries
    assert "air scatters blue light" in last["messages"][-3]["content"]


@pytest.mark.parametrize(
    ("name", "asked"),
    [("external", "POST /compat/openwebui/search"), ("searxng", "GET /search"), ("tavily", "POST /search")],
)
def test_every_engine_of_its_that_is_ours(api: httpx.Client, engine: Groundwire, name: str, asked: str) -> None:
    query = f"why is the sky blue, {name}"
    assert api.post("/api/v1/retrieval/config/update", json={"web": {"WEB_SEARCH_ENGINE": name}}).is_success
    found = api.post("/api/v1/retrieval/process/web/search", json={"queries": [query]}).json()
    assert {"link": SKY, "title": "Why the sky is blue"}.items() <= found["items"][0].items()
    assert "air scatters blue light" in found["items"][0]["snippet"]
    assert found["docs"][0]["metadata"] == {"source": SKY, "title": "Why the sky is blue"}
    assert found["docs"][0]["content"] == LIBRARY["sky.md"].strip()
    assert "searches=shelf:ok" in engine.logged(f"{asked} 200")
