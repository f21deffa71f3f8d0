"""What a body is, whatever its label says: charsets, kinds, PDF. Extraction as a pure function of bytes."""

from __future__ import annotations

import pytest

from providers.errors import Unavailable
from providers.web.extract import Extracted, extract
from tools.clean import clean
from tools.pages import without_comments
from tools.render import escape

URL = "https://harbour.example/letters/mill.html"
PROSE = "The ferry crosses the sound four times a day, and nobody on the island owns a clock that is trusted more."


def page(inner: str) -> str:
    return f"<html><head><title>Ferry</title></head><body><main><p>{PROSE}</p>{inner}</main></body></html>"


def make_pdf(texts: list[str], *, title: str = "", locked: bool = False) -> bytes:
    """One page for each text."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(texts)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(texts)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(texts):
        drawn = f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET".encode()
        place = f"/Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * number} 0 R"
        objects.append(f"<< /Type /Page {place} /Resources << /Font << /F1 3 0 R >> >> >>".encode())
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawn), drawn))
    objects.append(f"<< /Title ({title}) /CreationDate (D:20210504120000Z) >>".encode())
    body, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    junk = "41" * 32
    lock = f"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <{junk}> /U <{junk}> >> /ID [<00> <00>]" if locked else ""
    trailer = f"trailer << /Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R {lock} >>".encode()
    return body + b"xref\n0 %d\n0000000000 65535 f \n%s%s\nstartxref\n%d\n%%%%EOF" % (
        len(objects) + 1,
        table,
        trailer,
        len(body),
    )


class TestCharsets:
    TEXT = "Zürich – naïve café, Σίσυφος, 日本語のページ、中文网页"

    def html(self, text: str, meta: str = "") -> str:
        return f"<html><head>{meta}<title>{text}</title></head><body><p>{text}</p><p>{PROSE}</p></body></html>"

    @pytest.mark.parametrize(
        ("body_charset", "declared", "text"),
        [
            ("utf-8", "utf-8", TEXT),
            ("utf-8", "", TEXT),
            ("utf-8-sig", "iso-8859-1", TEXT),
            ("utf-8", "iso-8859-1", TEXT),
            ("utf-8", "gb18030", TEXT),
            ("utf-8", "no-such-charset", TEXT),
            ("utf-16", "", TEXT),
            ("utf-16", "utf-8", TEXT),
            ("utf-16-le", "utf-16", TEXT),
            ("utf-16-be", "", TEXT),
            ("gb18030", "gb2312", "中文网页的标题"),
            ("gb18030", "gb18030", TEXT),
            ("shift_jis", "Shift_JIS", "日本語のページ"),
            ("euc-jp", "euc-jp", "日本語のページ"),
            ("iso-2022-jp", "iso-2022-jp", "日本語のページ"),
            ("euc-kr", "euc-kr", "한국어 페이지"),
            ("big5", "big5", "繁體中文網頁"),
            ("windows-1252", "iso-8859-1", "Zürich – “naïve café”"),
            ("windows-1252", "utf-8", "Zürich – “naïve café”"),
            ("windows-1252", "", "Zürich – “naïve café”"),
            ("windows-1251", "windows-1251", "Привет, мир"),
            ("koi8-r", "koi8-r", "Привет, мир"),
        ],
    )
    def test_header(self, body_charset: str, declared: str, text: str) -> None:
        found = extract(self.html(text).encode(body_charset), "text/html", declared, URL)
        assert found.title == text
        assert text in found.text

    @pytest.mark.parametrize("charset", ["gb18030", "shift_jis", "windows-1251"])
    def test_meta(self, charset: str) -> None:
        text = {"gb18030": "中文网页", "shift_jis": "日本語", "windows-1251": "Привет"}[charset]
        for meta in (
            f'<meta charset="{charset}">',
            f'<meta http-equiv=content-type content="text/html; charset={charset}">',
        ):
            assert text in extract(self.html(text, meta).encode(charset), "text/html", "", URL).text

    def test_a_broken_byte_costs_one_character(self) -> None:
        body = self.html(self.TEXT).encode().replace(b"caf\xc3\xa9", b"caf\xff")
        assert self.TEXT.replace("é", "\ufffd", 1) in extract(body, "text/html", "utf-8", URL).text

    def test_a_character_cut_by_the_limit_is_left_off(self) -> None:
        body = self.html("日本語").encode("shift_jis") + "語".encode("shift_jis")[:1]
        assert "日本語" in extract(body, "text/html", "shift_jis", URL).text


class TestKinds:
    @pytest.mark.parametrize("magic", ["ID3", "RIFF", "OggS", "Rar!", "BZh", "GIF8"])
    def test_letters_alone_make_no_binary(self, magic: str) -> None:
        text = f"{magic} is how some files begin. {PROSE}"
        assert extract(text.encode(), "text/plain", "", URL).text == text
        with pytest.raises(Unavailable, match="not text"):
            extract(magic.encode() + b"\x04\0" + PROSE.encode(), "text/plain", "", URL)

    @pytest.mark.parametrize(
        ("body", "content_type"),
        [
            (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(200), "text/html"),
            (b"\xff\xd8\xff\xe0" + bytes(50), "image/jpeg"),
            (b"PK\x03\x04" + bytes(100), "text/plain"),
            (b"\x1f\x8b\x08" + bytes(100), "text/html"),
            (bytes(range(256)) * 4, "application/octet-stream"),
        ],
    )
    def test_binary_is_refused_by_what_it_is(self, body: bytes, content_type: str) -> None:
        with pytest.raises(Unavailable, match="not text"):
            extract(body, content_type, "", URL)

    def test_html_is_read_whatever_its_label(self) -> None:
        for content_type in ("image/png", "application/octet-stream", "text/plain", "application/xml", ""):
            assert "owns a clock" in extract(page("").encode(), content_type, "", URL).text
            assert "<p>" not in extract(page("").encode(), content_type, "", URL).text

    def test_plain_text_and_markdown_are_left_alone(self) -> None:
        text = "# The ferry\n\n* one\n    two  three\n\nSee https://ferry.example/fares."
        for content_type in ("text/plain", "text/markdown", ""):
            found = extract(text.encode(), content_type, "", URL)
            assert found == Extracted("The ferry", text, None, ("https://ferry.example/fares",))

    @pytest.mark.parametrize(
        ("text", "content_type", "url"),
        [
            ("def one():\n    return [1]\n\n\nprint(one()[0])", "text/plain", URL),
            ("return [1]", "text/plain", URL),
            ("const a = [1];\nfunction f(x) {\n  return x[0];\n}", "text/plain", URL),
            ("rows = [1]\n# a note on it\nmore = [2, 3]", "text/plain", URL),
            ("values:\n  - [1]\n  - [2]", "text/plain", "https://e.org/a.yaml?raw=1"),
            ("a <!-- b --> [1]", "text/x-python", URL),
            ("a;b\n1;[1]", "text/csv", URL),
        ],
    )
    def test_programs_stand_in_a_block(self, text: str, content_type: str, url: str) -> None:
        assert extract(text.encode(), content_type, "", url).text == f"```\n{text}\n```"

    def test_nothing_in_a_program_is_changed_on_its_way_to_the_model(self) -> None:
        text = "def one():\n    return [1]  # <!-- [2] -->\n" + " " * 40 + "deep = [3]"
        page = extract(text.encode(), "text/plain", "", URL).text
        assert escape(without_comments(clean(page, 10_000))) == f"```\n{text}\n```"

    def test_the_fence_of_a_program_stands_nowhere_in_it(self) -> None:
        text = "x = [1]\n```\n````\ny = [2]"
        assert extract(text.encode(), "text/plain", "", "https://e.org/a.py").text == f"`````\n{text}\n`````"

    @pytest.mark.parametrize(
        "text",
        [
            "As was shown before [1], the keeper; he wrote:\nreturn to it\nfrom the sea and import tax.\nSee [2].",
            "Dear all,\n\nthe next meeting (on Monday) is off; sorry.\nIf you must know: rain.\n\nYours,\nAda",
            "1. Introduction\n\n   This memo [1] defines a protocol.\n   It is short.\n\n2. Terms\n\n   MUST, MAY.",
            "Read this:\n\n```py\nx = [1]\n```\n\nand that [1].",
        ],
    )
    def test_prose_stays_prose(self, text: str) -> None:
        assert extract(text.encode(), "text/plain", "", URL).text == text

    def test_markdown_that_a_server_sends(self) -> None:
        text = '---\ntitle: "The ferry"\n---\n# Fares\n\n[one](/fares/one) [two](two.md#x) ![p](<p.png>) [a](#a) [b](https://b.org/)'
        found = extract(text.encode(), "text/markdown", "", "https://e.org/docs/ferry")
        assert found.title == "The ferry"
        assert "[one](https://e.org/fares/one) [two](https://e.org/docs/two.md#x)" in found.text
        assert "![p](<https://e.org/docs/p.png>) [a](#a) [b](https://b.org/)" in found.text
        assert found.links[:2] == ("https://e.org/fares/one", "https://e.org/docs/two.md#x")
        assert extract(b"# Fares\n\ntext", "text/markdown", "", URL).title == "Fares"

    def test_json_and_xml_are_fenced(self) -> None:
        assert extract(b'{"a": [1]}', "application/json", "", URL).text == '```json\n{"a": [1]}\n```'
        assert extract(b"<?xml version='1.0'?><a/>", "application/rss+xml", "", URL).text.startswith("```xml\n<?xml")

    def test_entities_of_xml_are_text(self) -> None:
        bomb = b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>'
        assert "root:" not in extract(bomb, "application/xml", "", URL).text

    def test_html_never_expands_entities_of_its_own(self) -> None:
        declared = "".join(f'<!ENTITY e{number + 1} "{f"&e{number};" * 10}">' for number in range(12))
        bomb = f'<!DOCTYPE html [<!ENTITY e0 "boom">{declared}]>' + page("<p>&e12;</p>")
        assert len(extract(bomb.encode(), "text/html", "", URL).text) < 5_000


class TestPdf:
    def test_text_title_and_date(self) -> None:
        found = extract(make_pdf(["First page of it", "Second, see https://a.example/b"], title="Tides"), "", "", URL)
        assert found.title == "Tides"
        assert found.date == "2021-05-04"
        assert found.text == "First page of it\n\nSecond, see https://a.example/b"
        assert found.links == ("https://a.example/b",)

    def test_title_from_the_first_line_and_the_label_does_not_matter(self) -> None:
        assert extract(make_pdf(["First page of it"]), "text/html", "", URL).title == "First page of it"

    def test_no_more_than_two_hundred_pages(self) -> None:
        found = extract(make_pdf(["page"] * 203), "application/pdf", "", URL)
        assert found.text.startswith("[Cut short: these are the first 200 of 203 pages.]\n\npage\n\n")
        assert found.title == "page"
        assert "Cut short" not in extract(make_pdf(["page"] * 3), "application/pdf", "", URL).text

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (make_pdf(["text"])[:60], "damaged"),
            (b"%PDF-1.7\n" + b"x" * 500, "damaged"),
            (make_pdf(["text"], locked=True), "password"),
            (make_pdf([""]), "no text"),
        ],
    )
    def test_refusals_are_sentences(self, body: bytes, message: str) -> None:
        with pytest.raises(Unavailable, match=message):
            extract(body, "application/pdf", "", URL)


def test_data_does_not_end_the_block_that_it_stands_in() -> None:
    body = b'{"a": "x"}\n```\n# Not data'
    assert extract(body, "application/json", "", URL).text == f"````json\n{body.decode()}\n````"
