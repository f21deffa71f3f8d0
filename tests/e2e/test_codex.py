"""The Codex CLI, unmodified, in front of a real Groundwire and a scripted model: what the model was asked, and what
Codex printed. Each test has a home for Codex of its own, and a folder to work in.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, call, text

ROOT = Path(__file__).resolve().parents[2]
NODE_CLIENTS = ROOT / "tests/clients/node"
CODEX = NODE_CLIENTS / "node_modules/.bin/codex"
MCP_SERVER = ROOT / "tests/fakes/mcp_stdio.py"
LINK = f"[[1]]({SITE}sky.md)"
SEARCH = ("a", "web_search", {"query": "sky"})
CONFIG = """
model = "{model}"
model_provider = "groundwire"
check_for_update_on_startup = false

[model_providers.groundwire]
name = "Groundwire"
base_url = "{url}"
wire_api = "responses"

[analytics]
enabled = false
{more}
"""
GARDEN = f"""
[mcp_servers.garden]
command = {json.dumps(sys.executable)}
args = [{json.dumps(str(MCP_SERVER))}]
"""

Codex = Callable[..., str]


@pytest.fixture
def codex(proxy: Groundwire, tmp_path: Path) -> Codex:
    """`codex("exec", …)` runs it, and hands back what it printed for the user."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    assert (NODE_CLIENTS / "node_modules/.made").exists(), "the node clients are missing: `make test` installs them"
    assert CODEX.exists(), "the node clients are older than their lock file: `make test` installs them anew"
    if not list(CODEX.parents[1].glob("@openai/codex-*")):
        pytest.skip("there is no Codex for this kind of machine")
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()

    def run(*arguments: str, model: str = "m", more: str = "") -> str:
        (home / "config.toml").write_text(CONFIG.format(model=model, url=proxy.url, more=more))
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        command = [str(CODEX), "exec", *flags, *arguments]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=work,
            env={**kept, "HOME": str(home), "CODEX_HOME": str(home)},
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def told(request: dict[str, Any], role: str) -> list[str]:
    return [message["content"] for message in request["messages"] if message["role"] == role]


def names(request: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in request["tools"]]


def calls(request: dict[str, Any]) -> list[str]:
    made = [call for message in request["messages"] for call in message.get("tool_calls") or ()]
    return [call["function"]["name"] for call in made]


def test_as_it_comes(codex: Codex, model: ModelServer, proxy: Groundwire) -> None:
    model.script(Turn(calls=[SEARCH]), text("Blue ", "[1]."))
    assert codex("Why is the sky blue?") == f"Blue {LINK}.\n"
    first, second = model.requests
    assert {"exec_command", "spawn_agent", "close_agent", "web_search", "open_page"} <= set(names(first))
    assert told(first, "user")[-1] == "Why is the sky blue?"
    assert SITE + "sky.md" in told(second, "tool")[0]
    assert "client_metadata" not in first
    assert "reason=tool" in proxy.logged("/v1/responses")


def test_a_tool_in_a_namespace(codex: Codex, model: ModelServer) -> None:
    model.script(call("close_agent", {"target": "nobody"}), text("Done."))
    assert codex("Close it.") == "Done.\n"
    assert calls(model.requests[1]) == ["close_agent"]
    assert "invalid agent id" in told(model.requests[1], "tool")[0], "Codex knew which tool was called"


def test_a_server_of_tools(codex: Codex, model: ModelServer) -> None:
    used = [("w", "water", {"plant": "rose"}), ("v", "mcp__garden__view_image", {"plant": "fern"})]
    model.script(Turn(calls=used), text("Done."))
    assert codex("Look after the garden.", more=GARDEN) == "Done.\n"
    first, second = model.requests
    assert {"water", "view_image", "mcp__garden__view_image"} <= set(names(first))
    assert calls(second) == ["water", "mcp__garden__view_image"]
    watered, viewed = told(second, "tool")
    assert 'water was given {"plant": "rose"}' in watered
    assert 'view_image was given {"plant": "fern"}' in viewed


def test_groundwire_itself_as_a_server_of_tools(codex: Codex, model: ModelServer, proxy: Groundwire) -> None:
    """Beside the search that Groundwire offers the model: both reach it under names of their own."""
    model.script(
        Turn(calls=[("s", "mcp__web__web_search", {"query": "sky blue"})]),
        Turn(calls=[("o", "mcp__web__open_page", {"url": SITE + "sky.md"})]),
        text("Blue."),
    )
    address = proxy.url.removesuffix("/v1") + "/mcp"
    server = f"""[mcp_servers.web]\nurl = "{address}"\nrequired = true\n"""  # it waits for its tools
    assert codex("Why is the sky blue?", more=server) == "Blue.\n"
    assert {"mcp__web__web_search", "mcp__web__open_page"} <= set(names(model.requests[0]))
    found, read = told(model.requests[-1], "tool")
    assert SITE + "sky.md" in found
    assert "Rayleigh scattering" in read
    assert all("<<<web-" in result for result in (found, read)), "what others wrote is told apart"


