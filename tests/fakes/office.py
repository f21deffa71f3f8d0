"""Small documents as office programs write them: DOCX, PPTX, EPUB and PDF, made of texts."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from xml.sax.saxutils import escape

from tests.fakes.hostile import pdf

_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_P = (
    'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
)
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
STYLES = (
    f'<w:styles {_W}><w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>'
    '<w:style w:styleId="Titel"><w:name w:val="Title"/></w:style></w:styles>'
)


def zipped(parts: Mapping[str, str | bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return made.getvalue()


def core(title: str = "", modified: str = "") -> str:
    return (
        '<cp:coreProperties xmlns:cp="urn:cp" xmlns:dc="http://purl.org/dc/elements/1.1/" '
        f'xmlns:dcterms="http://purl.org/dc/terms/"><dc:title>{escape(title)}</dc:title>'
        f"<dcterms:modified>{modified}</dcterms:modified></cp:coreProperties>"
    )


def word_paragraph(text: str, style: str = "") -> str:
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{properties}<w:r><w:t>{escape(text)}</w:t></w:r></w:p>"


def docx(heading: str, *paragraphs: str, body: str = "", title: str = "", modified: str = "") -> bytes:
    """`body` is XML that comes last."""
    texts = word_paragraph(heading, "berschrift1") + "".join(map(word_paragraph, paragraphs)) + body
    return zipped(
        {
            "word/document.xml": f"<w:document {_W}><w:body>{texts}</w:body></w:document>",
            "word/styles.xml": STYLES,
            "docProps/core.xml": core(title, modified),
        }
    )


def slide(title: str, *lines: str, show: str = "1") -> str:
    place = '<p:nvSpPr><p:nvPr><p:ph type="title"/></p:nvPr></p:nvSpPr>'
    texts = "".join(f"<a:p><a:r><a:t>{escape(line)}</a:t></a:r></a:p>" for line in lines)
    head = f"<p:sp>{place}<p:txBody><a:p><a:r><a:t>{escape(title)}</a:t></a:r></a:p></p:txBody></p:sp>"
    shapes = f"{head}<p:sp><p:txBody>{texts}</p:txBody></p:sp>"
    return f'<p:sld {_P} show="{show}"><p:cSld><p:spTree>{shapes}</p:spTree></p:cSld></p:sld>'


def pptx(*slides: str, title: str = "") -> bytes:
    """The slides stand in their order; their files are numbered the other way round, as they may be."""
    names = [f"slide{len(slides) - number}" for number in range(len(slides))]
    ids = "".join(f'<p:sldId r:id="r{number}"/>' for number in range(len(slides)))
    relations = "".join(
        f'<Relationship Id="r{number}" Target="slides/{name}.xml"/>' for number, name in enumerate(names)
    )
    return zipped(
        {
            "ppt/presentation.xml": f"<p:presentation {_P}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>",
            "ppt/_rels/presentation.xml.rels": f'<Relationships xmlns="{_RELATIONS}">{relations}</Relationships>',
            "docProps/core.xml": core(title),
            **{f"ppt/slides/{name}.xml": made for name, made in zip(names, slides, strict=True)},
        }
    )


def epub(title: str, *chapters: str, date: str = "", more: Mapping[str, str | bytes] | None = None) -> bytes:
    items = "".join(f'<item id="c{number}" href="c%20{number}.xhtml"/>' for number in range(len(chapters)))
    spine = "".join(f'<itemref idref="c{number}"/>' for number in range(len(chapters)))
    book = (
        '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>'
        f"<dc:title>{escape(title)}</dc:title><dc:date>{date}</dc:date></metadata>"
        f"<manifest>{items}</manifest><spine>{spine}</spine></package>"
    )
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>',
            "OEBPS/book.opf": book,
            **{
                f"OEBPS/c {number}.xhtml": f"<!DOCTYPE html><html><body>{chapter}</body></html>"
                for number, chapter in enumerate(chapters)
            },
            **(more or {}),
        }
    )


def text_pdf(*pages: Iterable[str]) -> bytes:
    """A PDF with these lines on its pages."""
    return pdf(zlib.compress(_drawn(list(lines))) for lines in pages)


def _drawn(lines: list[str]) -> bytes:
    shown = [line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)") for line in lines]
    moves = " T* ".join(f"({line}) Tj" for line in shown)
    return f"BT /F1 11 Tf 14 TL 60 740 Td {moves} ET".encode("latin-1")
