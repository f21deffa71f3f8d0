"""The documents say what is true: commands, flags, targets, files and links in them exist."""

from __future__ import annotations

import re
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

import pytest

from proxy.answering.offer import decide
from proxy.cli.main import _parser
from proxy.config.vocabulary import REPAIRS
from proxy.dialects.chat import decode
from proxy.upstreams.profiles import PROFILES
from tests.fakes.deviations import DEVIATIONS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "bench" / "README.md"]
HELP: dict[str, ArgumentParser] = dict(_parser()._subparsers._group_actions[0].choices)  # type: ignore[union-attr, arg-type]


def uses() -> list[tuple[str, str]]:
    """Every `groundwire …` command line in the documents, with the page it stands in."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        found += [
            (page.name, line)
            for line in re.findall(r"\bgroundwire ((?:serve|ask|search|open|check|\w+) ?[^\n`#|]*)", text)
        ]
    return [(page, line.strip()) for page, line in found if line.split()[0] in HELP or "--" in line]


def test_the_documents_show_every_command() -> None:
    assert set(HELP) == {"serve", "ask", "search", "open", "index", "check", "key", "usage"}
    assert {line.split()[0] for page, line in uses() if page == "README.md"} == set(HELP)


@pytest.mark.parametrize(("page", "line"), uses())
def test_documented_commands_and_flags_exist(page: str, line: str) -> None:
    command = line.split()[0]
    assert command in HELP, f"{page}: there is no `groundwire {command}`"
    for flag in re.findall(r"--\w+", line):
        assert flag in HELP[command].format_help(), f"{page}: `groundwire {command}` has no {flag}"


def found_in_pages(pattern: str) -> list[tuple[Path, str]]:
    return [
        (page, found) for page in PAGES for found in re.findall(pattern, page.read_text(encoding="utf-8"), re.MULTILINE)
    ]


def test_documented_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    documented = found_in_pages(r"(?:^|`|\$ )make ([a-z]+)")
    assert {"demo", "test", "install"} <= {target for page, target in documented if page == ROOT / "README.md"}
    for page, target in documented:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name}: there is no target {target}"


def test_links_between_documents_lead_somewhere() -> None:
    links = found_in_pages(r"\]\((?!https?:|#|url)([^)#\s]+)")
    assert (ROOT / "README.md", "docs/configuration.md") in links
    for page, target in links:
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_architecture_page_names_every_room() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms_named = re.findall(r"`((?:proxy|tools|providers)/[\w/.]*)`", text)
    assert rooms_named
    for named in rooms_named:
        assert (ROOT / named).exists(), f"{named} is not there"
    rooms = [p for package in ("proxy", "tools", "providers") for p in (ROOT / package).rglob("*.py")]
    for room in rooms:
        path = room.relative_to(ROOT).as_posix()
        covered = path in text or any(f"`{folder}/`" in text for folder in map(str, room.relative_to(ROOT).parents))
        assert covered or room.name == "__init__.py", f"{path} is not on the map"


def test_documented_reasons_are_given() -> None:
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    body = b'{"model":"m","messages":[{"role":"user","content":"x"}]%s}'
    given = {
        decide(decode(body % b""), "auto", "", True).header,
        decide(decode(body % b',"tool_choice":"none"'), "auto", "", True).header,
    }
    assert set(re.findall(r"`X-Groundwire-Search: ((?:offered|off); reason=\w+)`", guide)) == given


def test_the_page_about_models_names_what_was_tried() -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    table = page.partition("## What was tried")[2].partition("## Repairs")[0]
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+|\w+/[\w-]+)`", table)
    assert len(named) > 60
    for name in named:
        if name.startswith("test_"):
            assert f"def {name}(" in tests, f"there is no test {name}"
        else:
            assert name in DEVIATIONS, f"there is no fixture {name}"


def test_the_page_about_clients_names_what_was_tried() -> None:
    page = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
    table = page.partition("## What works")[2].partition("## How to configure them")[0]
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", table)
    assert len(named) > 40
    assert [name for name in named if f"def {name}(" not in tests] == []
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")]
    assert {len(row) for row in rows} == {6, 7}, "a cell of the tables is missing"


def test_the_page_about_models_names_every_repair_and_profile() -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    rows = dict(
        re.findall(r"^\| `(\w+)` \| (.+) \|$", page.partition("## Repairs")[2].partition("## Profiles")[0], re.M)
    )
    assert rows == REPAIRS
    profiles = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.+?) \|", page.partition("## Profiles")[2], re.M)))
    assert set(profiles) == set(PROFILES)


def test_the_readme_begins_with_what_it_is_and_two_commands() -> None:
    before, block, *_ = re.split(r"^```.*\n", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    title, first, *_ = (paragraph for paragraph in before.split("\n\n") if paragraph.strip())
    assert title.startswith("# Groundwire")
    sentence = re.split(r"(?<=[.!?])\s", first.strip())[0]
    assert re.search(r"\bGroundwire\b.*\bproxy\b.*\bmodel.*\bsearch\b.*\bcitation", sentence, re.DOTALL)
    assert not re.search(r"^##", before, re.MULTILINE), "nothing else comes first"
    commands = [line.partition("#")[0].strip() for line in block.splitlines()]
    assert {"make demo", "make test"} <= set(commands)


def test_the_demo_runs_as_the_readme_says() -> None:
    demo = subprocess.run([sys.executable, ROOT / "docs" / "demo.py"], capture_output=True, text=True, timeout=90)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "[1]" in demo.stdout
    sources = re.findall(r"^  \S.*  local:(docs/\S+)$", demo.stdout.partition("Sources:\n")[2], re.MULTILINE)
    assert sources
    assert all((ROOT / source).exists() for source in sources)
    assert "checked against the sources" in demo.stdout
