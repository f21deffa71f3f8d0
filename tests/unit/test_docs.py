"""The documents say what is true: commands, flags, targets, files and links in them exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from proxy.answering.offer import decide
from proxy.cli.parser import commands_of, parser
from proxy.config.vocabulary import REPAIRS
from proxy.dialects.chat import decode
from proxy.upstreams.profiles import PROFILES
from tests.fakes import clients_page
from tests.fakes.deviations import DEVIATIONS
from tests.fakes.terminal import Terminal

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "bench" / "README.md"]
HELP = commands_of(parser())


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
    """On the page about them; the README shows what a newcomer needs."""
    assert {line.split()[0] for page, line in uses() if page == "commands.md"} == set(HELP)
    assert {"init", "serve", "ask", "check"} <= {line.split()[0] for page, line in uses() if page == "README.md"}


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


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_to_a_part_of_a_page_find_it() -> None:
    links = found_in_pages(r"\]\(((?!https?:)[^)\s]*#[^)\s]+)\)")
    assert len(links) > 100
    for page, link in links:
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert anchor in anchors(target), f"{page.name} links to {link}"


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
    guide = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))
    body = b'{"model":"m","messages":[{"role":"user","content":"x"}]%s}'
    given = {
        decide(decode(body % b""), "auto", "", True).header,
        decide(decode(body % b',"tool_choice":"none"'), "auto", "", True).header,
    }
    assert set(re.findall(r"`X-Groundwire-Search: ((?:offered|off); reason=\w+)`", guide)) == given


def test_every_outcome_of_a_provider_has_what_to_do() -> None:
    page = (ROOT / "docs" / "why_not_searched.md").read_text(encoding="utf-8")
    failed = page.partition("## The search failed")[2].partition("\n## ")[0]
    told = {name for row in re.findall(r"^\| (`.+?) \|", failed, re.M) for name in re.findall(r"`(\w+)`", row)}
    observing = (ROOT / "docs" / "observing.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"The outcome of a provider is one of (.+?)\.\s", observing, re.S)
    assert told | {"ok"} == set(re.findall(r"`(\w+)`", listed))


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
    table = page.partition("## What works")[2].partition("## What does not work")[0]
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", table)
    assert len(named) > 40
    assert [name for name in named if f"def {name}(" not in tests] == []
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")]
    assert {len(row) for row in rows} == {6, 7}, "a cell of the tables is missing"


CLIENTS = (
    "OpenAI SDKs",
    "Claude Code",
    "Codex",
    "Open WebUI",
    "LibreChat",
    "LobeChat",
    "Continue",
    "Cline",
    "opencode",
)
CLIENTS += ("aider", "llm", "n8n", "LangChain", "AI SDK", "Agents SDK", "pydantic-ai", "curl")


def test_every_client_has_its_section_and_its_snippet_is_run_or_said_not_to_be() -> None:
    """A snippet is run by the test that its section names, in a file that takes it from that section."""
    sections = dict(clients_page.SECTIONS)
    for others in ("Clients", "Programs that only know a search engine", "What works", "What does not work"):
        sections.pop(others)
    assert tuple(sections)[: len(CLIENTS)] == CLIENTS
    tests = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    for title, section in sections.items():
        assert len(re.findall(r"^Citations: .+", section, re.M)) == 1, title
        run = [
            name for line in re.findall(r"^Run by (.+)", section, re.M) for name in re.findall(r"`(test_\w+)`", line)
        ]
        assert run or "\nNot run here: " in section, title
        for name in run:
            (source,) = [text for text in tests.values() if f"def {name}(" in text]
            assert f'"{title}"' in source, f"{name} does not take the snippet of {title}"


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


def test_the_readme_is_short_and_has_one_picture_and_three_examples() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 120
    assert len(re.findall(r"^!\[.+\]\(docs/.+\)$", text, re.M)) == 1
    examples = text.partition("## Three examples")[2].partition("\n## ")[0]
    assert re.findall(r"^\*\*(\d)\. ", examples, re.M) == ["1", "2", "3"]


def test_every_page_begins_with_an_example() -> None:
    """A block of code, a table or a picture stands on the first screen, before any second heading."""
    for page in sorted((ROOT / "docs").glob("*.md")):
        lines = page.read_text(encoding="utf-8").splitlines()
        first = next(at for at, line in enumerate(lines) if line.startswith(("```", "![")))
        headings = [at for at, line in enumerate(lines) if line.startswith("## ")]
        assert first < 12, page.name
        assert not headings or first < headings[0], page.name


def test_the_index_lists_every_page_once() -> None:
    listed = re.findall(r"\]\((\w+\.md)\)", (ROOT / "docs" / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(page.name for page in (ROOT / "docs").glob("*.md") if page.name != "README.md")


def test_the_demo_runs_as_the_readme_says() -> None:
    """Also where nobody sits at a terminal, as here: it ends by itself."""
    command = [sys.executable, ROOT / "docs" / "demo.py"]
    demo = subprocess.run(command, capture_output=True, text=True, timeout=90, stdin=subprocess.DEVNULL)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "[1]" in demo.stdout
    sources = re.findall(r"^  \S.*  local:(docs/\S+)$", demo.stdout.partition("Sources:\n")[2], re.MULTILINE)
    assert sources
    assert all((ROOT / source).exists() for source in sources)
    assert max(map(len, demo.stdout.splitlines())) <= 100, "it breaks its lines itself"
    answer = " ".join(demo.stdout.partition("reasoning):\n\n")[2].partition("\n\nSources:")[0].split())
    sentences = [sentence.strip() for sentence in re.split(r"\[\d+\]", answer) if sentence.strip()]
    assert len(sentences) >= 2, "one would be little of an answer"
    about = re.compile(r"\bcheck|\bcit(?:e|ation)|marker|passage|judge", re.I)
    assert [sentence for sentence in sentences if not about.search(sentence)] == [], "all are about its question"
    assert "checked against the sources" in answer


def test_the_demo_stays_for_whoever_looks_at_its_page(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(tmp_path)}
    with Terminal([sys.executable, str(ROOT / "docs" / "demo.py")], tmp_path, env) as terminal:
        shown = terminal.until("Press Enter to end the demo.")
        (address,) = re.findall(r"in a browser, and see what it does: (http://127\.0\.0\.1:\d+/)\s", shown)
        with urllib.request.urlopen(f"{address}healthz", timeout=30) as answer:
            assert answer.status == 200
        terminal.press("\n")
        assert terminal.ended() == 0
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{address}healthz", timeout=30)
