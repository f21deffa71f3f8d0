"""What can be typed, before anything is done: helps that show an example, and what they load. Each in a process of its
own, because here everything is imported already. Nothing is measured: what is imported decides what it costs.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from proxy import __version__
from proxy.cli.parser import commands_of, parser

ROOT = Path(__file__).parents[2]
COMMANDS = commands_of(parser())

# What a help may import besides what a bare Python has loaded. Nothing of ours but the parser; of the standard library
# what argparse is made of, and what it measures the terminal with.
OURS = {"proxy", "proxy.cli", "proxy.cli.main", "proxy.cli.parser"}
OF_ARGPARSE = {
    *("argparse", "gettext", "locale", "shutil", "textwrap", "re", "enum", "types", "functools", "copyreg", "copy"),
    *("collections", "operator", "keyword", "reprlib", "itertools", "importlib", "warnings", "contextlib", "weakref"),
    *("fnmatch", "zlib", "bz2", "lzma", "errno", "pwd", "grp", "struct", "threading", "sre_compile", "_colorize"),
}
LOADED = """
import json, sys
known = set(sys.modules)
sys.path.insert(0, sys.argv.pop(1))
from proxy.cli.main import main
try:
    main(sys.argv[1:])
finally:
    print(json.dumps(sorted(set(sys.modules) - known)), file=sys.stderr)
"""


def loaded_by(*arguments: str) -> tuple[str, set[str]]:
    """What it prints, and what it imports besides what json needs, which is little more than a bare Python."""
    command = [sys.executable, "-I", "-c", LOADED, str(ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout, set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)], ids=" ".join
)
def test_a_help_loads_the_parser_and_nothing_else(arguments: list[str]) -> None:
    _, loaded = loaded_by(*arguments)
    assert "proxy.cli.parser" in loaded
    assert {name for name in loaded if name.split(".")[0] in ("proxy", "tools", "providers")} == OURS
    tops = {name.split(".")[0] for name in loaded} - {"proxy"}
    assert {name for name in tops if not name.startswith("_")} <= OF_ARGPARSE


def test_what_a_command_does_is_loaded_when_it_is_run() -> None:
    """The check above can fail: a command that runs does load more."""
    _, loaded = loaded_by("key", "new")
    assert "pydantic" in loaded


def test_the_version_is_written_in_one_place() -> None:
    assert loaded_by("--version")[0] == f"groundwire {__version__}\n"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "proxy.__version__"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_shows_an_example_that_can_be_typed(name: str) -> None:
    lines = COMMANDS[name].format_help().partition("\nexample")[2].splitlines()[1:]
    assert lines
    for line in lines:
        assert parser().parse_args(typed(line)).command == name


def typed(line: str) -> list[str]:
    """The arguments in a line of shell: what it reads from or writes to is not ours."""
    words = shlex.split(re.sub(r'eval "\$\((.*)\)"', r"\1", line), comments=True)
    ours = words[words.index("groundwire") + 1 :]
    return ours[: next((at for at, word in enumerate(ours) if word in ("|", ">", "<")), None)]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_file_of_its_name_and_takes_a_config(name: str) -> None:
    assert (ROOT / "proxy" / "cli" / f"{name}.py").exists()
    assert "--config F" in COMMANDS[name].format_help()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_is_explained(name: str) -> None:
    assert [action.dest for action in COMMANDS[name]._actions if not action.help] == []
