"""What of a PDF's page nobody sees: handed a page, takes the text out of it that is not painted, has no colour, is too
small to read or white on white, before its text is read. Over a picture that fills the page unpainted text stays:
scanned books carry their words like that.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..records import dataclass

if TYPE_CHECKING:
    import pypdfium2

MOST_OBJECTS = 20_000  # of one page: looking at each takes some microseconds
_MOST_SHAPES = 500
_UNPAINTED = (3, 7)  # text rendering modes
_SMALLEST = 1.5  # points
_WHITE = 245  # of 255
_SCAN = 0.4  # of the page

Box = tuple[float, float, float, float]


@dataclass(slots=True)
class _Shapes:
    """What is painted besides text."""

    boxes: list[Box]
    scanned: bool = False

    def under(self, box: Box) -> bool:
        left, bottom, right, top = box
        return any(
            west < right and east > left and south < top and north > bottom for west, south, east, north in self.boxes
        )


def remove_unseen(page: pypdfium2.PdfPage) -> None:
    from pypdfium2 import raw

    objects = list(_objects(raw, page))
    texts = [(holder, one) for holder, one, kind in objects if kind == raw.FPDF_PAGEOBJ_TEXT]
    suspects = [(holder, one, how) for holder, one in texts if (how := _suspicion(raw, one))]
    if not suspects:
        return
    shapes = _shapes(raw, page, [(one, kind) for holder, one, kind in objects if kind != raw.FPDF_PAGEOBJ_TEXT])
    for holder, one, how in suspects:
        if how == "unpainted" and shapes.scanned:
            continue
        if how == "white" and (holder is not None or shapes.under(_box(raw, one))):
            continue
        if holder is None:
            raw.FPDFPage_RemoveObject(page, one)
        else:
            raw.FPDFFormObj_RemoveObject(holder, one)
        raw.FPDFPageObj_Destroy(one)


def _objects(raw: Any, page: pypdfium2.PdfPage) -> Iterator[tuple[Any, Any, int]]:
    """Every object with the form that holds it, if one does, and its kind."""
    left = MOST_OBJECTS
    rest: list[tuple[Any, int]] = [(None, raw.FPDFPage_CountObjects(page))]
    while rest:
        holder, count = rest.pop()
        for at in range(min(count, left)):
            one = raw.FPDFPage_GetObject(page, at) if holder is None else raw.FPDFFormObj_GetObject(holder, at)
            kind = raw.FPDFPageObj_GetType(one)
            yield holder, one, kind
            if kind == raw.FPDF_PAGEOBJ_FORM and len(rest) < 100:
                rest.append((one, raw.FPDFFormObj_CountObjects(one)))
        left -= min(count, left)


def _suspicion(raw: Any, text: Any) -> str:
    """Why it may not be seen, or nothing."""
    red, green, blue, alpha = (ctypes.c_uint() for _ in range(4))
    painted = raw.FPDFPageObj_GetFillColor(text, red, green, blue, alpha)
    if painted and alpha.value == 0:
        return "transparent"
    if _size(raw, text) < _SMALLEST:
        return "small"
    if raw.FPDFTextObj_GetTextRenderMode(text) in _UNPAINTED:
        return "unpainted"
    return "white" if painted and min(red.value, green.value, blue.value) >= _WHITE else ""


def _size(raw: Any, text: Any) -> float:
    size, matrix = ctypes.c_float(), raw.FS_MATRIX()
    if not raw.FPDFTextObj_GetFontSize(text, size) or not raw.FPDFPageObj_GetMatrix(text, matrix):
        return _SMALLEST
    return float(abs(size.value) * max(abs(matrix.c), abs(matrix.d)))


def _shapes(raw: Any, page: pypdfium2.PdfPage, others: list[tuple[Any, int]]) -> _Shapes:
    width, height = page.get_size()
    shapes = _Shapes([])
    for one, kind in others:
        box = _box(raw, one)
        if kind == raw.FPDF_PAGEOBJ_IMAGE and (box[2] - box[0]) * (box[3] - box[1]) >= _SCAN * width * height:
            shapes.scanned = True
        if len(shapes.boxes) < _MOST_SHAPES and (kind != raw.FPDF_PAGEOBJ_PATH or _is_dark(raw, one)):
            shapes.boxes.append(box)
    return shapes


def _is_dark(raw: Any, path: Any) -> bool:
    """Is it filled with something other than white?"""
    mode, stroked = ctypes.c_int(), ctypes.c_int()
    raw.FPDFPath_GetDrawMode(path, mode, stroked)
    red, green, blue, alpha = (ctypes.c_uint() for _ in range(4))
    known = raw.FPDFPageObj_GetFillColor(path, red, green, blue, alpha)
    return bool(mode.value) and (not known or min(red.value, green.value, blue.value) < _WHITE)


def _box(raw: Any, one: Any) -> Box:
    sides = [ctypes.c_float() for _ in range(4)]
    raw.FPDFPageObj_GetBounds(one, *sides)
    left, bottom, right, top = (side.value for side in sides)
    return left, bottom, right, top
