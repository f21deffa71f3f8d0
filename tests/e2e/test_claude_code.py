"""Claude Code, unmodified, in front of a real Groundwire and a scripted model: what the model was asked, and what
Claude Code printed. Each test has a home for it of its own, and a folder to work in.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, call, text

NODE_CLIENTS = Path(__file__).resolve().parents[2] / "tests/clients/node"
LINK = f"[[1]]({SITE}sky.md)"
SEARCH = ("s1", "web_search", {"query": "sky"})

Claude = Callable[..., str]


@pytest.fixture
def claude(proxy: Groundwire, tmp_path: Path) -> Claude:
    """`claude("Hello")` asks, and hands back what it printed for the user."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    assert (NODE_CLIENTS / "node_modules/.made").exists(), "the node clients are missing: `make test` installs them"
    assert (NODE_CLIENTS / "node_modules/@anthropic-ai/claude-code").exists(), "they are older than their lock file"
    programs = [
        path
        for path in NODE_CLIENTS.glob("node_modules/@anthropic-ai/claude-code-*/claude")
        if not path.parent.name.endswith("-musl")
    ]
    if not programs:
        pytest.skip("there is no Claude Code for this kind of machine")
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()

    def run(*arguments: str, model: str = "m") -> str:
        said = {
            "HOME": str(home),
            "ANTHROPIC_BASE_URL": proxy.url.removesuffix("/v1"),
            "ANTHROPIC_API_KEY": "sk-nobodys",
            "ANTHROPIC_MODEL": model,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        done = subprocess.run(
            [str(programs[0]), "-p", *arguments],
            capture_output=True,
            text=True,
            timeout=90,
            cwd=work,
            env={**kept, **said},
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def told(request: dict[str, Any], role: str) -> list[str]:
    return [message["content"] for message in request["messages"] if message["role"] == role]


def names(request: dict[str, Any]) -> set[str]:
    return {tool["function"]["name"] for tool in request.get("tools") or ()}


def test_a_plain_turn_and_what_follows_it(claude: Claude, model: ModelServer, proxy: Groundwire) -> None:
    model.script(text("Hi ", "there."))
    assert claude("Hello") == "Hi there.\n"
    (asked,) = model.requests
    assert {"Bash", "Read", "Edit"} <= names(asked)
    assert told(asked, "user")[0].endswith("Hello")
    assert "x-anthropic-billing-header" not in json.dumps(asked)
    model.script(text("More."))
    assert claude("--continue", "And then?") == "More.\n"
    assert told(model.requests[0], "assistant") == ["Hi there."]
    assert told(model.requests[0], "user")[-1] == "And then?"
    assert "reason=auto" in proxy.logged("/v1/messages")


def test_searched_by_us(claude: Claude, model: ModelServer) -> None:
    model.script(Turn(calls=[SEARCH]), text("Blue ", "[1]."))
    assert claude("Why is the sky blue?") == f"Blue {LINK}.\n"
    assert SITE + "sky.md" in told(model.requests[1], "tool")[0]


def test_its_own_tools(claude: Claude, model: ModelServer) -> None:
    """Beside a search of ours in the same turn."""
    shell = ("b1", "Bash", {"command": "echo gr0und", "description": "Says it"})
    model.script(Turn(calls=[SEARCH, shell]), text("Ran, and blue [1]."))
    assert claude("--allowedTools=Bash", "Run it") == f"Ran, and blue {LINK}.\n"
    found, ran = told(model.requests[1], "tool")
    assert SITE in found
    assert ran == "gr0und"


@pytest.mark.parametrize("name", ["m", "claude-sonnet-4-5"])
def test_its_own_web_search_is_ours(claude: Claude, model: ModelServer, name: str) -> None:
    """It finds the tool first, asks a nested request for the search, and reads its blocks as links."""
    model.script(
        call("ToolSearch", {"query": "select:WebSearch"}, id="t1"),
        call("WebSearch", {"query": "why is the sky blue"}, id="t2"),
        Turn(calls=[SEARCH]),
        text("It is scattering [1]."),
        text("So it is."),
    )
    assert claude("--allowedTools=WebSearch", "Search it", model=name) == "So it is.\n"
    loaded, nested, searched, last = model.requests[1:]
    assert "WebSearch" in names(loaded)
    assert "web_search" not in names(loaded), "auto steps aside for a search of the client's own"
    assert names(nested) == {"web_search", "open_page"}
    if name != "m":  # it forces only models that it knows
        assert nested["tool_choice"] == {"type": "function", "function": {"name": "web_search"}}
    assert SITE + "sky.md" in told(searched, "tool")[0]
    result = told(last, "tool")[-1]
    assert f'Links: [{{"title":"Why the sky is blue","url":"{SITE}sky.md"}}]' in result
    assert "It is scattering." in result


def test_structured_output(claude: Claude, model: ModelServer) -> None:
    schema = {"type": "object", "properties": {"sky": {"type": "string"}}, "required": ["sky"]}
    model.script(call("StructuredOutput", {"sky": "blue"}), text("Done."))
    said = json.loads(claude("--json-schema", json.dumps(schema), "--output-format", "json", "Which colour?"))
    assert said["structured_output"] == {"sky": "blue"}
    assert "StructuredOutput" in names(model.requests[0])


def test_a_model_that_is_not_there_is_said_so(claude: Claude, model: ModelServer) -> None:
    model.script(Turn(status=404, body=b'{"error":{"message":"model \'x\' not found","code":"model_not_found"}}'))
    with pytest.raises(AssertionError, match="model"):
        claude("Hello", model="x")
