"""The index of `local`: where it is kept, that it is made in the background, stays true, survives damage and company;
and what it says of documents that are not in it. Real folders, files and processes."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from providers.base import SearchQuery, SearchResults
from providers.cache import Cache, Question
from providers.chain import SearchChain
from providers.documents import keeping
from providers.documents.folder import Folder
from providers.documents.index import Index
from providers.documents.library import Library
from providers.documents.report import IndexState, summary
from providers.errors import NoResults, Unavailable
from providers.registry import NamedProvider
from providers.services.local import Local
from providers.settings import CacheSettings
from tests.contract.test_local import hits, local, titles, write
from tests.fakes.hostile import STUCK, pdf_bomb
from tests.fakes.office import docx, epub, pptx, slide, text_pdf

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "handbook"
    write(folder, "install.md", "# Installing\n\nRun the installer.")
    write(folder, "notes.txt", "plain notes about turbines")
    return folder


# Every kind


async def test_every_kind_is_found_by_what_it_says(docs: Path) -> None:
    write(docs, "report.pdf", text_pdf(["Annual report"], ["The heron nests in reeds."]))
    write(docs, "letter.docx", docx("A letter", "The otter swims at dawn.", modified="2024-05-06T00:00:00Z"))
    write(docs, "talk.pptx", pptx(slide("A talk", "The badger digs at night."), title="Badgers"))
    write(docs, "book.epub", epub("A book", "<h1>Storks</h1><p>The stork flies south in autumn.</p>"))
    write(docs, "page.html", "<title>A page</title><nav><a href=x>Home</a></nav><p>The adder basks on stones.</p>")
    async with local(docs) as service:
        found = {word: (await hits(service, word))[0] for word in ("heron", "otter", "badger", "stork", "adder")}
        page = await service.read(found["heron"].url)
    assert [hit.title for hit in found.values()] == ["Annual report", "A letter", "Badgers", "A book", "A page"]
    assert [hit.date for hit in found.values()] == [None, "2024-05-06", None, None, None]
    assert "heron nests in reeds" in found["heron"].snippet
    assert page.text == "Annual report\n\nThe heron nests in reeds."


async def test_equal_documents_are_shown_once(docs: Path) -> None:
    for name in ("c/copy.md", "b.md", "d.txt"):
        write(docs, name, "# Heron\n\nThe heron nests in reeds.\n")
    write(docs, "other.md", "# Other\n\nThe heron eats fish.")
    async with local(docs, label="d") as service:
        assert [hit.url for hit in await hits(service, "heron")] == ["local:d/b.md", "local:d/other.md"]
        report = await service.index_report()
        assert (report.documents, report.equal) == (6, 2)
        (docs / "b.md").unlink()
        assert {hit.url for hit in await hits(service, "heron")} == {"local:d/c/copy.md", "local:d/other.md"}
        (docs / "c/copy.md").unlink()
        (docs / "d.txt").unlink()
        assert [hit.url for hit in await hits(service, "heron")] == ["local:d/other.md"]


async def test_a_long_document_is_found_by_its_best_passage_and_shown_once(docs: Path) -> None:
    filler = "\n\n".join(f"Paragraph {number} speaks of turbines and gears. " * 8 for number in range(300))
    write(docs, "long.md", f"# Manual\n\n{filler}\n\n## Storage\n\nKeep the pangolin dry.\n\n{filler}")
    async with local(docs) as service:
        (hit,) = await hits(service, "pangolin storage")
        assert (hit.title, "Keep the pangolin dry." in hit.snippet) == ("Manual", True)
        assert sorted(await titles(service, "turbines", limit=5)) == ["Manual", "notes.txt"]


async def test_scripts_of_all_kinds(tmp_path: Path) -> None:
    texts = {
        "th": "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย", "hi": "नई दिल्ली भारत की राजधानी है", "ja": "東京は日本の首都です",
        "zh": "北京是中国的首都", "ar": "القاهرة عاصمة مصر", "ru": "Москва столица России",
        "el": "Η Αθήνα είναι πρωτεύουσα",
    }  # fmt: skip
    for name, text in texts.items():
        write(tmp_path, f"{name}.txt", text)
    asked = {
        "th": "เมืองหลวงของประเทศไทย", "hi": "भारत की राजधानी", "ja": "日本の首都", "zh": "中国的首都",
        "ar": "عاصمة مصر", "ru": "столица России", "el": "Αθήνα",
    }  # fmt: skip
    async with local(tmp_path) as service:
        first = {name: (await titles(service, question))[0] for name, question in asked.items()}
    assert first == {name: f"{name}.txt" for name in asked}


# What is not in it


async def test_what_was_skipped_and_why(docs: Path, tmp_path: Path) -> None:
    write(docs, "locked.pdf", b"%PDF-1.4 damaged")
    write(docs, "scan.pdf", text_pdf([]))
    write(docs, "raw.txt", bytes(range(256)) * 10)
    write(docs, "picture.png", b"\x89PNG")
    write(docs, "Makefile", "all:")
    write(docs, ".hidden.md", "walrus")
    write(docs, "big.md", "walrus " * 2000)
    (docs / "out.md").symlink_to(write(tmp_path, "secret.md", "walrus"))
    async with local(docs, max_file_size=10_000) as service:
        assert service.index_state() == IndexState(0, 0, 0, "waiting")
        report = await service.indexed()
        assert service.index_state() == IndexState(2, 0, 5, "ready")
        assert await titles(service, "walrus") == []
    assert dict(report.skipped) == {
        "locked.pdf": "the PDF is damaged or cut short",
        "scan.pdf": "the PDF holds pictures of pages and no text",
        "raw.txt": "what is there is not text",
        "big.md": "larger than max_file_size",
        "out.md": "a link that leads out of the folder",
    }
    assert (report.documents, dict(report.kinds)) == (2, {".png": 1, "": 1})
    assert summary(report).startswith("2 indexed, 7 skipped: 2 of another kind (")


async def test_hostile_files_cost_only_themselves(docs: Path) -> None:
    write(docs, "bomb.pdf", pdf_bomb())
    write(docs, "stuck.docx", docx("T", body="<w:p><w:r>" + "<w:tab/>" * 2_000_000 + "</w:r></w:p>"))
    write(docs, "stuck.html", STUCK + b"<p>zeppelins</p>")
    async with asyncio.timeout(100), local(docs) as service:
        report = await service.indexed()
        assert await titles(service, "installer") == ["Installing"]
    assert "bomb.pdf" in dict(report.skipped)
    assert report.progress.left == 0


async def test_a_skipped_file_that_is_mended_is_read(docs: Path) -> None:
    write(docs, "heron.pdf", b"%PDF-1.4 damaged")
    async with local(docs) as service:
        assert await titles(service, "heron") == []
        write(docs, "heron.pdf", text_pdf(["The heron", "nests in reeds."]))
        assert await titles(service, "heron") == ["The heron"]
        assert (await service.index_report()).skipped == []


# Where it is kept


def cached() -> set[Path]:
    return set(Path(os.environ["XDG_CACHE_HOME"]).rglob("*.sqlite"))


async def test_it_is_kept_in_the_cache_folder_for_us_alone(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = docs.parent / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    async with local(docs, index=None) as service:
        assert await titles(service, "installer") == ["Installing"]
        assert (await service.index_report()).kept
    (file,) = cached()
    folders = [home / "groundwire", home / "groundwire" / "documents"]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o700, 0o700]
    assert {stat.S_IMODE(each.stat().st_mode) for each in file.parent.iterdir()} == {0o600}
    async with local(docs, index=None, extensions=[".txt"]) as service:
        assert await titles(service, "installer") == []
    assert len(cached()) == 2, "another choice of documents is another index"


async def test_without_a_cache_folder_in_the_home(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(docs.parent))
    async with local(docs, index=None) as service:
        assert await titles(service, "installer") == ["Installing"]
    assert len(list((docs.parent / ".cache" / "groundwire" / "documents").glob("*.sqlite"))) == 1


@pytest.mark.parametrize("kind", ["file in the way", "link to elsewhere"])
async def test_where_it_cannot_be_kept_it_is_in_memory(
    docs: Path, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home = docs.parent / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    if kind == "file in the way":
        write(docs.parent, "cache", "no folder")
    else:
        home.mkdir()
        (docs.parent / "elsewhere").mkdir()
        (home / "groundwire").symlink_to(docs.parent / "elsewhere")
    with caplog.at_level(logging.WARNING, "providers"):
        async with local(docs, index=None) as service:
            assert await titles(service, "installer") == ["Installing"]
            assert await titles(service, "turbines") == ["notes.txt"]
            report = await service.index_report()
    assert not report.kept
    assert summary(report).endswith("the index is in memory")
    assert len(caplog.records) == 1
    assert "documents handbook: the index cannot be kept" in caplog.text
    assert str(docs.parent) not in caplog.text


async def test_a_restart_reads_only_what_changed(docs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "index.sqlite"
    async with local(docs, index=file) as service:
        assert await titles(service, "installer") == ["Installing"]
    stamp = (docs / "notes.txt").stat()
    (docs / "notes.txt").write_text("plain notes about TURBINES")
    os.utime(docs / "notes.txt", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # same size, same time: nothing to see
    write(docs, "install.md", "# Installing\n\nRun the walrus.")
    async with local(docs, index=file) as service:
        assert await titles(service, "walrus") == ["Installing"]
        assert (await hits(service, "turbines"))[0].snippet == "plain notes about turbines"


async def test_a_damaged_index_is_made_anew(docs: Path, tmp_path: Path) -> None:
    file = write(tmp_path, "index.sqlite", b"this is not a database" * 100)
    async with local(docs, index=file) as service:
        assert await titles(service, "installer") == ["Installing"]


async def test_an_index_that_breaks_under_way_is_made_anew(docs: Path, tmp_path: Path) -> None:
    file = tmp_path / "index.sqlite"
    for number in range(30):
        write(docs, f"{number}.md", f"# Document {number}\n\n" + f"walrus {number} " * 200)
    async with local(docs, index=file) as service:
        await service.indexed()
    body = bytearray(file.read_bytes())
    for place in range(8192, len(body), 97):  # behind the first pages, which say what it is
        body[place] ^= 0xFF
    file.write_bytes(bytes(body))
    async with local(docs, index=file) as service:
        for _ in range(3):  # the first may find the damage, and then there is nothing yet
            found = await titles(service, "walrus", limit=20)
        assert len(found) == 20


async def test_an_index_of_another_version_is_made_anew(docs: Path, tmp_path: Path) -> None:
    file = tmp_path / "index.sqlite"
    with sqlite3.connect(file) as old:
        old.executescript("CREATE TABLE documents (id INTEGER); INSERT INTO documents VALUES (1);")
        old.execute("PRAGMA user_version = 1")
    old.close()
    async with local(docs, index=file) as service:
        assert await titles(service, "installer") == ["Installing"]
    with sqlite3.connect(file) as other:
        other.execute("UPDATE about SET fingerprint = 'words told in another way'")
    other.close()
    async with local(docs, index=file) as service:
        assert await titles(service, "installer") == ["Installing"]


SEARCHING = """
import asyncio, sys
from providers.base import SearchQuery, SearchResults
from providers.services.local import Local
async def main():
    service = Local(Local.Settings(path=sys.argv[1], index=sys.argv[2], wait=100))
    found = await service.search(SearchQuery("walrus", limit=100))
    report = await service.index_report()
    print(len(found.results), report.documents, found.note)
    await service.aclose()
