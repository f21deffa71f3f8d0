"""Real clients in conversation: two questions, and a turn in which the model calls our search and the client's
function. Each script of tests/clients plays the scenarios of its clients in a process of its own, and prints what their
users would have seen; the model of each scenario tells what it was asked, message by message.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, text

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-clients/bin/python"
NODE_CLIENTS = ROOT / "tests/clients/node"

SCRIPTS = {
    "openai_conversation.py": (
        "py-create",
        "py-stream",
        "py-responses",
        "py-responses-items",
        "py-responses-stream",
        "py-responses-stream-items",
    ),
    "anthropic_conversation.py": (
        "py-messages-create",
        "py-messages-stream",
        "py-messages-create-tool",
        "py-messages-stream-tool",
    ),
    "langchain_conversation.py": ("lc-invoke", "lc-stream", "lc-responses-invoke", "lc-responses-stream"),
    "agents_conversation.py": ("agents-run", "agents-streamed", "agents-responses-run", "agents-responses-streamed"),
    "node/openai_conversation.mjs": (
        "node-create",
        "node-stream",
        "node-responses",
        "node-responses-items",
        "node-responses-stream",
        "node-responses-stream-items",
    ),
    "node/anthropic_conversation.mjs": (
        "node-messages-create",
        "node-messages-stream",
        "node-messages-create-tool",
        "node-messages-stream-tool",
    ),
    "node/ai_conversation.mjs": (
        "ai-chat-generate",
        "ai-chat-stream",
        "ai-responses-generate",
        "ai-responses-stream",
        "ai-default-generate",
        "ai-default-stream",
        "ai-compatible-generate",
        "ai-compatible-stream",
        "ai-messages-generate",
        "ai-messages-stream",
        "ai-messages-tool-generate",
        "ai-messages-tool-stream",
    ),
}
CLIENTS = [client for clients in SCRIPTS.values() for client in clients]
RESPONSES = [client for client in CLIENTS if "-responses" in client]
TOOL = [client for client in CLIENTS if "-tool" in client]  # they name the server tool of Anthropic's API: blocks cite
SHOWN = [*RESPONSES, *TOOL]  # they see our searches
DROPPING = ("lc-invoke", "lc-stream", "ai-compatible-generate", "ai-compatible-stream")  # annotations
# Without that tool an answer of Anthropic's API is a text, whose links are all there is.
BLIND = [*DROPPING, *(client for client in CLIENTS if "-messages" in client and client not in TOOL)]

FIRST, SECOND = "What is the weather in Bern, and why is the sky blue?", "And the sea?"
LINK = f"[[1]]({SITE}sky.md)"
WRITTEN = "Rain, and blue above it [1]."
LAST = {"mixed": "Salty.", "apart": "As blue as the sky [1]."}
SEARCH = ("a", "web_search", {"query": "sky"})
WEATHER = ("b", "weather", {"city": "Bern"})

SCENARIOS: dict[str, tuple[Turn, ...]] = {
    "mixed": (Turn(calls=[SEARCH, WEATHER]), text("Rain, and blue ", "above it [", "1", "]."), text(LAST["mixed"])),
    "apart": (Turn(calls=[SEARCH]), Turn(calls=[WEATHER]), text(*WRITTEN), text(LAST["apart"])),
}
EVERYWHERE = pytest.mark.parametrize("client", CLIENTS)
IN_BOTH = pytest.mark.parametrize("scenario", SCENARIOS)


class Said(NamedTuple):
    """What a message says, however it is spelt: a text may stand alone or in parts, and an empty one be null."""

    role: str
    text: str = ""
    calls: tuple[tuple[str, str, object], ...] = ()
    answers: str | None = None  # the call whose result this is


FOUND = "what the search found"
HISTORY = {
    "mixed": [
        Said("user", FIRST),
        Said("assistant", calls=(SEARCH, WEATHER)),
        Said("tool", FOUND, answers="a"),
        Said("tool", "Rain in Bern", answers="b"),
        Said("assistant", WRITTEN),
        Said("user", SECOND),
    ],
    "apart": [
        Said("user", FIRST),
        Said("assistant", calls=(SEARCH,)),
        Said("tool", FOUND, answers="a"),
        Said("assistant", calls=(WEATHER,)),
        Said("tool", "Rain in Bern", answers="b"),
        Said("assistant", WRITTEN),
        Said("user", SECOND),
    ],
}
READ = {"mixed": (1, 4, 6), "apart": (1, 3, 5, 7)}  # how much of it each request holds


class Stage:
    """One Groundwire, one model per client and scenario, and the clients, each of which is run when first asked for."""

    def __init__(self, proxy: Groundwire, models: dict[str, ModelServer]) -> None:
        self._proxy = proxy
        self._models = models
        self._run = cache(self._run_script)

    def seen(self, client: str, scenario: str) -> dict[str, Any]:
        """What the user of a client saw; nothing may go wrong in these conversations."""
        script = next(script for script, clients in SCRIPTS.items() if client in clients)
        found: dict[str, Any] = self._run(script)[f"{client}/{scenario}"]
        assert found["error"] is None
        return found

    def asked(self, client: str, scenario: str) -> ModelServer:
        """The model of a scenario, which keeps what it was asked."""
        self.seen(client, scenario)
        return self._models[f"{client}/{scenario}"]

    def _run_script(self, script: str) -> dict[str, Any]:
        command = [*program(script), str(ROOT / "tests/clients" / script), self._proxy.url, ""]
        env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=env)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = {}
        for line in done.stdout.splitlines():
            found |= json.loads(line)
        return found


def program(script: str) -> list[str]:
    """What runs a script, in the environment that `make test` makes for it."""
    if script.endswith(".py"):
        assert PYTHON.exists(), f"{PYTHON} is missing: `make test` makes the environment of the real clients"
        return [str(PYTHON)]
    node = shutil.which("node")
    if not node or not shutil.which("npm"):
        pytest.skip("node and npm are missing here: the clients written in JavaScript cannot be run")
    assert (NODE_CLIENTS / "node_modules/.made").exists(), "the node clients are missing: `make test` installs them"
    return [node]


@pytest.fixture(scope="module")
def stage(config: dict[str, Any]) -> Iterator[Stage]:
    with ExitStack() as stack:
        models = {f"{client}/{name}": stack.enter_context(ModelServer()) for client in CLIENTS for name in SCENARIOS}
        for key, model in models.items():
            model.script(*SCENARIOS[key.split("/")[1]])
        upstreams = [
            {"name": key, "type": "openai", "base_url": model.url, "models": [key]} for key, model in models.items()
        ]
        yield Stage(stack.enter_context(Groundwire({**config, "upstreams": upstreams})), models)


# What the client sees


@IN_BOTH
@EVERYWHERE
def test_both_questions_are_answered(stage: Stage, client: str, scenario: str) -> None:
    texts = [answer["text"] for answer in stage.seen(client, scenario)["answers"]]
    marker = "" if client in TOOL else f" {LINK}"
    assert texts == [written.replace(" [1]", marker) for written in (WRITTEN, LAST[scenario])]


@IN_BOTH
@EVERYWHERE
def test_a_client_sees_its_own_call_alone(stage: Stage, client: str, scenario: str) -> None:
    ((index, name, arguments, call_id),) = stage.seen(client, scenario)["calls"]
    assert (index, name, arguments) == (0, "weather", {"city": "Bern"})
    assert re.fullmatch(r"b_gw[\w-]{12}", call_id), "the key to what is hidden in this turn travels with the client"


@IN_BOTH
@pytest.mark.parametrize("client", [client for client in CLIENTS if client not in BLIND])
def test_the_citations_stand_on_their_markers(stage: Stage, client: str, scenario: str) -> None:
    answers = stage.seen(client, scenario)["answers"]
    counts = [len(answer["citations"]) for answer in answers]
    found = 1 if client.startswith("ai-messages") else 0  # there every result is a source too
    assert counts == [1 + found, LAST[scenario].count("[1]")]
    for answer in answers:
        for citation in answer["citations"]:
            assert (citation["url"], citation["title"]) == (SITE + "sky.md", "Why the sky is blue")
            if not client.startswith("ai-") and client not in TOOL:  # the AI SDK tells its users no place
                assert answer["text"][citation["start_index"] : citation["end_index"]] == LINK


@IN_BOTH
@pytest.mark.parametrize("client", SHOWN)
def test_who_named_the_search_sees_it(stage: Stage, client: str, scenario: str) -> None:
    assert stage.seen(client, scenario)["searches"] == ["sky"]


@IN_BOTH
@pytest.mark.parametrize("client", [client for client in CLIENTS if client not in SHOWN])
def test_who_knows_no_such_tool_sees_no_search(stage: Stage, client: str, scenario: str) -> None:
    assert not stage.seen(client, scenario).get("searches")


@IN_BOTH
@EVERYWHERE
def test_every_request_tells_what_all_its_rounds_have_used(stage: Stage, client: str, scenario: str) -> None:
    assert stage.seen(client, scenario)["usages"] == [15 if scenario == "mixed" else 30, 15, 15]


# What the model reads


@IN_BOTH
@EVERYWHERE
def test_the_model_reads_one_history_without_a_gap(stage: Stage, client: str, scenario: str) -> None:
    requests = stage.asked(client, scenario).requests
    for request, length in zip(requests, READ[scenario], strict=True):
        assert [said(message) for message in request["messages"]] == HISTORY[scenario][:length]


@IN_BOTH
@EVERYWHERE
def test_the_model_reads_the_same_results_every_time(stage: Stage, client: str, scenario: str) -> None:
    requests = stage.asked(client, scenario).requests
    results = [m["content"] for r in requests for m in r["messages"] if m.get("tool_call_id") == "a"]
    assert len(results) == len(requests) - 1
    assert len(set(results)) == 1


@IN_BOTH
@EVERYWHERE
def test_the_model_is_offered_the_same_tools_every_time(stage: Stage, client: str, scenario: str) -> None:
    requests = stage.asked(client, scenario).requests
    offered = [[tool["function"]["name"] for tool in request["tools"]] for request in requests]
    assert offered == [["weather", "web_search", "open_page"]] * len(READ[scenario])


@IN_BOTH
@EVERYWHERE
def test_nothing_of_ours_goes_up(stage: Stage, client: str, scenario: str) -> None:
    model = stage.asked(client, scenario)
    assert not [raw for raw in model.raw if b"_gw" in raw]
    fields = {field for request in model.requests for message in request["messages"] for field in message}
    assert not fields & {"annotations", "search_results"}
    assert {path.rpartition("/v1")[2] for path in model.paths} == {"/chat/completions"}


def said(message: dict[str, Any]) -> Said:
    content = message.get("content") or ""
    words = content if isinstance(content, str) else "".join(part["text"] for part in content)
    if message["role"] == "tool" and "Why the sky is blue" in words and SITE + "sky.md" in words:
        words = FOUND
    calls = [(call["id"], call["function"]) for call in message.get("tool_calls") or ()]
    called = tuple((key, function["name"], json.loads(function["arguments"])) for key, function in calls)
    return Said(message["role"], words, called, message.get("tool_call_id"))
