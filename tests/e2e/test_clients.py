"""Real client SDKs against Groundwire: each script of tests/clients plays its scenarios in a process of its own, in the
environment that `make test` makes for them, and prints what its user would have seen. Every scenario of every client
talks to a scripted model of its own, so that what that model was asked can be told, and counted.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, call, text

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-clients/bin/python"

SCRIPTS = {
    "openai_chat.py": ("create", "stream", "helper", "async"),
    "langchain_chat.py": ("lc-invoke", "lc-stream"),
    "agents_run.py": ("agents-run", "agents-streamed"),
}
WHOLE = ("create", "lc-invoke", "agents-run")
STREAMED = ("stream", "helper", "async", "lc-stream", "agents-streamed")
CLIENTS = (*WHOLE, *STREAMED)

LINK = f"[[1]]({SITE}sky.md)"
WRITTEN = "😀👩‍🚀 空は青い [1]. Rayleigh [1], é [1]!"
READ = WRITTEN.replace("[1]", LINK)
SEARCH = call("web_search", {"query": "sky blue"}, id="c1")
OPEN = call("open_page", {"url": SITE + "sky.md"}, id="c2")
ERROR = b'{"error":{"message":"no","type":"x","param":null,"code":"y"}}'

SCENARIOS: dict[str, tuple[Turn, ...]] = {
    "rounds": (SEARCH, OPEN, text("😀👩‍🚀 空は", "青い [", "1", "]. Rayleigh [1], ", "é [1]!")),
    "letters": (SEARCH, OPEN, text(*WRITTEN)),
    "function": (
        Turn(calls=[("a", "web_search", {"query": "sky"}), ("b", "weather", {"city": "Bern"})]),
        SEARCH,
        text("Rain, and blue above it [1]."),
    ),
    "endless": (*(call("web_search", {"query": f"sky {i}"}, id=f"c{i}") for i in range(6)), text("At last.")),
    "plain": (text("Hello."),),
    "usage": (SEARCH, OPEN, text("Hello.")),
    "death": (SEARCH, text("Half an ", "answer", end="reset", finish=None, usage=None)),
    "refused": (Turn(status=401, body=ERROR),),
    "busy": (Turn(status=429, body=ERROR, headers={"Retry-After": "1"}),),
}


class Stage:
    """One Groundwire, one model per client and scenario, and the clients, each of which is run when first asked for."""

    def __init__(self, proxy: Groundwire, models: dict[str, ModelServer], pinged: str) -> None:
        self._proxy = proxy
        self._models = models
        self._pinged = pinged
        self._run = cache(self._run_script)

    def seen(self, client: str, scenario: str) -> dict[str, Any]:
        script = next(script for script, clients in SCRIPTS.items() if client in clients)
        found: dict[str, Any] = self._run(script)[f"{client}/{scenario}"]
        return found

    def answer(self, client: str, scenario: str) -> dict[str, Any]:
        """What was seen where nothing may go wrong."""
        seen = self.seen(client, scenario)
        assert seen["error"] is None
        return seen

    def asked(self, client: str, scenario: str) -> list[dict[str, Any]]:
        """The requests that the model of this scenario got."""
        self.seen(client, scenario)
        return self._models[f"{client}/{scenario}"].requests

    def _run_script(self, script: str) -> dict[str, Any]:
        assert PYTHON.exists(), f"{PYTHON} is missing: `make test` makes the environment of the real clients"
        command = [str(PYTHON), str(ROOT / "tests/clients" / script), self._proxy.url, self._pinged]
        env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=env)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture(scope="module")
def stage(config: dict[str, Any]) -> Iterator[Stage]:
    with ExitStack() as stack:
        models = {f"{client}/{name}": stack.enter_context(ModelServer()) for client in CLIENTS for name in SCENARIOS}
        for key, model in models.items():
            model.script(*SCENARIOS[key.split("/")[1]])
        upstreams = [
            {"name": key, "type": "openai", "base_url": model.url, "models": [key]} for key, model in models.items()
        ]
        recorded = stack.enter_context(ModelServer())
        recorded.script(*SCENARIOS["rounds"])
        upstreams.append({"name": "recorded", "type": "openai", "base_url": recorded.url, "models": ["recorded"]})
        proxy = stack.enter_context(Groundwire({**config, "upstreams": upstreams}))
        replay = stack.enter_context(ModelServer())
        replay.script(Turn(body=with_pings(record(proxy)), content_type="text/event-stream"))
        yield Stage(proxy, models, replay.url)


def record(proxy: Groundwire) -> bytes:
    """A stream as Groundwire sends it."""
    asked = {"model": "recorded", "stream": True, "messages": [{"role": "user", "content": "Why is the sky blue?"}]}
    return httpx.post(f"{proxy.url}/chat/completions", json=asked, timeout=20).raise_for_status().content


def with_pings(recorded: bytes) -> bytes:
    """The same stream as from a slow model: a keep-alive before, between and after all events."""
    ping = b": ping\n\n"
    events = recorded.removesuffix(b"\n\n").split(b"\n\n")
    return ping + b"".join(event + b"\n\n" + ping * 2 for event in events)


# Two rounds


@pytest.mark.parametrize("scenario", ["rounds", "letters"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_cited_answer_after_two_rounds(stage: Stage, client: str, scenario: str) -> None:
    assert stage.answer(client, scenario)["text"] == READ
    assert len(stage.asked(client, scenario)) == 3


@pytest.mark.parametrize("scenario", ["rounds", "letters"])
@pytest.mark.parametrize("client", [client for client in CLIENTS if not client.startswith("lc-")])
def test_the_citations_stand_on_their_markers(stage: Stage, client: str, scenario: str) -> None:
    """LangChain drops annotations; its users have the links in the text."""
    seen = stage.answer(client, scenario)
    assert len(seen["citations"]) == 3
    for citation in seen["citations"]:
        assert seen["text"][citation["start_index"] : citation["end_index"]] == LINK
        assert (citation["url"], citation["title"]) == (SITE + "sky.md", "Why the sky is blue")


@pytest.mark.parametrize("client", ["stream", "async"])
def test_one_id_over_all_rounds(stage: Stage, client: str) -> None:
    seen = stage.answer(client, "rounds")
    assert len(seen["ids"]) == 1
    assert seen["finish"] == "stop"


@pytest.mark.parametrize("client", STREAMED)
def test_pings_disturb_nobody(stage: Stage, client: str) -> None:
    assert stage.answer(client, "pings")["text"] == READ


# The client's own function beside ours


@pytest.mark.parametrize("client", [client for client in CLIENTS if not client.startswith("agents-")])
def test_a_client_sees_its_own_call_alone(stage: Stage, client: str) -> None:
    seen = stage.answer(client, "function")
    ((index, name, arguments),) = seen["calls"]
    assert (index, name) == (0, "weather")
    assert (json.loads(arguments) if isinstance(arguments, str) else arguments) == {"city": "Bern"}
    assert seen["finish"] == "tool_calls"
    assert len(stage.asked(client, "function")) == 1


@pytest.mark.parametrize("client", ["agents-run", "agents-streamed"])
def test_an_agent_runs_its_own_function_and_goes_on(stage: Stage, client: str) -> None:
    seen = stage.answer(client, "function")
    assert seen["text"] == f"Rain, and blue above it {LINK}."
    assert [name for _, name, _ in seen["calls"]] == ["weather"]
    first, second, third = stage.asked(client, "function")
    assert [tool["function"]["name"] for tool in first["tools"]] == ["weather", "web_search", "open_page"]
    assert second["messages"][-1]["content"] == "It rains in Bern."
    unanswered = Counter(c["id"] for m in third["messages"] for c in m.get("tool_calls") or ())
    unanswered.subtract(m["tool_call_id"] for m in third["messages"] if m["role"] == "tool")
    assert not any(unanswered.values()), "every call that the model sees has its one result"


# The model never stops, dies, or refuses


@pytest.mark.parametrize("client", CLIENTS)
def test_an_endless_caller_gets_an_answer(stage: Stage, client: str) -> None:
    assert stage.answer(client, "endless")["text"] == "At last."
    assert len(stage.asked(client, "endless")) == 7


@pytest.mark.parametrize("client", STREAMED)
def test_death_in_the_middle_is_raised_and_not_retried(stage: Stage, client: str) -> None:
    seen = stage.seen(client, "death")
    assert "APIError" in seen["error"]["kinds"]
    assert seen["error"]["code"] == "upstream_truncated"
    assert seen["text"] == "Half an answer"
    assert len(stage.asked(client, "death")) == 2, "one search round and the answer that broke; nothing ran twice"


@pytest.mark.parametrize("client", CLIENTS)
def test_a_key_that_the_upstream_refuses(stage: Stage, client: str) -> None:
    error = stage.seen(client, "refused")["error"]
    assert "APIStatusError" in error["kinds"]
    assert (error["status_code"], error["code"]) == (502, "upstream_auth")
    assert error["request_id"].startswith("req_")
    assert len(stage.asked(client, "refused")) == 1, "no client retries what no retry mends"


@pytest.mark.parametrize("client", CLIENTS)
def test_a_busy_upstream_keeps_its_status(stage: Stage, client: str) -> None:
    error = stage.seen(client, "busy")["error"]
    assert "RateLimitError" in error["kinds"]
    assert (error["status_code"], error["code"]) == (429, "y")
    assert len(stage.asked(client, "busy")) == 3, "we ask again twice, and tell the client not to"


# Usage


@pytest.mark.parametrize("client", ["stream", "helper", "async", "lc-stream"])
def test_usage_only_where_it_is_asked_for(stage: Stage, client: str) -> None:
    assert stage.answer(client, "plain")["usages"] == []
    assert stage.answer(client, "usage")["usages"] == [45]


@pytest.mark.parametrize("client", ["stream", "async"])
def test_the_usage_chunk_stands_alone(stage: Stage, client: str) -> None:
    assert stage.answer(client, "usage")["usage_choices"] == 0


def test_whole_answers_always_tell_usage(stage: Stage) -> None:
    assert stage.answer("create", "usage")["usages"] == [45]
    assert stage.answer("lc-invoke", "plain")["usages"] == [15]
