"""Programs of the command line, each configured as docs/clients.md says, asked one question as a person would."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

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


def searched(model: EagerModel, beginning: str) -> list[bool]:
    """For every request whose first message begins so: was search offered in it?"""
    begun = [body for body in model.requests if str(body["messages"][0]["content"]).startswith(beginning)]
    return ["web_search" in json.dumps(body.get("tools") or ()) for body in begun]


def test_llm(proxy: Groundwire, model: EagerModel, tmp_path: Path) -> None:
    described = f"- model_id: groundwire\n  model_name: m\n  api_base: {proxy.url}\n"
    (tmp_path / "extra-openai-models.yaml").write_text(described)
    model.script()
    said = run(tmp_path, PROGRAMS / "llm", "-m", "groundwire", "--key", "x", QUESTION, LLM_USER_PATH=str(tmp_path))
    assert said.strip() == f"Scattering {LINK}."
    assert len(model.requests) == 2


@pytest.mark.parametrize("package", ["@ai-sdk/openai-compatible", "@ai-sdk/openai"], ids=["chat", "responses"])
def test_opencode(proxy: Groundwire, model: EagerModel, tmp_path: Path, package: str) -> None:
    provider = {
        "npm": package,
        "name": "Groundwire",
        "options": {"baseURL": proxy.url, "apiKey": "x"},
        "models": {"m": {"name": "m"}},
    }
    config: dict[str, Any] = {"model": "groundwire/m", "autoupdate": False, "provider": {"groundwire": provider}}
    (tmp_path / "opencode.json").write_text(json.dumps(config))
    model.script()
    said = run(tmp_path, NODE / "opencode", "run", QUESTION)
    assert f"Scattering {LINK}." in said
    assert "invalid" not in said
    assert searched(model, "You are opencode") == [True, True]
    titles = searched(model, "You are a title generator")  # it leaves without one where the answer is there first
    assert True not in titles


def test_continue(proxy: Groundwire, model: EagerModel, tmp_path: Path) -> None:
    described = {"name": "m", "provider": "openai", "model": "m", "apiBase": proxy.url, "apiKey": "x"}
    config = {"name": "groundwire", "version": "0.0.1", "schema": "v1", "models": [described]}
    (tmp_path / "config.yaml").write_text(json.dumps(config))  # YAML holds JSON
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
        *(AIDER, "--model", "openai/m", "--openai-api-base", proxy.url, "--openai-api-key", "x"),
        *("--yes-always", "--no-pretty", "--no-analytics", "--no-check-update", "--no-show-model-warnings"),
        *("--message", f"{QUESTION} Write it into sky.txt", "sky.txt"),
    )
    assert f"Scattering does it {LINK}." in said
    assert (tmp_path / "sky.txt").read_text() == "blue = [1]\n"
    assert searched(model, "You are an expert software engineer that generates concise") == [False]
