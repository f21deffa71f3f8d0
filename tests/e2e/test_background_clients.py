"""OpenAI's own clients with responses in the background, in one process and between two on one real Redis. Each script
of tests/clients runs in a process of its own and prints what its user saw.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_background import HELD
from tests.e2e.test_responses import LINK, SEARCH
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, text
from tests.fakes.redis_server import MISSING, PROGRAM, RedisServer

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-clients/bin/python"
CLIENTS = {"python": "openai_background.py", "node": "node/openai_background.mjs"}
ANSWER = f"Blue {LINK}, it is."

Seen = dict[str, Any]


@pytest.fixture(scope="module", params=["one process", "two processes"])
def servers(request: pytest.FixtureRequest, config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The addresses that a client knows."""
    with ExitStack() as stack:
        if request.param == "one process":
            url = stack.enter_context(Groundwire(config)).url
            yield url, url
            return
        if PROGRAM is None:
            pytest.skip(MISSING)
        shared = {**config, "store": stack.enter_context(RedisServer()).url}
        one, two = (stack.enter_context(Groundwire(shared)) for _ in range(2))
        yield one.url, two.url


@pytest.fixture(scope="module")
def play(servers: tuple[str, str], model: ModelServer) -> Any:
    @cache
    def run(client: str) -> Seen:
        script = ROOT / "tests/clients" / CLIENTS[client]
        model.part("held", HELD)
        model.script(SEARCH, text("Blue [1]", ", it", " is."))
        model.part("quick", *[SEARCH, text("Blue [1]", ", it", " is.")] * 3)
        env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        command = [*runner(client), str(script), *servers]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=env, cwd=script.parent)
        assert done.returncode == 0, done.stderr
        seen: Seen = json.loads(done.stdout)
        return seen

    return run


def runner(client: str) -> list[str]:
    if client == "python":
        assert PYTHON.exists(), f"{PYTHON} is missing: `make test` makes the environment of the real clients"
        return [str(PYTHON)]
    node = shutil.which("node")
    if not node:
        pytest.skip("node is missing here: the clients written in JavaScript cannot be run")
    return [node]


@pytest.mark.parametrize("client", CLIENTS)
class TestClients:
    def test_it_is_polled(self, play: Any, client: str) -> None:
        wanted = {"began": "queued", "status": "completed", "text": ANSWER, "background": True}
        assert play(client)["polled"] == wanted

    def test_a_stream_that_broke_off_is_taken_up(self, play: Any, client: str) -> None:
        seen = play(client)["taken up"]
        kinds = {
            "python": ["ResponseCreatedEvent", "ResponseQueuedEvent", "ResponseInProgressEvent"],
            "node": ["response.created", "response.queued", "response.in_progress"],
        }
        assert seen.pop("kinds") == kinds[client]
        assert seen == {"text": ANSWER, "last": "response.completed", "whole": ANSWER, "order": True}

    def test_it_is_cancelled(self, play: Any, client: str) -> None:
        wanted = {"statuses": ["cancelled"] * 2, "last": "response.incomplete", "status": "cancelled"}
        assert play(client)["cancelled"] == wanted

    def test_what_is_refused(self, play: Any, client: str) -> None:
        assert play(client)["refused"] == [[400, None], [400, "stream"], [400, "background"]]
