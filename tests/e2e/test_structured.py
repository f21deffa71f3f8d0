"""Plain and structured answers in every SDK: what each handed its user, and that none of it holds a marker of ours."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, call, text

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {
    "python": [ROOT / ".venv-clients/bin/python", ROOT / "tests/clients/plain_and_structured.py"],
    "node": ["node", ROOT / "tests/clients/node/plain_and_structured.mjs"],
}
PYTHON = [f"{client}-{api}" for client in ("openai", "langchain", "agents") for api in ("chat", "responses")]
NODE = ["node-chat", "node-responses", "ai-chat", "ai-responses", "ai-compatible"]
COLOUR = {"name": "blue", "numbers": [1]}
JSON = json.dumps(COLOUR)
SEARCH = call("web_search", {"query": "sky"}, id="c1")
# These ask for search themselves: the model searches, says that it is done, and is asked once more for the format.
ASKING = ("openai-chat", "openai-responses")


def turns(client: str, kind: str) -> tuple[Turn, ...]:
    if kind == "plain":
        return (text("Scattering."),)
    return (SEARCH, text("Enough."), text(JSON)) if client in ASKING else (text(JSON),)


@pytest.fixture(scope="module")
def stage(config: dict[str, Any], model: ModelServer) -> Iterator[dict[str, Any]]:
    for client in (*PYTHON, *NODE):
        for kind in ("plain", "structured"):
            model.part(f"{client}-{kind}", *turns(client, kind))
    seen: dict[str, Any] = {}
    with Groundwire(config) as proxy, ExitStack() as stack:
        running = [
            stack.enter_context(subprocess.Popen([*map(str, command), proxy.url], stdout=subprocess.PIPE, text=True))
            for command in COMMANDS.values()
        ]
        for process in running:
            said, _ = process.communicate(timeout=120)
            seen |= json.loads(said.splitlines()[-1])
        yield seen


@pytest.mark.parametrize("client", [*PYTHON, *NODE])
def test_a_plain_answer(stage: dict[str, Any], client: str) -> None:
    assert stage[f"{client}-plain"] == "Scattering."


@pytest.mark.parametrize("client", [*PYTHON, *NODE])
def test_a_structured_answer(stage: dict[str, Any], client: str, model: ModelServer) -> None:
    assert stage[f"{client}-structured"] == COLOUR
    asked = model.asked[f"{client}-structured"]
    assert len(asked) == (3 if client in ASKING else 1)
    assert asked[-1]["response_format"]["type"] == "json_schema"
