"""Documents as text and as passages, without a folder: every kind, hostile ones, and the words about an index."""

from __future__ import annotations

import io
import re
import zipfile
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.documents.passages import MOST, split_passages
from providers.documents.reading import INSIDE, needs_no_parser, read_document, read_passages
from providers.documents.report import Progress, Report, summary
from providers.documents.words import index_words, question_words
from providers.errors import Unavailable
from proxy.cli.indexing import ShownProgress
from tests.fakes.hostile import ENTITIES, pdf_bomb
from tests.fakes.office import core, docx, epub, pptx, slide, text_pdf, word_paragraph, zipped

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


# Kinds


def test_a_word_document() -> None:
    hidden = "<w:p><w:r><w:rPr><w:vanish/></w:rPr><w:t>Secret</w:t></w:r><w:r><w:t>Seen</w:t></w:r></w:p>"
    deleted = (
        "<w:p><w:del><w:r><w:delText>Gone</w:delText></w:r></w:del><w:ins><w:r><w:t>Come</w:t></w:r></w:ins></w:p>"
    )
    cells = "".join(
        f"<w:tr><w:tc>{word_paragraph(a)}</w:tc><w:tc>{word_paragraph(b)}</w:tc></w:tr>" for a, b in ("ab", "12")
    )
    body = docx("Über uns", "A & B.", body=f"{hidden}{deleted}<w:tbl>{cells}</w:tbl>", modified="2024-05-06T07:08:09Z")
    page = read_document("a/b.docx", body)
    assert page.title == "Über uns"
    assert page.date == "2024-05-06"
    assert page.text == "# Über uns\n\nA & B.\n\nSeen\n\nCome\n\n| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_links_of_a_word_document() -> None:
    relations = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        '<Relationship Id="r1" Target="https://example.org/x" TargetMode="External"/>'
        '<Relationship Id="r2" Target="file:///etc/passwd" TargetMode="External"/>'
        '<Relationship Id="r3" Target="../media/a.png"/></Relationships>'
    )
    document = f"<w:document {W}><w:body>{word_paragraph('Text')}</w:body></w:document>"
    body = zipped({"word/document.xml": document, "word/_rels/document.xml.rels": relations})
    page = read_document("b.docx", body)
    assert (page.title, page.links, page.date) == ("b.docx", ("https://example.org/x",), None)


def test_slides_in_their_order_without_the_hidden_ones() -> None:
    body = pptx(slide("First", "one", "two"), slide("Hidden", "no", show="0"), slide("", "three"), title="The talk")
    page = read_document("b.pptx", body)
    assert page.title == "The talk"
    assert page.text == "## Slide 1: First\n\none\ntwo\n\n## Slide 3\n\nthree"


def test_a_book() -> None:
    body = epub(
        "The book", "<h1>One</h1><p>First &nbsp; chapter here.</p>", "<h1>Two</h1><p>The second.</p>", date="2020-01-02"
    )
    page = read_document("b.epub", body)
    assert (page.title, page.date) == ("The book", "2020-01-02")
    assert page.text == "# One\n\nFirst chapter here.\n\n# Two\n\nThe second."


def test_a_pdf() -> None:
    page = read_document("b.pdf", text_pdf(["The title", "Lines of (text)."], ["Second page."]))
    assert page.title == "The title"
    assert page.text == "The title\nLines of (text).\n\nSecond page."
    assert page.date is None


def test_a_page_without_its_navigation() -> None:
    nav = "".join(f'<li><a href="/s{number}.html">Section {number}</a></li>' for number in range(40))
    html = f"""<title>Kelp</title><meta name="date" content="2023-09-01"><nav><ul>{nav}</ul></nav><main><h1>Kelp</h1>
      <p>Kelp grows half a metre a day, faster than any tree, and feeds <a href="../urchins.html#x">urchins</a>.</p>
      </main><footer>All rights reserved. <a href="/privacy.html">Privacy</a></footer>"""
    page = read_document("sea/kelp.html", html.encode())
    assert "Section" not in page.text
    assert "rights" not in page.text
    assert (page.title, page.date) == ("Kelp", "2023-09-01")
    assert page.links == (f"{INSIDE}urchins.html#x",)


