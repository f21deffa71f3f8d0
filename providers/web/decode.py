"""What a body is and what it says: bytes and the labels they came with, to a kind (`html`, `pdf`, …) and a string.

Labels lie: pictures come as text/html, pages as image/png, windows-1252 as UTF-8. The bytes have the last word.
"""

from __future__ import annotations

import codecs
import re
from typing import Literal

from .charsets import charset_of

Kind = Literal["html", "pdf", "text", "json", "xml", "binary"]

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_META = re.compile(rb"<(?:meta|\?xml)[^>]{0,200}?(?:charset|encoding)\s*=\s*[\"']?\s*([\w.:-]{2,40})", re.IGNORECASE)
# What browsers take these names for: the wider set that pages really use.
_WIDER = {
    "ascii": "cp1252", "us-ascii": "cp1252", "iso-8859-1": "cp1252", "latin1": "cp1252", "latin-1": "cp1252",
    "gb2312": "gb18030", "gbk": "gb18030", "x-gbk": "gb18030",
    "shift_jis": "cp932", "shift-jis": "cp932", "sjis": "cp932", "x-sjis": "cp932",
    "euc-kr": "cp949", "ks_c_5601-1987": "cp949", "big5": "big5hkscs", "x-euc-jp": "euc-jp",
}  # fmt: skip
_TEXT_CHARSET = re.compile(
    r"utf-?(8|16|32)|cp\d|windows-?\d|iso-?(8859|2022)|koi8|gb|big5|euc|mac|tis|hz", re.IGNORECASE
)

_MAGIC = (
    b"\x89PNG", b"\xff\xd8\xff", b"BM\x00", b"II*\0", b"MM\0*", b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b",
    b"7z\xbc\xaf", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"\x7fELF", b"MZ\x90", b"\xd0\xcf\x11\xe0", b"\0\0\1\0",
    b"\xca\xfe\xba\xbe", b"\0asm",
)  # fmt: skip
# A text may begin with these, so that they count only with a byte that no text has.
_LETTERED_MAGIC = (b"GIF8", b"RIFF", b"OggS", b"ID3", b"fLaC", b"BZh", b"Rar!", b"wOFF", b"wOF2")
_CONTROL = bytes(code for code in range(32) if code not in b"\t\n\r\f\x1b")
_HTML = re.compile(rb"\s*(?:<\?xml[^>]*>\s*|<!--.*?-->\s*)*<(?:!doctype html|html|head|body|title|meta)\b", re.I | re.S)
_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})


def sniff(body: bytes, content_type: str) -> Kind:
    head = body[:1024]
    if b"%PDF-" in head:
        return "pdf"
    if _is_binary(head):
        return "binary"
    plain = head if b"\0" not in head else head.replace(b"\0", b"")
    if _HTML.match(plain.removeprefix(codecs.BOM_UTF8)) or (content_type in _HTML_TYPES and b"<" in body):
        return "html"
    if content_type.endswith(("/json", "+json")):
        return "json"
    return "xml" if content_type.endswith(("/xml", "+xml")) or plain.lstrip()[:5] == b"<?xml" else "text"


def decode(body: bytes, charset: str) -> str:
    """Byte order mark, then UTF-8 if it is valid (no other text is so by chance), then what was declared, then what it
    looks like."""
    for mark, name in _BOMS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    if name := _bare_utf16(body):
        return body.decode(name, "replace")
    declared = _declared(body, charset)
    names = [*_of_ascii(body), *declared, "utf-8"] if body.isascii() else ["utf-8", *declared]
    for name in names:
        text = _strictly(body, name)
        if text is not None:
            return text
    return _loosely(body, declared)


def _declared(body: bytes, charset: str) -> list[str]:
    """The character sets that the label and the body itself name, as far as we know them."""
    found = _META.search(body[:4096])
    within = found[1].decode("ascii") if found else ""
    return [name for name in (_known(charset), _known(within)) if name]


def _of_ascii(body: bytes) -> list[str]:
    """ISO-2022-JP is ASCII to the eye; these bytes begin its Japanese."""
    return ["iso2022_jp"] if b"\x1b$B" in body or b"\x1b$@" in body else []


def _loosely(body: bytes, declared: list[str]) -> str:
    """Text in which not every byte is right: UTF-8 with a few broken places, else what was declared, else what it looks
    like."""
    text = body.decode("utf-8", "replace")
    strange = sum(byte > 127 for byte in body[:100_000])
    if text[:100_000].count("\ufffd") * 10 <= strange:
        return text
    said = next((name for name in declared if name != "utf-8"), "")
    return body.decode(said or charset_of(body), "replace")


def _is_binary(head: bytes) -> bool:
    controls = len(head) - len(head.translate(None, _CONTROL))
    if head.startswith(_MAGIC) or (controls and (head.startswith(_LETTERED_MAGIC) or head[4:8] == b"ftyp")):
        return True
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or _bare_utf16(head):
        return False
    return controls > len(head) // 50


def _bare_utf16(body: bytes) -> str:
    """Which UTF-16 it is that has no mark, by its first letters: of ASCII every other byte is nothing."""
    first, second = body[:8:2], body[1:8:2]
    if len(second) == 4 and not any(second) and all(first) and first.isascii():
        return "utf-16-le"
    if len(second) == 4 and not any(first) and all(second) and second.isascii():
        return "utf-16-be"
    return {b"<\0": "utf-16-le", b"\0<": "utf-16-be"}.get(body[:2], "")


def _known(name: str) -> str:
    name = name.strip().lower()
    name = _WIDER.get(name, name)
    if not _TEXT_CHARSET.match(name):
        return ""
    try:
        return codecs.lookup(name).name
    except (LookupError, ValueError):  # labels are anybody's: NULs and halves of characters are in them too
        return ""


def _strictly(body: bytes, name: str) -> str | None:
    """The text if every byte is right; a character that the end of the body cuts is left off."""
    try:
        return codecs.getincrementaldecoder(name)().decode(body)
    except UnicodeError:
        return None
