"""What the users of Python libraries get: `libraries.py` asks with each of them, and prints what it was handed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import clients_page
from tests.fakes.eager_model import EagerModel
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import Turn, call, text
from tests.programs.conftest import LINK, PROGRAMS, ROOT, SKY

SEARCH = call("web_search", {"query": "sky blue"}, id="c1")
BOTH = Turn(calls=[("a", "web_search", {"query": "sky"}), ("b", "weather", {"city": "Bern"})])
CODE = "Thought: I know it [1].\n<code>\nnumbers = [1]\nfinal_answer(numbers[0])\n</code>"
FIELDS = "[[ ## answer ## ]]\nScattering [1]\n\n[[ ## numbers ## ]]\n[1]\n\n[[ ## completed ## ]]"
COLOUR = {"name": "blue", "numbers": [1]}
PARTS = {
    **{name: (SEARCH, text("Scattering [1].")) for name in ("pydantic", "litellm", "litellm-streamed", "llama")},
    "llama-streamed": (SEARCH, text("Scattering [1].")),
    "pydantic-mixed": (BOTH, text("Rain, and scattering [1].")),
    "pydantic-structured": (call("final_result", COLOUR),),
    "smolagents-code": (SEARCH, text(CODE)),
    "smolagents-calls": (call("weather", {"city": "Bern"}, id="w"), call("final_answer", {"answer": "Rain."}, id="f")),
    "dspy": (SEARCH, text(FIELDS)),
    "instructor-tools": (call("Colour", COLOUR),),
    "instructor-json": (text(json.dumps(COLOUR)),),
}


@pytest.fixture(scope="module")
def seen(proxy: Groundwire, model: EagerModel) -> dict[str, Any]:
    for name, turns in PARTS.items():
        model.part(name, *turns)
    command = [str(PROGRAMS / "python"), str(ROOT / "tests/programs/libraries.py"), proxy.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_pydantic_ai(seen: dict[str, Any]) -> None:
    mixed = f"Rain, and scattering {LINK}."
    assert seen["pydantic_ai"] == {"searched": f"Scattering {LINK}.", "mixed": mixed, "structured": COLOUR}


def test_litellm(seen: dict[str, Any]) -> None:
    found = seen["litellm_sdk"]
    assert found["searched"] == found["streamed"] == f"Scattering {LINK}."
    assert [note["url"] for note in found["annotations"]] == [SKY]


def test_smolagents(seen: dict[str, Any]) -> None:
    assert seen["smolagents_agents"] == {"code": 1, "calls": "Rain."}


def test_dspy(seen: dict[str, Any]) -> None:
    assert seen["dspy_fields"] == {"answer": f"Scattering {LINK}", "numbers": [1]}


def test_instructor(seen: dict[str, Any]) -> None:
    assert seen["instructor_models"] == {"tools": COLOUR, "json": COLOUR}


def test_llama_index(seen: dict[str, Any]) -> None:
    assert seen["llama_index"] == {"searched": f"Scattering {LINK}.", "streamed": f"Scattering {LINK}."}


SHOWN: dict[str, Turn] = {
    "pydantic-ai": text("Scattering [1]."),
    "LiteLLM": text("Scattering [1]."),
    "smolagents": call("final_answer", {"answer": "Scattering."}),
    "DSPy": text("[[ ## answer ## ]]\nScattering [1].\n\n[[ ## completed ## ]]"),
    "LlamaIndex": text("Scattering [1]."),
}


@pytest.mark.parametrize("section", SHOWN)
def test_a_library_as_the_page_says(proxy: Groundwire, model: EagerModel, tmp_path: Path, section: str) -> None:
    """The snippet of docs/clients.md, run as it stands there."""
    name = f"page-{section}"
    model.part(name, SEARCH, SHOWN[section])
    program = clients_page.snippet(section, "python", proxy.root, model=name)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = [str(PROGRAMS / "python"), "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    shown = "Scattering." if section == "smolagents" else f"Scattering {LINK}."
    assert done.stdout.strip().splitlines()[-1] == shown
    assert len(model.asked[name]) == 2
