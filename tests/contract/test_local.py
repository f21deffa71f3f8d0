"""The `local` provider over real folders: finding, reading, staying up to date, and giving nothing else away."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from providers.base import SearchQuery, SearchResult
from providers.chain import ReadChain, SearchChain
from providers.documents.passages import MOST
from providers.errors import NoResults, Unavailable
from providers.registry import NamedProvider
from providers.services.local import Local
from tests.fakes.hostile import STUCK

DAY = 86_400


@asynccontextmanager
async def local(folder: Path, **options: Any) -> AsyncIterator[Local]:
    service = Local(Local.Settings(path=folder, **{"refresh": 0, "index": "memory", "wait": 60, **options}))
    try:
        yield service
    finally:
        await service.aclose()


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "hand book"
    write(folder, "install.md", "# Installing\n\nRun the *installer* and follow the [guide](guide/start.md#top).\n")
    write(folder, "guide/start.md", "Getting started\n===============\n\nThe quick **brown** fox configures proxies.\n")
    write(folder, "notes.txt", "plain notes about turbines")
    write(folder, "api.rst", "=========\nAPI guide\n=========\n\nEndpoints and ``verbs``.\n")
    return folder


def write(folder: Path, name: str, text: str | bytes, age: float = 0) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    if age:
        os.utime(file, (time.time() - age, time.time() - age))
    return file


async def titles(service: Local, text: str, **query: Any) -> list[str]:
    try:
        return [hit.title for hit in await hits(service, text, **query)]
    except NoResults:
        return []


async def hits(service: Local, text: str, **query: Any) -> tuple[SearchResult, ...]:
    found = await service.search(SearchQuery(text, **query))
    assert not found.partial
    return found.results


async def test_finds_every_kind_of_document_by_its_title(docs: Path) -> None:
    write(docs, "page.html", "<title>The page</title><body><h1>Page</h1><p>Turbines &amp; gears.<p>Second.")
    async with local(docs) as service:
        assert await titles(service, "installer") == ["Installing"]
        assert await titles(service, "brown fox") == ["Getting started"]
        assert sorted(await titles(service, "turbines")) == ["The page", "notes.txt"]
        assert await titles(service, "endpoints") == ["API guide"]


async def test_a_hit_has_address_date_and_plain_passage(docs: Path) -> None:
    front = "---\ndate: 2024-03-01\n---\n"
    write(docs, "a b/ü#1?.md", front + "# Odd\n\nSee the [zebra page](https://example.org/z) and `code` **here**.")
    async with local(docs) as service:
        (hit,) = await hits(service, "zebra")
    url = "local:hand%20book/a%20b/%C3%BC%231%3F.md"
    assert hit == SearchResult("Odd", url, "See the zebra page and code here.", "2024-03-01", basis="page")


async def test_addresses_with_base_url_or_label(docs: Path) -> None:
    async with local(docs, base_url="https://docs.example.org/v1") as service:
        (hit,) = await hits(service, "brown")
        assert hit.url == "https://docs.example.org/v1/guide/start.md"
        assert (await service.read(hit.url)).url == hit.url
        assert (await service.read("local:hand%20book/guide/start.md")).url == hit.url
    async with local(docs, label="manual") as service:
        (hit,) = await hits(service, "brown")
        assert hit.url == "local:manual/guide/start.md"


async def test_the_passage_is_the_best_one_and_short(docs: Path) -> None:
    filler = "Words that fill the page without saying a thing. " * 200
    write(docs, "long.md", f"# Long\n\n{filler}\n\nThe pangolin curls up when it is afraid.\n\n{filler}")
    async with local(docs) as service:
        (hit,) = await hits(service, "why does a pangolin curl up?", limit=1)
    assert "The pangolin curls up when it is afraid." in hit.snippet
    assert len(hit.snippet) <= MOST


async def test_word_forms_accents_prefixes_and_questions(docs: Path) -> None:
    write(docs, "cafe.md", "# Café\n\nEspressomaschine")
    async with local(docs) as service:
        assert await titles(service, "How do I configure a proxy?") == ["Getting started"]
        assert await titles(service, "cafe") == ["Café"]
        assert await titles(service, "espresso") == ["Café"]


async def test_a_query_of_stop_words_still_finds_them(docs: Path) -> None:
    write(docs, "who.txt", "The Who")
    async with local(docs) as service:
        assert "who.txt" in await titles(service, "who")


async def test_more_matching_words_rank_higher_and_so_do_titles(tmp_path: Path) -> None:
    write(tmp_path, "one.md", "# One\n\nrockets fly high " + "and more words " * 20)
    write(tmp_path, "two.md", "# Two\n\nrockets need fuel to fly " + "and more words " * 20)
    write(tmp_path, "three.md", "# Fuel\n\nit burns " + "and more words " * 20)
    async with local(tmp_path) as service:
        assert (await titles(service, "rockets fuel"))[0] == "Two"
        assert (await titles(service, "fuel"))[0] == "Fuel"


async def test_scripts_without_spaces(tmp_path: Path) -> None:
    write(tmp_path, "jp.md", "# 観光案内\n\n東京タワーは東京都港区にある電波塔です。")
    write(tmp_path, "cn.md", "# 机器学习\n\n机器学习是人工智能的一个分支。")
    write(tmp_path, "kr.md", "# 서울 안내\n\n서울타워는 남산에 있습니다.")
    async with local(tmp_path) as service:
        (hit,) = await hits(service, "東京タワー", limit=1)
        assert hit.title == "観光案内"
        assert "東京タワーは東京都港区" in hit.snippet
        assert (await titles(service, "什么是机器学习?"))[0] == "机器学习"
        assert await titles(service, "서울타워") == ["서울 안내"]


async def test_changes_are_seen(docs: Path) -> None:
    async with local(docs) as service:
        assert await titles(service, "walrus") == []
        file = write(docs, "new/walrus.md", "# Walrus\n\nwalrus one")
        assert await titles(service, "walrus") == ["Walrus"]
        write(docs, "new/walrus.md", "# Seal\n\nnow about seals", age=5)
        assert await titles(service, "walrus") == []
        assert await titles(service, "seals") == ["Seal"]
        file.unlink()
        assert await titles(service, "seals") == []


async def test_only_what_changed_is_read_again(docs: Path) -> None:
    async with local(docs) as service:
        assert await titles(service, "installer") == ["Installing"]
        file = docs / "install.md"
        stamp = file.stat()
        file.write_bytes(file.read_bytes().replace(b"installer", b"INSTALLED"))
        os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # same size, same time: nothing to see
        assert await titles(service, "installer") == ["Installing"]


async def test_between_two_looks_nothing_is_walked(docs: Path) -> None:
    async with local(docs, refresh=3600) as service:
        assert await titles(service, "walrus") == []
        write(docs, "walrus.md", "walrus")
        assert await titles(service, "walrus") == []


async def test_an_index_file_outlives_the_process_and_stays_true(docs: Path, tmp_path: Path) -> None:
    file = tmp_path / "cache" / "index.db"
    async with local(docs, index=file) as service:
        assert await titles(service, "installer") == ["Installing"]
    (docs / "install.md").unlink()
    write(docs, "walrus.md", "# Walrus")
    async with local(docs, index=file) as first, local(docs, index=file) as second:
        for service in (first, second):
            assert await titles(service, "installer") == []
            assert await titles(service, "walrus") == ["Walrus"]


async def test_a_folder_that_vanished_is_a_fault_and_not_an_empty_one(docs: Path) -> None:
    async with local(docs) as service:
        assert await titles(service, "installer") == ["Installing"]
        docs.rename(docs.with_name("away"))
        with pytest.raises(Unavailable):
            await service.search(SearchQuery("installer"))
        docs.with_name("away").rename(docs)
        assert await titles(service, "installer") == ["Installing"]


async def test_only_a_document_that_says_its_date_has_one(tmp_path: Path) -> None:
    write(tmp_path, "undated.md", "walrus, undated", age=4 * DAY)
    for days in (0, 4, 20, 200, 900):
        day = time.strftime("%Y-%m-%d", time.gmtime(time.time() - days * DAY))
        write(tmp_path, f"{days}.md", f"---\ntitle: T\ndate: {day}T10:00:00Z\n---\nwalrus {days}")
    async with local(tmp_path) as service:
        dates = {hit.date for hit in await hits(service, "undated", limit=1)}
        assert dates == {None}
        for time_range, count in {"d": 1, "w": 2, "m": 3, "y": 4, "all": 5}.items():
            assert len(await titles(service, "walrus", limit=9, time_range=time_range)) == count + 1
        after = time.strftime("%Y-%m-%d", time.gmtime(time.time() - 100 * DAY))
        assert len(await titles(service, "walrus", limit=9, published_after=after)) == 3 + 1
        assert len(await titles(service, "walrus", limit=9, published_before=after)) == 2 + 1


async def test_what_is_no_document(docs: Path, tmp_path: Path) -> None:
    secret = write(tmp_path, "secret.md", "# Secret\n\nwalrus")
    write(docs, ".hidden.md", "walrus")
    write(docs, ".git/readme.md", "walrus")
    write(docs, "code.py", "walrus")
    write(docs, "big.md", "walrus " * 200)
    (docs / "link.md").symlink_to(secret)
    (docs / "linked").symlink_to(tmp_path)
    (docs / "loop.md").symlink_to(docs / "loop.md")
    (docs / "dangling.md").symlink_to(docs / "nowhere.md")
    os.mkfifo(docs / "pipe.md")
    (docs / "folder.md").mkdir()
    async with local(docs, max_file_size=1000) as service:
        assert await titles(service, "walrus") == []
        for name in (
            ".hidden.md",
            ".git/readme.md",
            "code.py",
            "big.md",
            "link.md",
            "linked/secret.md",
            "loop.md",
            "pipe.md",
        ):
            url = f"local:hand%20book/{name}"
            assert not service.owns(url)
            with pytest.raises(Unavailable, match="no such document"):
                await service.read(url)


async def test_links_that_stay_inside_are_followed(docs: Path) -> None:
    """A mounted ConfigMap is made of them: visible names that lead to a hidden folder beside them."""
    write(docs, "..data/mounted.md", "# Mounted\n\nwalrus")
    (docs / "mounted.md").symlink_to(Path("..data") / "mounted.md")
    async with local(docs) as service:
        assert await titles(service, "walrus") == ["Mounted"]
        assert (await service.read("local:hand%20book/mounted.md")).title == "Mounted"


@pytest.mark.parametrize(
    "path",
    [
        "../secret.md", "guide/../../secret.md", "..%2fsecret.md", "%2e%2e/secret.md", "guide/../install.md",
        "./install.md", "/etc/hosts.md", "//etc/hosts.md",
        "install.md/", "install.md%00.md", "%00", "", "guide", "guide/", "absent.md",
        "INSTALL.PY", "x" * 5000 + ".md", "\ud800.md", "%ff%fe.md", "a\nb.md",
    ],
)  # fmt: skip
@pytest.mark.parametrize("prefix", ["local:hand%20book/", "https://docs.example.org/"])
async def test_no_way_out_of_the_folder(docs: Path, prefix: str, path: str) -> None:
    write(docs.parent, "secret.md", "secret")
    async with local(docs, base_url="https://docs.example.org/") as service:
        assert not service.owns(prefix + path)
        with pytest.raises(Unavailable) as caught:
            await service.read(prefix + path)
    assert str(caught.value) == "There is no such document."


@pytest.mark.parametrize(
    "url", ["local:other/install.md", "https://example.org/install.md", "install.md", "", "local:"]
)
async def test_it_owns_only_its_own(docs: Path, url: str) -> None:
    async with local(docs, base_url="https://docs.example.org/") as service:
        assert not service.owns(url)


async def test_reading_gives_markdown_as_it_is_and_its_links(docs: Path) -> None:
    text = "# T\n\n[web](https://example.org/x) [a](guide/start.md#s) [b](/notes.txt) [c](../secret.md) [d](gone.md)\n"
    write(docs, "links.md", text)
    async with local(docs) as service:
        assert service.owns("local:hand%20book/links.md#part")
        page = await service.read("local:hand%20book/links.md#part")
    assert (page.title, page.text, page.url) == ("T", text, "local:hand%20book/links.md")
    assert page.links == (
        "https://example.org/x", "local:hand%20book/guide/start.md", "local:hand%20book/notes.txt"
    )  # fmt: skip


async def test_relative_links_are_relative_to_the_document(docs: Path) -> None:
    write(docs, "guide/deep/x.html", '<p>x <a href="../start.md">up</a> <a href="mailto:a@b.c">m</a>')
    async with local(docs, base_url="https://docs.example.org") as service:
        page = await service.read("https://docs.example.org/guide/deep/x.html?raw=1")
    assert page.links == ("https://docs.example.org/guide/start.md",)


async def test_html_becomes_readable_text(docs: Path) -> None:
    write(
        docs,
        "rich.html",
        "<?xml version='1.0' encoding='utf-8'?><!doctype html><html><head><title>Rich\n page</title>"
        "<style>x{}</style></head><body><script>evil()</script><!-- note --><h1>Head</h1>"
        "<p>One <b>bold</b> word.</p><ul><li>first<li>second</ul>"
        "<pre>a\n  b</pre><table><tr><td>1<td>2</table><p>After it.</p></body></html>",
    )
    async with local(docs) as service:
        page = await service.read("local:hand%20book/rich.html")
    assert page.title == "Rich page"
    text = "# Head\n\nOne **bold** word.\n\n- first\n- second\n\n```\na\n  b\n```\n\n1\n\n2\n\nAfter it."
    assert page.text == text


async def test_html_keeps_what_nobody_sees_to_itself(docs: Path) -> None:
    write(
        docs,
        "veiled.html",
        "<style>.x{display:none}</style><h1 hidden>Secret</h1><h1>Open</h1><p style='display:none'>Secret</p>"
        "<p>One <span style='font-size:0'>Secret <a href='secret.md'>x</a></span>word.</p><p class=x>Secret</p>",
    )
    async with local(docs) as service:
        page = await service.read("local:hand%20book/veiled.html")
    assert page.title == "Open"
    assert page.text == "# Open\n\nOne word."
    assert page.links == ()


@pytest.mark.parametrize(
    ("name", "data", "title", "word"),
    [
        ("latin.txt", "gr\xfc\xdfe walrus".encode("latin-1"), "latin.txt", "grüße"),
        ("utf16.txt", "grüße walrus".encode("utf-16"), "utf16.txt", "grüße"),
        ("bom.md", b"\xef\xbb\xbf# Gr\xc3\xbc\xc3\x9fe\n\nwalrus", "Grüße", "Grüße"),
        ("koi.html", '<meta charset="koi8-r"><title>Привет</title>walrus мир'.encode("koi8-r"), "Привет", "мир"),
        ("odd.html", b'<meta charset="no-such-thing"><title>Odd</title>walrus \x93quoted\x94', "Odd", "quoted"),
        ("crlf.md", b"---\r\ntitle: 'Front'\r\nx: y\r\n---\r\n\r\nwalrus\r\n", "Front", "walrus"),
        ("code.md", b"```\n# not this\n```\n\nwalrus\n\n## This\n", "This", "walrus"),
        ("bare.html", b"  walrus ", "walrus", "walrus"),
        (b"na\xffme.txt", b"walrus", "na\ufffdme.txt", "walrus"),
    ],
)
async def test_odd_files_survive(tmp_path: Path, name: str | bytes, data: bytes, title: str, word: str) -> None:
    write(tmp_path, os.fsdecode(name), data)
    async with local(tmp_path, label="d") as service:
        (hit,) = await hits(service, "walrus")
        assert hit.title == title
        page = await service.read(hit.url)
    assert word in page.text + page.title
    hit.url.encode("ascii")


@pytest.mark.parametrize("name", ["empty.html", "empty.md", "comment.html"])
async def test_empty_files_do_no_harm(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, "<!-- x -->" if name.startswith("comment") else "")
    write(tmp_path, "full.md", "walrus")
    async with local(tmp_path) as service:
        assert await titles(service, "walrus") == ["full.md"]


async def test_deep_html_does_no_harm(tmp_path: Path) -> None:
    write(tmp_path, "deep.html", "<title>Deep</title>" + "<div>" * 20_000 + "walrus")
    write(tmp_path, "flat.md", "walrus")
    async with local(tmp_path) as service:
        assert await titles(service, "walrus") == ["flat.md"]
        assert (await service.index_report()).skipped == [("deep.html", "it holds no text")]
        with pytest.raises(Unavailable, match="no text"):
            await service.read(f"local:{tmp_path.name}/deep.html")


@given(
    st.text(max_size=80)
    | st.sampled_from(['"', "'; DROP TABLE words; --", "a AND", "NEAR(", "*", "title:x", "{a}", "²"])
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_a_safe_query(docs: Path, text: str) -> None:
    async def both() -> list[str]:
        async with local(docs) as service:
            await titles(service, text)
            return await titles(service, f"{text} installer", limit=9)

    assert "Installing" in asyncio.run(both())


async def test_the_loop_runs_on_while_the_folder_is_read(tmp_path: Path) -> None:
    for number in range(300):
        write(tmp_path, f"{number}.md", f"# Document {number}\n\n" + f"walrus and carpenter {number} " * 500)
    async with local(tmp_path) as service:
        search = asyncio.create_task(service.search(SearchQuery("walrus")))
        beats = 0
        while not search.done():
            await asyncio.sleep(0.001)
            beats += 1
        assert len((await search).results) == 5
    assert beats > 3


async def test_in_the_chains(docs: Path, member: Callable[[Local], NamedProvider]) -> None:
    async with local(docs) as service:
        found = await SearchChain([member(service)]).search(SearchQuery("turbines", blocked_domains=("example.org",)))
        assert len(found.results.results) == 1
        opened = await ReadChain([member(service)]).read(found.results.results[0].url)
        assert "urbines" in opened.page.text


@pytest.fixture
def member() -> Callable[[Local], NamedProvider]:
    return lambda service: NamedProvider("docs", "local", service, private=True)


async def test_a_page_of_hostile_markup_keeps_nobody_from_the_others(docs: Path) -> None:
    write(docs, "stuck.html", STUCK + b"<p>zeppelins</p>")  # without a limit, minutes of one thread
    async with asyncio.timeout(60), local(docs) as service:
        assert await titles(service, "installer") == ["Installing"]
        assert await titles(service, "zeppelins") == ["stuck.html"]
