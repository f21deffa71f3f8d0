"""The film of the terminal in the docs: what `make recording` writes, and the one that lies there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).parents[2] / "docs"
LARGEST = 60_000
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("film") / "terminal.svg"
    done = subprocess.run([sys.executable, str(DOCS / "recording.py"), str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return path


def pictures(path: Path) -> list[str]:
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    return ["\n".join("".join(line.itertext()) for line in frame) for frame in root.iter(f"{SVG}g")]


@pytest.mark.parametrize("which", ["made", "kept"])
def test_the_film_shows_a_question_its_answer_and_a_source(which: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue("made") if which == "made" else DOCS / "terminal.svg"
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) < LARGEST
    assert "<script" not in text
    assert "href" not in text
    first, *_, last = pictures(path)
    assert first.startswith('$ groundwire ask "')
    assert last.startswith(first.splitlines()[0])
    assert "[1]" in last
    assert "page: “" in last
    assert "prefers-color-scheme:dark" in text
