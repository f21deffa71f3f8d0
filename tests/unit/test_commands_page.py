"""The page about commands: each has its section, with an example that can be typed and a table of all its flags, as the
parser has them. A table that is missing or old is shown as it should be.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from proxy.cli.parser import commands_of, parser

COMMANDS = commands_of(parser())
PAGE = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")


def flags(command: argparse.ArgumentParser) -> str:
    """The table of a command's arguments."""
    rows = [
        f"| {_shown(action)} | {action.help} |" for action in command._actions if action.dest not in ("help", "config")
    ]
    return "\n".join(["| | |", "|---|---|", *rows])


def _shown(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else f" {action.metavar or action.dest}"
    if action.option_strings:
        return ", ".join(f"`{flag}{value}`" for flag in action.option_strings)
    words = "\\|".join(map(str, action.choices)) if action.choices else str(action.metavar or action.dest).upper()
    return f"`{words}`{' …' if action.nargs == '+' else ''}"


def section(name: str) -> str:
    found = re.search(rf"^## groundwire {name}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert found, f"docs/commands.md has no section `## groundwire {name}`"
    return found[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_its_section_with_all_its_flags(name: str) -> None:
    assert re.search(rf"```sh\n(?:.*\n)*?.*\bgroundwire {name}\b", section(name)), "it begins with an example"
    table = flags(COMMANDS[name])
    assert table.count("\n") == 1 or table in section(name), f"the table of `groundwire {name}`:\n\n{table}\n"


def test_every_section_is_about_a_command() -> None:
    assert re.findall(r"^## groundwire (\w+)$", PAGE, re.M) == list(COMMANDS)


def test_every_exit_code_is_told() -> None:
    assert set(re.findall(r"^\| `(\d+)` \|", PAGE, re.M)) == {"0", "1", "2", "130"}
