"""Pages that mean harm, as bodies for a page server, and a look at the processes that read them and what they hold."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

# Attributes are looked for one by one, so that so many of them keep the parser busy for minutes.
STUCK = b"<p " + b" ".join(b"a%d=x" % number for number in range(200_000)) + b">text</p>"
DEEP = b"<div>" * 100_000 + b"so deep" + b"</div>" * 100_000
ENTITIES = (
    b'<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "lol">'
    + b"".join(b'<!ENTITY %c "%s">' % (98 + n, b"&%c;" % (97 + n) * 10) for n in range(9))
    + b"]><html><body><p>&j;</p></body></html>"
)


@cache
def gzip_bomb(piece: bytes, times: int) -> bytes:
    """Small, and `times` the piece when it is inflated."""
    check = 0
    for _ in range(times):
        check = zlib.crc32(piece, check)
    head = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
    return head + _deflated(piece, times) + struct.pack("<II", check, times * len(piece))


def _deflated(piece: bytes, times: int) -> bytes:
    """The piece is packed once, and stands there many times over."""
    packer = zlib.compressobj(9, wbits=-15)
    return (packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)) * times + b"\x03\x00"


@cache
def pdf_bomb() -> bytes:
    """Less than a megabyte that becomes more than a gigabyte at once: one page with nothing but spaces."""
    piece, times, check = b" " * 1_000_000, 700, 1
    for _ in range(times):
        check = zlib.adler32(piece, check)
    return pdf([b"\x78\xda" + _deflated(piece, times) + struct.pack(">I", check)])


def pdf(pages: Iterable[bytes]) -> bytes:
    """A PDF of these pages, each as a packed stream of what is drawn."""
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    parts, kids = [b"<< /Type /Catalog /Pages 2 0 R >>", b"", font], []
    for packed in pages:
        parts.append(b"<< /Length %d /Filter /FlateDecode >>\nstream\n%b\nendstream" % (len(packed), packed))
        parts.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> "
            b"/Contents %d 0 R >>" % len(parts)
        )
        kids.append(b"%d 0 R" % len(parts))
    parts[1] = b"<< /Type /Pages /Count %d /Kids [%b] >>" % (len(kids), b" ".join(kids))
    text, places = bytearray(b"%PDF-1.4\n"), []
    for number, part in enumerate(parts, 1):
        places.append(len(text))
        text += b"%d 0 obj\n%b\nendobj\n" % (number, part)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(parts) + 1
    end = b"xref\n0 %d\n0000000000 65535 f \n%btrailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF"
    return bytes(text) + end % (size, table, size, len(text))


def page_processes(parent: int | None = None) -> set[int]:
    """The processes in which a process, ours unless told, reads pages."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended while we looked
            above = (process / "stat").read_text().rpartition(")")[2].split()[1]
            if int(above) == (parent or os.getpid()) and b"providers.web.worker" in (process / "cmdline").read_bytes():
                found.add(int(process.name))
    return found


def memory(process: int, what: str = "VmRSS") -> float:
    """Megabytes that a process holds, or held at the most (`VmHWM`); none once it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith(what):
                return int(line.split()[1]) / 1024
    return 0.0
