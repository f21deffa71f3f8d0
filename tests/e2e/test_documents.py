"""A server over a folder of documents: it begins to read as it starts, answers from what is ready, and says so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from providers.documents import keeping
from providers.services.local import Local
from tests.fakes.groundwire import Groundwire
from tests.fakes.island import make_island
from tests.fakes.office import docx, pptx, slide, word_paragraph


def searched(proxy: Groundwire, query: str) -> Any:
    return httpx.post(f"{proxy.url}/search", json={"query": query, "limit": 3}, timeout=30).json()


async def indexed(folder: Path, index: Path) -> None:
    service = Local(Local.Settings(path=folder, index=index))
    await service.indexed()
    await service.aclose()


def test_a_server_answers_from_what_is_ready_and_says_so(tmp_path: Path) -> None:
    folder, index = tmp_path / "island", tmp_path / "index.sqlite"
    folder.mkdir()
    (folder / "tower.md").write_text("# The tower\n\nThe tower of Skarholm has ninety steps.\n")
    asyncio.run(indexed(folder, index))
    make_island(folder)
    options = {"path": str(folder), "index": str(index), "refresh": 0}
    providers = [{"name": "island", "type": "local", "options": options}]
    with keeping.locked(index) as ours:  # as another process does that reads the folder, and takes long
        assert ours
        with Groundwire({"upstreams": [{"name": "demo", "type": "demo"}], "providers": providers}) as proxy:
            half = searched(proxy, "how many steps has the tower")
            assert half["results"][0]["url"] == "local:island/tower.md"
            assert "island: 1 of 11 documents are indexed so far" in half["message"]
            assert "1 of 11 documents are indexed so far" in searched(proxy, "seventeen wooden racks")["message"]


def test_a_server_begins_to_read_as_it_starts(tmp_path: Path) -> None:
    make_island(tmp_path / "island")
    providers = [{"name": "island", "type": "local", "options": {"path": str(tmp_path / "island"), "wait": 60}}]
    with Groundwire({"upstreams": [{"name": "demo", "type": "demo"}], "providers": providers}) as proxy:
        found = searched(proxy, "how deep is the copper mine")
        assert found["results"][0]["url"] == "local:island/mine.pdf"
        assert "212 metres" in found["results"][0]["snippet"]
        assert proxy.logged("documents island: 10 indexed")


def run(text: str, *more: str) -> str:
    return f"<w:r><w:t>{text}</w:t>{''.join(more)}</w:r>"


def boxed(choice: str, fallback: str) -> str:
    """As Word writes a text box: once for programs that know its newer drawings, and once for those that do not."""
    compatibility = "http://schemas.openxmlformats.org/markup-compatibility/2006"
    return (
        f'<mc:AlternateContent xmlns:mc="{compatibility}"><mc:Choice Requires="wps">{choice}</mc:Choice>'
        f"<mc:Fallback>{fallback}</mc:Fallback></mc:AlternateContent>"
    )


def table(*rows: list[str]) -> str:
    """Of cells that are XML."""
    made = ("".join(f"<w:tc>{cell}</w:tc>" for cell in row) for row in rows)
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in made)}</w:tbl>"


BOX = f"<w:txbxContent>{word_paragraph('In the box.')}</w:txbxContent>"
NESTED = table(*([word_paragraph(day), word_paragraph(hours)] for day, hours in (("Mon", "8-12"), ("Tue", "9-13"))))
SYMBOLS = (
    '<w:sym w:font="Symbol" w:char="F06D"/>', "<w:t>g </w:t>", '<w:sym w:font="Wingdings" w:char="F0FE"/>',
    '<w:sym w:font="Arial" w:char="2030"/>', '<w:sym w:font="Webdings" w:char="F041"/>', '<w:sym w:char="D800"/>',
    '<w:sym w:font="Symbol" w:char="no"/>',
)  # fmt: skip
WORD = {
    "a text box": (f"<w:p>{run('Before. ', boxed(BOX, BOX))}{run('After.')}</w:p>", "Before. After.\n\nIn the box."),
    "a box in its old form": (f"<w:p>{run('Text. ', boxed('<w:drawing/>', BOX))}</w:p>", "Text.\n\nIn the box."),
    "a tracked move": (
        f"<w:p><w:moveFrom>{run('Moved. ')}</w:moveFrom>{run('First. ')}<w:moveTo>{run('Moved.')}</w:moveTo></w:p>",
        "First. Moved.",
    ),
    "deleted text": (f"<w:p>{run('Kept.')}<w:del>{run('Deleted.')}</w:del></w:p>", "Kept."),
    "a nested table": (
        table([word_paragraph("Summer"), word_paragraph("closed")], [word_paragraph("Winter"), NESTED + "<w:p/>"]),
        "| Summer | closed |\n| --- | --- |\n| Winter | Mon, 8-12; Tue, 9-13 |",
    ),
    "hyphens": (
        f"<w:p>{run('part', '<w:noBreakHyphen/>')}{run('time co', '<w:softHyphen/>')}{run('operation')}</w:p>",
        "part-time cooperation",
    ),
    "tabs and breaks": (
        f"<w:p>{run('a', '<w:tab/>')}{run('b', '<w:ptab/>')}{run('c', '<w:br/>')}{run('d', '<w:cr/>')}{run('e')}</w:p>",
        "a b c\nd\ne",
    ),
    "symbols": (f"<w:p>{run('5 ', *SYMBOLS)}</w:p>", "5 μg ☑‰"),
}


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Groundwire]:
    folder = tmp_path_factory.mktemp("office")
    for number, (body, _) in enumerate(WORD.values()):
        (folder / f"{number}.docx").write_bytes(docx(f"Number {number}", body=body))
    shape = "<p:sp><p:txBody><a:p><a:r><a:t>An equation.</a:t></a:r></a:p></p:txBody></p:sp>"
    talk = slide("Title", "Line.").replace("</p:spTree>", boxed(shape, shape) + "</p:spTree>")
    (folder / "talk.pptx").write_bytes(pptx(talk))
    providers = [{"name": "office", "type": "local", "options": {"path": str(folder), "label": "office", "wait": 60}}]
    with Groundwire({"upstreams": [{"name": "demo", "type": "demo"}], "providers": providers}) as proxy:
        yield proxy


def opened(proxy: Groundwire, name: str) -> Any:
    return httpx.post(f"{proxy.url}/open", json={"url": f"local:office/{name}"}, timeout=30).json()["content"]


@pytest.mark.parametrize("name", WORD)
def test_a_word_document_reads_as_it_is_seen(office: Groundwire, name: str) -> None:
    number = list(WORD).index(name)
    assert opened(office, f"{number}.docx") == f"# Number {number}\n\n{WORD[name][1]}"


def test_what_is_found_in_a_word_document(office: Groundwire) -> None:
    found = searched(office, "part-time cooperation")["results"][0]
    assert found["url"].endswith(f"/{list(WORD).index('hyphens')}.docx")
    assert "part-time cooperation" in found["snippet"]


def test_a_slide_in_two_forms_is_read_once(office: Groundwire) -> None:
    assert opened(office, "talk.pptx") == "## Slide 1: Title\n\nLine.\n\nAn equation."
