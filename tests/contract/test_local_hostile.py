"""The folder of `local` and its index in hostile hands: files that are swapped, shared places, a full disk, links
without end. Real folders, files and processes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from providers.base import MOST_LINKS
from providers.documents import keeping
from providers.documents.folder import Folder
from tests.contract.test_local import local, write

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "handbook"
    write(folder, "notes.txt", "plain notes about turbines")
    return folder


FULL = """
import asyncio, logging, resource, sys
from pathlib import Path
from providers.base import SearchQuery
from providers.services.local import Local

async def main():
    logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(message)s")
    service = Local(Local.Settings(path=sys.argv[1], index=Path(sys.argv[2])))
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    await service.indexed()
    print(len((await service.search(SearchQuery("turbines", limit=9))).results), "found")
    await service.aclose()

asyncio.run(main())
"""


async def test_a_disk_that_fills_up_leaves_the_index_in_memory(docs: Path, tmp_path: Path) -> None:
    for number in range(9):
        write(
            docs,
            f"{number}.md",
            f"# Part {number}\n\n" + "".join(f"Turbines {n} turn {n * n}.\n\n" for n in range(4000)),
        )
    command = [sys.executable, "-c", FULL, str(docs), str(tmp_path / "kept" / "index.sqlite")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT, check=True)
    assert "the index cannot be kept" in done.stdout
    assert "9 found" in done.stdout
    assert str(tmp_path) not in done.stdout + done.stderr


def test_a_file_that_others_could_read_is_made_ours(tmp_path: Path) -> None:
    file = tmp_path / "index.sqlite"
    file.touch(0o666)
    os.chmod(file, 0o666)
    keeping.make_private(file, own_folder=False)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_is_no_file_keeps_no_index(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.sqlite")
    with pytest.raises(keeping.NotKept, match="somebody else"):
        keeping.make_private(tmp_path / "pipe.sqlite", own_folder=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_keeps_no_index(tmp_path: Path) -> None:
    file = tmp_path / "index.sqlite"
    file.touch()
    os.chown(file, 12345, 12345)
    with pytest.raises(keeping.NotKept, match="somebody else"):
        keeping.make_private(file, own_folder=False)


def test_a_lock_is_made_behind_no_link(tmp_path: Path) -> None:
    os.symlink(tmp_path / "elsewhere", tmp_path / "index.sqlite.lock")
    with keeping.locked(tmp_path / "index.sqlite") as ours:
        assert ours
    assert not (tmp_path / "elsewhere").exists()


def test_what_took_the_place_of_a_document_is_not_opened(docs: Path, tmp_path: Path) -> None:
    folder = Folder(docs, frozenset({".txt"}), 1000)
    os.mkfifo(docs / "pipe.txt")
    write(tmp_path, "secret.txt", "of somebody else")
    os.symlink(tmp_path / "secret.txt", docs / "link.txt")
    for name in ("pipe.txt", "link.txt"):  # as if they had been swapped since they were looked at
        with pytest.raises(FileNotFoundError):
            folder._opened(name)
        assert folder.read(name) is None
    assert folder.read("notes.txt") == b"plain notes about turbines"


async def test_of_very_many_links_the_first_are_looked_for(docs: Path) -> None:
    """Each is a question to the disk."""
    links = [f"See the text of <a href='{number}.md'>part {number}</a> of it." for number in range(MOST_LINKS + 100)]
    paragraphs = "".join(f"<p>{' '.join(links[at : at + 50])}</p>" for at in range(0, len(links), 50))
    write(docs, "links.html", f"<p>All parts are listed here, one by one.</p>{paragraphs}")
    for number in (7, MOST_LINKS + 7):
        write(docs, f"{number}.md", "A part.")
    async with local(docs, label="d") as service:
        page = await service.read("local:d/links.html")
    assert "(local:d/7.md)" in page.text
    assert f"({MOST_LINKS + 7}.md)" in page.text


async def test_a_name_longer_than_any_path_is_no_document(docs: Path) -> None:
    async with local(docs, label="d") as service:
        assert not service.owns("local:d/" + "a/" * 3000 + "b.md")
        assert not service.owns("local:d/" + "./" * 3000 + "notes.txt")
