"""The page about Anthropic's API shows what works: its program runs, and its settings are valid."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from proxy.config.settings import load
from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, text

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8")
PYTHON = ROOT / ".venv-clients/bin/python"


def test_the_program_on_the_page_runs(proxy: Groundwire, model: ModelServer) -> None:
    assert PYTHON.exists(), f"{PYTHON} is missing: `make test` makes the environment of the real clients"
    model.script(Turn(calls=[("a", "web_search", {"query": "sky"})]), text("Blue [1]. Yes."))
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    program = program.replace("http://127.0.0.1:8080", proxy.url.removesuffix("/v1"))
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    done = subprocess.run([str(PYTHON), "-c", program], capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"Blue. ['{SITE}sky.md']\n Yes. []\n"


@pytest.mark.parametrize("settings", re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
def test_the_settings_on_the_page_are_valid(tmp_path: Path, settings: Any) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(settings, encoding="utf-8")
    assert load(file, {}).upstreams