def test_a_schema_for_the_answer(codex: Codex, model: ModelServer, tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"why": {"type": "string"}}, "required": ["why"]}
    (tmp_path / "schema.json").write_text(json.dumps({**schema, "additionalProperties": False}))
    model.script(Turn(calls=[SEARCH]), text("I know enough."), text('{"why": ', '"scattering"}'))
    assert codex("--output-schema", str(tmp_path / "schema.json"), "Why?") == '{"why": "scattering"}\n'
    formats = [request.get("response_format") for request in model.requests]
    assert formats[:2] == [None, None]
    assert formats[2]["json_schema"]["schema"] == {**schema, "additionalProperties": False}


def test_a_conversation_goes_on(codex: Codex, model: ModelServer) -> None:
    model.script(Turn(calls=[SEARCH]), text("Blue [1]."), text("As salty as [1] is blue."))
    assert codex("Why is the sky blue?") == f"Blue {LINK}.\n"
    assert codex("resume", "--last", "And the sea?") == f"As salty as {LINK} is blue.\n"
    last = model.requests[-1]
    assert told(last, "assistant") == ["Blue [1]."]
    assert told(last, "user")[-1] == "And the sea?"


def test_its_shell_and_our_search_in_one_turn(codex: Codex, model: ModelServer) -> None:
    model.script(
        Turn(calls=[SEARCH, ("b", "exec_command", {"cmd": "echo rain in Bern"})]), text("Rain below blue [1].")
    )
    assert codex("What is the weather, and why is the sky blue?") == f"Rain below blue {LINK}.\n"
    second = model.requests[1]
    assert calls(second) == ["web_search", "exec_command"]
    found, printed = told(second, "tool")
    assert SITE + "sky.md" in found
    assert printed.endswith("rain in Bern\n")


def test_a_custom_tool(codex: Codex, model: ModelServer, tmp_path: Path, proxy: Groundwire) -> None:
    """For models that Codex knows, `apply_patch` takes a text and no arguments."""
    patch = '*** Begin Patch\n*** Add File: hello.txt\n+Grüezi "Bern" 😀\n*** End Patch\n'
    model.script(call("apply_patch", {"input": patch}), text("Written."))
    assert codex("Write it.", model="gpt-5.5") == "Written.\n"
    assert (tmp_path / "work/hello.txt").read_text(encoding="utf-8") == 'Grüezi "Bern" 😀\n'
    first, second = model.requests
    (described,) = (t["function"] for t in first["tools"] if t["function"]["name"] == "apply_patch")
    assert "start: begin_patch hunk+ end_patch" in described["description"]
    assert calls(second) == ["apply_patch"]
    assert "Success" in told(second, "tool")[0]


def test_tools_that_codex_searches_for(codex: Codex, model: ModelServer) -> None:
    """For models that it knows Codex keeps the tools of its servers back until the model has searched for them."""
    seek = call("tool_search", {"query": "water plants"}, id="s")
    model.script(seek, call("water", {"plant": "rose"}, id="w"), text("Done."))
    assert codex("Water the rose.", model="gpt-5.5", more=GARDEN) == "Done.\n"
    first, second, third = model.requests
    assert "tool_search" in names(first)
    assert "water" not in names(first)
    assert "water" in names(second)
    assert "water" in told(second, "tool")[0]
    assert calls(third) == ["tool_search", "water"]
    assert 'water was given {"plant": "rose"}' in told(third, "tool")[1]


def test_tools_that_stand_in_the_input(codex: Codex, model: ModelServer) -> None:
    """For its newest models Codex declares no `tools`: an item of the input does."""
    model.script(Turn(calls=[SEARCH]), call("list_agents", {}, id="l"), text("Blue [1]."))
    assert codex("Why is the sky blue?", model="gpt-6.1-sol") == f"Blue {LINK}.\n"
    assert {"exec", "list_agents", "web_search", "open_page"} <= set(names(model.requests[0]))
    assert calls(model.requests[-1]) == ["web_search", "list_agents"]


def test_a_conversation_that_is_summed_up(codex: Codex, model: ModelServer) -> None:
    model.script(text("Blue."), text("They spoke of the sky."), text("Salty."))
    codex("Why is the sky blue?")
    assert codex("resume", "--last", "-c", "model_auto_compact_token_limit=5", "And the sea?") == "Salty.\n"
    summing, after = model.requests[1:]
    assert "tools" not in summing, "nobody searches for that"
    assert "They spoke of the sky." in told(after, "user")[-2]
