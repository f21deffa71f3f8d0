"""Claude Code, unmodified, in front of a real Groundwire and a scripted model: what the model was asked, and what
Claude Code printed, or drew in a terminal. Each test has a home for it of its own, and a folder to work in.
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
from tests.fakes.eager_model import EagerModel, Said
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, call, text
from tests.fakes.terminal import Terminal

NODE_CLIENTS = Path(__file__).resolve().parents[2] / "tests/clients/node"
LINK = f"[[1]]({SITE}sky.md)"
SEARCH = ("s1", "web_search", {"query": "sky"})

KEY = "sk-nobodys"
QUIET = {"DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1", "DISABLE_ERROR_REPORTING": "1"}

Claude = Callable[..., str]


@pytest.fixture
def program() -> str:
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
    return str(programs[0])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def environment(server: Groundwire, home: Path, model: str, key: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    said = {"ANTHROPIC_BASE_URL": server.root, "ANTHROPIC_API_KEY": key, "ANTHROPIC_MODEL": model}
    return {**kept, **QUIET, **said, "HOME": str(home)}


@pytest.fixture
def claude(proxy: Groundwire, program: str, home: Path, work: Path) -> Claude:
    """`claude("Hello")` asks, and hands back what it printed for the user; `code` is the exit code that is expected."""

    def run(*arguments: str, server: Groundwire = proxy, model: str = "m", key: str = KEY, code: int = 0) -> str:
        done = subprocess.run(
            [program, "-p", *arguments],
            capture_output=True,
            text=True,
            timeout=90,
            cwd=work,
            env={**environment(server, home, model, key), "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == code, done.stdout + done.stderr
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
    model.script(text("As [1] says."))
    assert claude("--continue", "Really?") == f"As {LINK} says.\n"
    assert told(model.requests[0], "assistant") == ["Blue [1]."], "the link is ours, and the model never sees it"


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


def test_a_turn_that_is_watched(claude: Claude, model: ModelServer, work: Path) -> None:
    """Every event of the stream as Claude Code takes it: its own tool beside our search, then an answer that cites."""
    (work / "note.txt").write_text("Grüezi\n", encoding="utf-8")
    read = ("r1", "Read", {"file_path": str(work / "note.txt")})
    model.script(Turn(calls=[SEARCH, read]), text("Blue ", "[1]", ", it says."))
    watched = claude("--output-format", "stream-json", "--include-partial-messages", "--verbose", "Read it")
    lines = [json.loads(line) for line in watched.splitlines()]
    events = [line["event"] for line in lines if line["type"] == "stream_event"]
    blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert [block.get("name", block["type"]) for block in blocks] == ["Read", "text"], "our search does not show"
    pieces = [event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta"]
    assert "".join(pieces) == f"Blue {LINK}, it says."
    assert lines[-1]["result"] == f"Blue {LINK}, it says."
    assert lines[-1]["usage"]["server_tool_use"]["web_search_requests"] == 1
    found, noted = told(model.requests[1], "tool")
    assert SITE + "sky.md" in found
    assert "Grüezi" in noted


def test_groundwire_itself_as_a_server_of_tools(claude: Claude, model: ModelServer, proxy: Groundwire) -> None:
    """Claude Code keeps the tools of its servers back until the model has searched for them."""
    search, page = "mcp__groundwire__web_search", "mcp__groundwire__open_page"
    model.script(
        call("ToolSearch", {"query": f"select:{search},{page}"}, id="t"),
        call(search, {"query": "sky blue"}, id="s"),
        call(page, {"url": SITE + "sky.md"}, id="o"),
        text("Blue."),
    )
    server = {"mcpServers": {"groundwire": {"type": "http", "url": f"{proxy.root}/mcp"}}}
    options = ("--mcp-config", json.dumps(server), "--strict-mcp-config", f"--allowedTools={search},{page}")
    assert claude(*options, "--", "Why is the sky blue?") == "Blue.\n"
    assert {search, page} <= names(model.requests[1])
    assert "web_search" not in names(model.requests[1]), "auto steps aside for a search of the client's own"
    _, found, read = told(model.requests[-1], "tool")
    assert SITE + "sky.md" in found
    assert "Rayleigh scattering" in read
    assert all("<<<web-" in result for result in (found, read)), "what others wrote is told apart"


@pytest.mark.parametrize(
    ("status", "words", "shown"),
    [
        (429, "Slow down", "API Error: Request rejected (429) · Slow down"),
        (500, "It broke", "API Error: 500 It broke"),
        (503, "Too many people", "API Error: 529 Too many people"),
        (400, "maximum context length is 4096 tokens", "Prompt is too long"),
        (404, "model 'm' not found", "There's an issue with the selected model (m)"),
    ],
)
def test_an_error_of_the_model(claude: Claude, model: ModelServer, status: int, words: str, shown: str) -> None:
    model.script(Turn(status=status, body=json.dumps({"error": {"message": words}}).encode()))
    assert claude("Hello", code=1).startswith(shown)


def test_a_wrong_key_is_said_at_once(claude: Claude, model: ModelServer, config: dict[str, Any]) -> None:
    """By itself Claude Code asks ten times more, for minutes and without a word."""
    model.script(text("Hi."))
    with Groundwire({**config, "server": {"keys": ["gw-the-right-one"]}}) as server:
        assert claude("Hello", server=server, code=1).startswith("Failed to authenticate. API Error: 401")
        assert claude("Hello", server=server, key="gw-the-right-one") == "Hi.\n"
        asked = [line for line in server.ended_log().splitlines() if "POST /v1/messages" in line]
    assert [line.split()[3] for line in asked] == ["401", "200"]


def test_a_model_without_an_alias(claude: Claude, model: ModelServer, config: dict[str, Any]) -> None:
    """Claude Code has words of its own for a 404. Once it has used a model here, that one answers for all its names."""
    model.script(text("Hi."))
    upstream = {**config["upstreams"][0], "models": ["m"]}
    with Groundwire({**config, "upstreams": [upstream]}) as server:
        refused = claude("Hello", server=server, model="claude-sonnet-4-5", code=1)
        assert refused.startswith("There's an issue with the selected model (claude-sonnet-4-5)")
        assert not model.requests
        assert claude("Hello", server=server) == "Hi.\n"
        assert claude("Hello", server=server, model="claude-sonnet-4-5") == "Hi.\n"
    assert [request["model"] for request in model.requests] == ["m", "m"]


def test_the_title_that_a_terminal_shows(program: str, home: Path, work: Path, config: dict[str, Any]) -> None:
    """Only in a terminal Claude Code asks for one: beside the first turn, with `tools: []` and a schema."""
    trusted = {"hasTrustDialogAccepted": True}
    begun = {"hasCompletedOnboarding": True, "customApiKeyResponses": {"approved": [KEY]}}
    (home / ".claude.json").write_text(json.dumps({**begun, "projects": {str(work): trusted}}))
    answers = [Said("<session>", '{"title": "Colour of the sky"}'), Said("sky blue", "Scattering [1].", query="sky")]
    with EagerModel(answers) as eager, Groundwire({**config, "upstreams": [upstream_at(eager)]}) as server:
        env = {**environment(server, home, "m", KEY), "FORCE_HYPERLINK": "1"}
        with Terminal([program, "Why is the sky blue?"], work, env) as terminal:
            seen = terminal.until("\x1b]0;✳ Colour of the sky\x07", "Scattering")
        assert "reason=background" in server.logged("search=off")
        (title,) = (request for request in eager.requests if "response_format" in request)
    assert f";{SITE}sky.md\x07\x1b[94m[1]" in seen, "the number is drawn as a link"
    assert "tools" not in title
    assert list(title["response_format"]["json_schema"]["schema"]["properties"]) == ["title"]
    assert "naming a coding session" in told(title, "system")[0]


def upstream_at(model: ModelServer) -> dict[str, Any]:
    return {"name": "eager", "type": "openai", "base_url": model.url}