def test_short_pages_of_ours_are_no_gates() -> None:
    page = read_document("a.html", b"<h1>Captcha</h1><p>Enable JavaScript to solve the captcha.</p>")
    assert "solve the captcha" in page.text


def test_front_matter_says_title_and_date() -> None:
    page = read_document("a.md", b"---\ntitle: \"Front\"\nDate: '2022-02-03 10:00'\n---\n# Other\n\ntext")
    assert (page.title, page.date) == ("Front", "2022-02-03")
    passages = read_passages("a.md", b"---\ntitle: Front\ntags: [x]\n---\n# Other\n\ntext").passages
    assert [passage.text for passage in passages] == ["Other\n\ntext"]


# What cannot be read


def encrypted() -> bytes:
    body = bytearray(docx("Secret", "text"))
    for found in re.finditer(rb"PK\x01\x02", bytes(body)):
        body[found.start() + 8] |= 1
    return bytes(body)


def bomb(part: str = "word/document.xml", size: int = 200_000_000) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(part, "w") as written:
        for _ in range(size // 1_000_000):
            written.write(b" " * 1_000_000)
    return made.getvalue()


def document(xml: bytes) -> bytes:
    return zipped({"word/document.xml": xml})


@pytest.mark.parametrize(
    ("name", "body", "reason"),
    [
        ("a.pdf", b"", "it holds no text"),
        ("a.pdf", b"plain text", "it is no PDF"),
        ("a.docx", b"plain text", "it is no DOCX"),
        ("a.pdf", b"%PDF-1.4 cut short", "damaged"),
        ("a.pdf", text_pdf([]), "no text"),
        ("a.docx", zipped({"other.xml": "<x/>"}), "no document that can be read"),
        ("a.docx", docx("Title", "text")[:-40], "damaged"),
        ("a.docx", encrypted(), "locked by a password"),
        ("a.docx", bomb(), "larger inside than outside"),
        ("a.docx", zipped({f"p{number}": "" for number in range(10_001)}), "larger inside than outside"),
        ("a.docx", document(b"<not xml"), "damaged"),
        ("a.docx", document(b"<w:document " + W.encode() + b"><w:body/></w:document>"), "no text"),
        ("a.epub", epub("Pictures", "<img src='a.png'>"), "no text"),
        ("a.txt", text_pdf(["hidden in a text"]), "not text"),
        ("a.txt", docx("hidden", "in a text"), "not text"),
        ("a.md", bytes(range(256)) * 20, "not text"),
        ("a.md", b" \n ", "it holds no text"),
        ("a.html", b"<!-- nothing -->", "it holds no text"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_says_why(name: str, body: bytes, reason: str) -> None:
    with pytest.raises(Unavailable, match=reason):
        read_passages(name, body)


def test_entities_are_not_resolved() -> None:
    outside = b'<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/hostname">]>'
    text = b"<w:p><w:r><w:t>before &x; after</w:t></w:r></w:p>"
    body = document(outside + b"<w:document " + W.encode() + b"><w:body>" + text + b"</w:body></w:document>")
    assert "before" in read_document("a.docx", body).text
    assert read_document("a.docx", body).text.strip() == "before"
    with pytest.raises(Unavailable):
        read_document("a.docx", document(ENTITIES))


def test_names_of_parts_stay_names() -> None:
    """Nothing is unpacked to anywhere, and a book's parts are looked up in the archive alone."""
    body = epub("Book", "<p>Text of a chapter.</p>")
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["OEBPS/book.opf"] = parts["OEBPS/book.opf"].replace(b'href="c%200.xhtml"', b'href="../../../../etc/hostname"')
    with pytest.raises(Unavailable, match="no text"):
        read_document("a.epub", zipped(parts))


@given(st.data())
def test_damaged_archives_are_refused_in_words(data: st.DataObject) -> None:
    whole = data.draw(
        st.sampled_from([docx("T", "text", modified="2024-01-01"), pptx(slide("T", "x")), epub("T", "<p>x y z")])
    )
    body = bytearray(whole)
    for place in data.draw(st.lists(st.integers(4, len(whole) - 1), max_size=8)):
        body[place] = data.draw(st.integers(0, 255))
    with suppress(Unavailable):  # and nothing else
        read_document("a.docx", bytes(body[: data.draw(st.integers(4, len(whole)))]))


def test_only_short_plain_text_goes_without_a_process() -> None:
    assert needs_no_parser("a.md", 1000)
    assert not needs_no_parser("a.md", 100_000)
    assert not any(needs_no_parser(f"a{kind}", 10) for kind in (".html", ".pdf", ".docx", ".epub", ".pptx"))


def test_a_pdf_bomb_is_not_for_this_process() -> None:
    assert not needs_no_parser("a.pdf", len(pdf_bomb()))


# Passages


@given(st.text(st.sampled_from("ab .\n#=-東กิ"), max_size=3000))
def test_every_word_is_in_a_passage(text: str) -> None:
    passages = list(split_passages(text))
    assert "".join("".join(piece.split()) for _, piece in passages) == "".join(text.split())
    assert all(len(piece) <= MOST for _, piece in passages)


def test_passages_know_the_nearest_heading() -> None:
    text = "# One\n\n" + "first words. " * 40 + "\n\nTwo\n===\n\n" + "second words. " * 120
    found = [(heading, piece.split()[-2:]) for heading, piece in split_passages(text)]
    assert found[0] == ("One", ["first", "words."])
    assert {heading for heading, _ in found[1:]} == {"Two"}
    assert len(found) >= 4


def test_what_announces_something_stays_with_it() -> None:
    text = f"{'Words before it. ' * 12}\n\nThese are the steps:\n\n{'Turn the key and wait. ' * 20}"
    assert any("steps:\n\nTurn the key" in piece for _, piece in split_passages(text))


def test_no_passage_is_a_short_rest() -> None:
    text = "\n\n".join("A sentence of the text. " * (number * 5 % 70 + 8) for number in range(60))
    assert min(len(piece) for _, piece in split_passages(text)) >= 100


def test_small_sections_share_a_passage() -> None:
    assert len(list(split_passages("# Title\n\n## A\n\na few words\n\n## B\n\na few more"))) == 1


def test_words_are_compared_without_accents_and_in_one_form() -> None:
    assert index_words("Cafés") == index_words("cafe")
    assert question_words("cafe cafés café", 9) == [index_words("cafe")]
    assert index_words("서울") == index_words("서울")


# In words


def report(**given: object) -> Report:
    facts = {"documents": 2, "equal": 0, "skipped": [], "kinds": Counter(), "kept": True, "progress": Progress(2, 2)}
    return Report(**(facts | given))  # type: ignore[arg-type]


def test_a_summary() -> None:
    assert summary(report()) == "2 indexed"
    skipped = [
        ("a.pdf", "the file is locked by a password"),
        ("b.md", "larger than max_file_size"),
        ("c", "it holds no text"),
    ]
    said = summary(report(documents=1440, equal=3, skipped=skipped, kinds=Counter({".png": 20, "": 1}), kept=False))
    assert said == (
        "1,440 indexed (3 of them equal to others), 24 skipped: 21 of another kind (.png 20, without an ending 1); "
        "1 because the file is locked by a password; 1 larger than max_file_size; 1 because it holds no text; "
        "the index is in memory"
    )
    assert summary(report(progress=Progress(300, 1440))) == "300 of 1,440 documents are read so far"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere() -> None:
    steps = [Progress(0, 0), *(Progress(number, 100) for number in range(0, 101, 5))]
    for stream in (Terminal(), io.StringIO()):
        shown = ShownProgress("docs", stream)
        for step in steps:
            shown(step)
        shown.end()
        written = stream.getvalue()
        if stream.isatty():
            assert "\rdocs" not in written
            assert written.count("\r\x1b[K") == 21
            assert "docs: indexing ███████████████░░░░░░░░░░░░░░░ 50 of 100" in written
            assert written.endswith("\r\x1b[K")
        else:
            assert written.splitlines()[:2] == [
                "docs: indexing, 0 of 100 documents are ready",
                "docs: indexing, 10 of 100 documents are ready",
            ]
            assert len(written.splitlines()) == 10


def test_core_properties_without_a_day_say_none() -> None:
    parts = {"word/document.xml": f"<w:document {W}><w:body>{word_paragraph('x')}</w:body></w:document>"}
    assert read_document("a.docx", zipped({**parts, "docProps/core.xml": core(modified="yesterday")})).date is None
