"""Programs of the command line, each configured as docs/clients.md says, asked one question as a person would."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.fakes import clients_page
from tests.fakes.eager_model import EagerModel
from tests.fakes.groundwire import Groundwire
from tests.programs.conftest import LINK, NODE, PROGRAMS, ROOT

QUESTION = "Why is the sky blue?"
AIDER = ROOT / ".venv-aider/bin/aider"


def run(folder: Path, *command: object, **env: str) -> str:
    """What it prints, in a home of its own."""
    own = {"PATH": os.environ["PATH"], "HOME": str(folder), **env}
    arguments = [str(part) for part in command]
    done = subprocess.run(
        arguments, capture_output=True, text=True, timeout=180, cwd=folder, env=own, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def command(section: str) -> list[str]:
    """The command line of a section of docs/clients.md, which asks the question of these tests."""
    (line,) = clients_page.snippets(section, "sh")
    words = shlex.split(line)
    assert (words[0], words[-1]) == (section, QUESTION)
    return words


def searched(model: EagerModel, beginning: str) -> list[bool]:
    """For every request whose first message begins so: was search offered in it?"""
    begun = [body for body in model.requests if str(body["messages"][0]["content"]).startswith(beginning)]
    return ["web_search" in json.dumps(body.get("tools") or ()) for body in begun]


def test_llm(proxy: Groundwire, model: EagerModel, tmp_path: Path) -> None:
    (tmp_path / "extra-openai-models.yaml").write_text(clients_page.snippet("llm", "yaml", proxy.root))
    _, *arguments = command("llm")
    model.script()
    said = run(tmp_path, PROGRAMS / "llm", *arguments, LLM_USER_PATH=str(tmp_path))
    assert said.strip() == f"Scattering {LINK}."
    assert len(model.requests) == 2


@pytest.mark.parametrize("package", ["@ai-sdk/openai-compatible", "@ai-sdk/openai"], ids=["chat", "responses"])
def test_opencode(proxy: Groundwire, model: EagerModel, tmp_path: Path, package: str) -> None:
    settings = json.loads(clients_page.snippet("opencode", "json", proxy.root))
    assert settings["provider"]["groundwire"]["npm"] == "@ai-sdk/openai-compatible"
    settings["provider"]["groundwire"]["npm"] = package
    (tmp_path / "opencode.json").write_text(json.dumps({**settings, "autoupdate": False}))
    _, *arguments = command("opencode")
    model.script()
    said = run(tmp_path, NODE / "opencode", *arguments)
    assert f"Scattering {LINK}." in said
    assert "invalid" not in said
    assert searched(model, "You are opencode") == [True, True]
    titles = searched(model, "You are a title generator")  # it leaves without one where the answer is there first
    assert True not in titles


def test_continue(proxy: Groundwire, model: EagerModel, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(clients_page.snippet("Continue", "yaml", proxy.root))
    model.script()
    said = run(tmp_path, NODE / "cn", "--config", tmp_path / "config.yaml", "-p", QUESTION)
    assert said.strip() == f"Scattering {LINK}."


def test_aider(proxy: Groundwire, model: EagerModel, tmp_path: Path) -> None:
    """The file that it writes holds `[1]` as the model wrote it; the words beside it are cited; the commit is not."""
    (tmp_path / "sky.txt").write_text("blue = []\n")
    for line in ("init -q", "config user.email a@b.example", "config user.name a", "add .", "commit -qm first"):
        run(tmp_path, "git", *line.split())
    model.script()
    said = run(
        tmp_path,
        *(AIDER, *shlex.split(clients_page.snippet("aider", "sh", proxy.root))[1:]),
        *("--yes-always", "--no-pretty", "--no-analytics", "--no-check-update", "--no-show-model-warnings"),
        *("--message", f"{QUESTION} Write it into sky.txt", "sky.txt"),
    )
    assert f"Scattering does it {LINK}." in said
    assert (tmp_path / "sky.txt").read_text() == "blue = [1]\n"
    assert searched(model, "You are an expert software engineer that generates concise") == [False]
