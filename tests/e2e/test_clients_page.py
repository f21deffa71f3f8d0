"""What docs/clients.md tells people to write is run as it stands there, in the real clients, against a real Groundwire
and a model that searches. The programs of `make test-clients` have their snippets run in tests/programs.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.e2e.conftest import SITE
from tests.fakes import clients_page
from tests.fakes.groundwire import Groundwire, config_file, groundwire
from tests.fakes.model import ModelServer, call, text

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-clients/bin/python"
NODE_CLIENTS = ROOT / "tests/clients/node"
LINK = f"[[1]]({SITE}sky.md)"
SAID = f"Blue {LINK}."
SEARCHED = (call("web_search", {"query": "sky blue"}), text("Blue ", "[1]."))
ENVIRONMENT = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}

PYTHON_CLIENTS = ("Clients", "OpenAI SDKs", "LangChain", "Agents SDK", "Anthropic's SDKs")
JAVASCRIPT_CLIENTS = ("OpenAI SDKs", "AI SDK")


def run(command: list[str], folder: Path, home: Path, **env: str) -> str:
    """What it prints."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=100,
        cwd=folder,
        env={**ENVIRONMENT, "HOME": str(home), **env},
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def node_clients() -> Path:
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    assert (NODE_CLIENTS / "node_modules/.made").exists(), "the node clients are missing: `make test` installs them"
    return NODE_CLIENTS


@pytest.mark.parametrize("section", PYTHON_CLIENTS)
def test_a_python_snippet(proxy: Groundwire, model: ModelServer, tmp_path: Path, section: str) -> None:
    assert PYTHON.exists(), f"{PYTHON} is missing: `make test` makes the environment of the real clients"
    model.script(*SEARCHED)
    said = run([str(PYTHON), "-c", clients_page.snippet(section, "python", proxy.root)], tmp_path, tmp_path)
    assert said.splitlines()[0] == SAID
    if section == "Clients":
        assert said.splitlines()[1] == f"Why the sky is blue {SITE}sky.md"
    assert len(model.requests) == 2


@pytest.mark.parametrize("section", JAVASCRIPT_CLIENTS)
def test_a_javascript_snippet(
    proxy: Groundwire, model: ModelServer, node_clients: Path, tmp_path: Path, section: str
) -> None:
    model.script(*SEARCHED)
    snippet = clients_page.snippet(section, "js", proxy.root)
    said = run(["node", "--input-type=module", "--eval", snippet], node_clients, tmp_path)
    assert said.startswith(SAID)
    if section == "AI SDK":
        assert f"[ '{SITE}sky.md' ]" in said
    assert len(model.requests) == 2


README = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Three examples")[2].partition("\n## ")[0]


def test_the_first_example_of_the_readme(proxy: Groundwire, model: ModelServer, tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, re.S)
    model.script(*SEARCHED)
    said = run([str(PYTHON), "-c", clients_page.here(program, proxy.root)], tmp_path, tmp_path)
    assert said.startswith(f"{SAID}\n[")
    assert f"url='{SITE}sky.md'" in said


def test_the_last_example_of_the_readme(tmp_path: Path) -> None:
    """A folder, the two entries, and a question; the model is the built-in one."""
    (settings,) = re.findall(r"```yaml\n(.*?)```", README, re.S)
    (tmp_path / "handbook").mkdir()
    (tmp_path / "handbook/notice.md").write_text("# Notice\n\nThe notice period is three months long.\n")
    config_file(tmp_path, f"upstreams: [{{name: demo, type: demo}}]\n{settings}")
    *_, line = re.findall(r"^\.venv/bin/groundwire (ask .+)$", README, re.M)
    said = groundwire(tmp_path, *shlex.split(line.replace("qwen3", "demo"))).stdout
    assert "The notice period is three months long. [1]" in said
    assert "local:handbook/notice.md" in said


def test_a_command_with_curl(proxy: Groundwire, model: ModelServer, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    (block,) = clients_page.snippets("curl", "sh")
    whole, streamed = clients_page.here(block, proxy.root).replace("\\\n", " ").splitlines()
    model.script(*SEARCHED)
    message = json.loads(run(shlex.split(whole), tmp_path, tmp_path))["choices"][0]["message"]
    assert (message["content"], len(message["annotations"])) == (SAID, 1)
    model.script(*SEARCHED)
    *events, done = run(shlex.split(streamed), tmp_path, tmp_path).removesuffix("\n\n").split("\n\n")
    deltas = [json.loads(event.removeprefix("data: "))["choices"][0]["delta"] for event in events]
    assert "".join(delta.get("content") or "" for delta in deltas) == SAID
    assert (len(deltas[-1]["annotations"]), done) == (1, "data: [DONE]")


def test_codex_as_the_page_says(proxy: Groundwire, model: ModelServer, node_clients: Path, tmp_path: Path) -> None:
    if not list((node_clients / "node_modules").glob("@openai/codex-*")):
        pytest.skip("there is no Codex for this kind of machine")
    settings = clients_page.snippet("Codex", "toml", proxy.root)
    assert tomllib.loads(settings)["model_providers"]["groundwire"]["base_url"] == proxy.url
    (tmp_path / "config.toml").write_text(settings + "\n[analytics]\nenabled = false\n")
    (line,) = clients_page.snippets("Codex", "sh")
    program, *arguments = shlex.split(line)
    command = [str(node_clients / "node_modules/.bin" / program), *arguments, "--skip-git-repo-check"]
    model.script(*SEARCHED)
    assert run(command, tmp_path, tmp_path, CODEX_HOME=str(tmp_path)) == SAID + "\n"


def test_codex_with_a_key_as_the_page_says(
    config: dict[str, object], model: ModelServer, node_clients: Path, tmp_path: Path
) -> None:
    if not list((node_clients / "node_modules").glob("@openai/codex-*")):
        pytest.skip("there is no Codex for this kind of machine")
    (added,) = re.findall(r"`(env_key = .+?)`", clients_page.SECTIONS["Codex"])
    with Groundwire({**config, "server": {"keys": ["gw-for-codex"]}}) as locked:
        settings = clients_page.snippet("Codex", "toml", locked.root)
        (tmp_path / "config.toml").write_text(f"{settings}{added}\n\n[analytics]\nenabled = false\n")
        command = [str(node_clients / "node_modules/.bin/codex"), "exec", "Why?", "--skip-git-repo-check"]
        model.script(text("Because."))
        assert run(command, tmp_path, tmp_path, CODEX_HOME=str(tmp_path), GROUNDWIRE_KEY="gw-for-codex") == "Because.\n"


def test_claude_code_as_the_page_says(
    proxy: Groundwire, model: ModelServer, node_clients: Path, tmp_path: Path
) -> None:
    programs = [
        path
        for path in node_clients.glob("node_modules/@anthropic-ai/claude-code-*/claude")
        if not path.parent.name.endswith("-musl")
    ]
    if not programs:
        pytest.skip("there is no Claude Code for this kind of machine")
    words = shlex.split(clients_page.snippet("Claude Code", "sh", proxy.root))
    said = dict(word.split("=", 1) for word in words if word.startswith("ANTHROPIC_"))
    arguments = words[words.index("claude") + 1 :]
    quiet = {"DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    model.script(*SEARCHED)
    assert run([str(programs[0]), *arguments], tmp_path, tmp_path, **said, **quiet) == SAID + "\n"
