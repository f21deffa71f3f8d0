"""`docs/providers.md` says what is true: its table is that of the registry, and its example is built, installed and
asked, as it stands there, by the console script.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from providers.base import Page, SearchQuery, SearchResult
from providers.limits import Limits
from providers.registry import PLUGINS, SERVICES, build, load
from tests.fakes.config import config
from tests.fakes.groundwire import config_file, groundwire

PAGE = (Path(__file__).parents[2] / "docs" / "providers.md").read_text(encoding="utf-8")
ALL_BLOCKS: list[tuple[str, str]] = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.S)
PLUGIN_PART = PAGE.partition("## A provider of your own")[2]
BLOCKS = dict(reversed(re.findall(r"```(\w+)\n(.*?)```", PLUGIN_PART, re.S)))  # the first of each kind
TABLE = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE, re.M)
ROWS = {kind: {"does": does, "key": key, "options": options} for kind, _, does, key, options in TABLE}
KEYS = {kind: service.variable for kind, service in SERVICES.items() if service.sets == "api_key"}


# The table


def test_every_service_has_its_row() -> None:
    assert list(ROWS) == sorted(SERVICES)
    assert len(TABLE) == 14, "the page says how many there are"


@pytest.mark.parametrize("kind", sorted(SERVICES))
def test_a_row_is_that_of_the_service(kind: str) -> None:
    service, row = load(kind), ROWS[kind]
    settings = service.Settings.model_fields
    roles = [word for word, method in (("search", "search"), ("pages", "read")) if hasattr(service, method)]
    assert row["does"] == ", ".join(roles)
    assert set(re.findall(r"`(\w+)`", row["options"])) == settings.keys() - {"api_key", "base_url", "timeout"}
    assert (row["key"] == "none") is ("api_key" not in settings)
    assert KEYS.get(kind, "") in row["key"]
    alone = bool(re.fullmatch(r"`\w+`", row["key"]))
    assert alone is ("api_key" in settings and settings["api_key"].is_required())


def test_what_all_services_take() -> None:
    lack = {
        key: {kind for kind in SERVICES if key not in load(kind).Settings.model_fields}
        for key in ("timeout", "base_url")
    }
    assert lack == {"timeout": {"local"}, "base_url": {"direct", "chromium"}}
    assert "All services except `local` take `timeout`, and all except `direct` and `chromium` take `base_url`" in PAGE


def test_what_a_provider_is_handed_and_hands_back() -> None:
    section = PAGE.partition("### What it is handed")[2].partition("## The built-in services")[0]
    named = set(re.findall(r"`(\w+)", section))
    for kind in (SearchQuery, SearchResult, Page, Limits):
        assert {field.name for field in fields(kind)} <= named, kind.__name__


def test_the_models_that_search_are_set_up_as_shown(tmp_path: Path) -> None:
    (shown,) = [block for kind, block in ALL_BLOCKS if kind == "yaml" and "type: model" in block]
    loaded = config(tmp_path / "config.yaml", shown)
    named = build(loaded.providers, cast(Any, None))
    assert [name for name in loaded.tools.search if named[name].can_search] == ["sonar", "openai", "openrouter", "grok"]
    section = PAGE.partition("### A model as")[2].partition("## How providers")[0]
    options = re.findall(r"^\| `(\w+)` \|", section, re.M)
    assert options == ["model", "api", "body"]


# The example


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the package of the page was installed into. Nothing is fetched for it."""
    folder = tmp_path_factory.mktemp("example")
    package = folder / "http-status"
    package.mkdir()
    (package / "pyproject.toml").write_text(BLOCKS["toml"])
    (package / "http_status.py").write_text(BLOCKS["python"])
    alone = ["--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *alone, "--target", str(folder / "site"), "./http-status"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def commands() -> list[list[str]]:
    """What the page says to type, without the place of the programs."""
    return [shlex.split(line.removeprefix(".venv/bin/")) for line in BLOCKS["sh"].splitlines()]


def test_the_example_stands_alone() -> None:
    imports = [node for node in ast.walk(ast.parse(BLOCKS["python"])) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {getattr(node, "module", None) for node in imports} == {"http"}
    project = tomllib.loads(BLOCKS["toml"])["project"]
    assert project["entry-points"] == {PLUGINS: {"http_status": "http_status:HttpStatus"}}
    assert "dependencies" not in project
    assert commands()[0] == ["pip", "install", "./http-status"]


def test_the_example_searches_and_reads(installed: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        return groundwire(tmp_path, *arguments, env={"PYTHONPATH": str(installed)}).stdout

    config_file(tmp_path, BLOCKS["yaml"])
    _, (_, *search), (_, *read), (_, *check) = commands()
    found: dict[str, Any] = json.loads(run(*search, "--json"))
    assert (found["provider"], found["message"]) == ("statuses", "")
    url = "https://developer.mozilla.org/docs/Web/HTTP/Status/404"
    [result] = found["results"]
    assert (result["title"], result["url"]) == ("404 Not Found", url)
    assert result["snippet"] == "Nothing matches the given URI"
    assert "[1] 404 Not Found\n" in run(*search)
    page = json.loads(run(*read, "--json"))
    assert (page["url"], page["title"], page["content"]) == (url, "Not Found", "Nothing matches the given URI")
    assert check == ["check"]


def test_the_doctor_knows_the_example(installed: Path, tmp_path: Path) -> None:
    sections = {"upstreams": [{"name": "demo", "type": "demo"}], **yaml.safe_load(BLOCKS["yaml"])}
    sections["tools"]["read"].remove("reader")  # it would need the web
    sections["providers"].pop()
    config_file(tmp_path, sections)
    report = json.loads(groundwire(tmp_path, "check", "--json", env={"PYTHONPATH": str(installed)}).stdout)
    assert [(finding["kind"], finding["subject"]) for finding in report["findings"]] == [
        ("upstream", "demo"),
        ("search", "statuses"),
    ]