asyncio.run(main())
"""


async def test_several_processes_make_one_index_together(docs: Path, tmp_path: Path) -> None:
    for number in range(60):
        write(docs, f"{number}.html", f"<title>{number}</title><p>walrus number {number} of the herd</p>")
    file = tmp_path / "index.sqlite"
    command = [sys.executable, "-c", SEARCHING, str(docs), str(file)]
    running = [subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = [process.communicate(timeout=100)[0].split() for process in running]
    assert answers == [["60", "62"]] * 3
    with sqlite3.connect(file) as index:
        assert index.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert index.execute("SELECT count(*) FROM contents").fetchone() == (62,)
        assert index.execute("SELECT count(*) FROM words").fetchone() == (62,)
    index.close()


async def test_a_process_that_is_killed_while_it_writes_leaves_a_good_index(docs: Path, tmp_path: Path) -> None:
    for number in range(300):
        write(docs, f"{number}.html", f"<title>{number}</title><p>walrus number {number} of the herd</p>")
    file = tmp_path / "index.sqlite"
    command = [sys.executable, "-c", SEARCHING, str(docs), str(file)]
    process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE)
    while not (file.exists() and file.with_name(f"{file.name}-wal").exists()):
        await asyncio.sleep(0.01)
        assert process.poll() is None
    process.kill()
    process.communicate()
    async with local(docs, index=file) as service:
        assert len(await titles(service, "walrus", limit=300)) == 300
        assert (await service.index_report()).documents == 302


# In the background


async def test_a_search_does_not_wait_longer_than_it_is_told(docs: Path) -> None:
    write(docs, "page.html", "<p>the walrus of the page</p>")  # which takes a process to be read
    async with local(docs, wait=0) as service:
        with pytest.raises(NoResults):
            await service.search(SearchQuery("walrus"))
        await service.indexed()
        assert len((await service.search(SearchQuery("walrus"))).results) == 1


async def test_an_answer_from_half_an_index_says_so_and_is_not_kept(docs: Path) -> None:
    file = docs.parent / "index.sqlite"
    async with local(docs, index=file) as service:
        await service.indexed()
    for number in range(40):
        write(docs, f"{number}.html", f"<p>the turbines of page {number}</p>")
    async with local(docs, index=file, wait=0.2) as service:
        chain = SearchChain([NamedProvider("docs", "local", service, private=True)])
        cache = Cache(CacheSettings())
        query = SearchQuery("turbines", limit=50)

        async def asked() -> tuple[SearchResults, float | None]:
            async def ask() -> SearchResults:
                return (await chain.search(query)).results

            return await cache.answer(Question("docs", "search", query), "", ask, private=True)

        with keeping.locked(file) as ours:  # as another process does that has begun to read
            assert ours
            while not (answer := (await asked())[0]).partial:  # until the folder is counted
                assert len(answer.results) == 1
            assert answer.note == "2 of 42 documents are indexed so far, the others were not searched"
            assert len(answer.results) == 1
            assert service.index_state() == IndexState(2, 40, 0, "reading")
        await service.indexed()
        whole, age = await asked()
        assert (len(whole.results), whole.partial, age) == (41, False, None)
        assert (await asked())[1] is not None


async def test_a_search_in_a_large_folder_does_not_wait_for_a_look(docs: Path) -> None:
    folder, file = Folder(docs, frozenset({".md"}), 10_000), docs.parent / "index.sqlite"
    large = Library(folder, file, own_folder=False, refresh=0, label="large", swift=-1)  # every look takes long

    async def found() -> int:
        return len((await large.search(["walru"], "", "9999", 5, 600))[0])

    assert await found() == 0  # the first look is waited for
    write(docs, "walrus.md", "walrus")
    with keeping.locked(file) as ours:  # another process writes, so that no look can end
        assert ours
        assert await found() == 0
    await large.ready()
    assert await found() == 1
    await large.aclose()


async def test_closing_while_it_is_made_leaves_nothing_behind(docs: Path) -> None:
    for number in range(100):
        write(docs, f"{number}.html", f"<p>walrus {number}</p>")
    service = Local(Local.Settings(path=docs, index=docs.parent / "index.sqlite", wait=0))
    service.start_index()
    with pytest.raises(NoResults):
        await service.search(SearchQuery("walrus"))
    await service.aclose()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_a_folder_that_vanished_is_said_to_be(docs: Path) -> None:
    async with local(docs) as service:
        docs.rename(docs.with_name("away"))
        with pytest.raises(Unavailable):
            await service.indexed()


def test_a_document_that_cannot_be_written_leaves_no_half_of_it(tmp_path: Path) -> None:
    index = Index(tmp_path / "index.sqlite")
    good = {"heading": "", "text": "walrus", "words": "walrus"}
    document = {"title": "T", "date": "", "digest": "d", "passages": [good, {**good, "text": "\ud800"}]}
    with pytest.raises(UnicodeEncodeError):  # as a full disk does
        index.put("a.md", (1, 1), document)
    index.put("b.md", (1, 1), {**document, "passages": [good, good]})
    index.commit()
    assert [hit.path for hit in index.search(["walrus"], "", "9999", 5)] == ["b.md"]
    assert list(index.known()) == ["b.md"]
    index.close()
