"""`docs/search_engines.md` says what is true: its snippets run as they stand there, against a real Groundwire."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from proxy.serving.app import build
from tests.e2e.conftest import SITE
from tests.fakes.config import config as config_of
from tests.fakes.groundwire import Groundwire

ROOT = Path(__file__).resolve().parents[2]
KEY = "key-of-a-client"
PYTHON = ROOT / ".venv-clients/bin/python"
PAGE = (ROOT / "docs/search_engines.md").read_text(encoding="utf-8")
SCRIPTS = re.findall(r"```python\n(.*?)```", PAGE, re.S)
COMMANDS = [
    line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S) for line in block.replace("\\\n", " ").splitlines()
]


@pytest.fixture(scope="module")
def engine(config: dict[str, Any]) -> Iterator[Groundwire]:
    with Groundwire({**config, "server": {"keys": [KEY]}}) as running:
        yield running


def here(engine: Groundwire, text: str) -> str:
    """With the page's example of a key replaced, which no server takes."""
    address = engine.url.removesuffix("/v1").removeprefix("http://")
    return text.replace("127.0.0.1:8080", address).replace("a-client-key", KEY)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: re.search(r"from (\w+)", script)[1])
def test_the_scripts_print_what_was_found(engine: Groundwire, script: str) -> None:
    assert PYTHON.exists(), f"{PYTHON} is missing: `make test` makes the environment of the real clients"
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    command = [str(PYTHON), "-c", here(engine, script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=env)
    assert done.returncode == 0, done.stderr
    assert SITE + "sky.md" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_get_what_the_page_says(engine: Groundwire, command: str) -> None:
    program, silent, url, *options = shlex.split(here(engine, command))
    assert (program, silent) == ("curl", "-s")
    said = list(zip(options[::2], options[1::2], strict=True))
    headers = dict(value.split(": ") for option, value in said if option == "-H")
    data = next((value for option, value in said if option == "-d"), None)
    answer = httpx.request("POST" if data else "GET", url, headers=headers, content=data, timeout=20)
    assert answer.status_code == 200, answer.text
    assert SITE + "sky.md" in answer.text


def test_every_api_has_its_row_its_section_and_its_routes(tmp_path: Path) -> None:
    rows = re.findall(r"^\| \[([\w ]+)\]\(#([\w-]+)\) \| (.+?) \| .+ \|$", PAGE, re.M)
    sections = re.findall(r"^## (.+)$", PAGE, re.M)
    assert [name for name, _, _ in rows] == sections
    assert [anchor for _, anchor, _ in rows] == [name.lower().replace(" ", "-") for name in sections]
    named = {tuple(words.split()) for _, _, paths in rows for words in re.findall(r"`([A-Z]+ [^`?]+)", paths)}
    edge: Any = build(config_of(tmp_path / "config.yaml", "upstreams: [{name: demo, type: demo}]"))
    routes = edge._app._app.endpoints
    served = {(method, route.path) for route in routes for method in route.methods or ()}
    others = ("/v1", "/health", "/ready", "/metrics", "/openapi", "/page")
    ours = {(m, path) for m, path in served if not path.startswith(others)}
    assert named == {(method, path) for method, path in ours if method != "HEAD"}
