"""A text that is rewritten on its way out, and the citations in it. Handed what is kept and what is put in place of
what was read, in order; hands on the new text, each citation behind the text that it stands in, at its new place.
"""

from __future__ import annotations

from dataclasses import replace

from ..values.events import Citation, TextDelta

LOOK_BACK = 200


class RewrittenText:
    def __init__(self) -> None:
        self.end = "\n"  # the last LOOK_BACK characters of what is written
        self._out: list[str] = []
        self._read = self._written = 0  # characters, of all there was
        self._waiting: list[Citation] = []
        self._begun: dict[int, int] = {}  # where the citations that wait begin in what is written
        self._placed: list[Citation] = []

    def expect(self, citation: Citation) -> None:
        """It stands in what is read now, or will be next."""
        self._waiting.append(citation)

    def keep(self, text: str) -> None:
        self._write(len(text), text, verbatim=True)

    def put(self, length: int, text: str) -> None:
        """`text` instead of so many characters that were read."""
        self._write(length, text, verbatim=False)

    def take(self) -> list[TextDelta | Citation]:
        """What is new."""
        if self._waiting:
            self._place(0, 0, verbatim=True)  # a citation that is not shown may stand behind all text
        text = "".join(self._out)
        events: list[TextDelta | Citation] = [TextDelta(text)] if text else []
        events += self._placed
        self._out, self._placed = [], []
        return events

    def _write(self, length: int, text: str, *, verbatim: bool) -> None:
        if text:
            self._out.append(text)
            self.end = (self.end + text)[-LOOK_BACK:]
        if self._waiting:
            self._place(length, len(text), verbatim=verbatim)
        self._read += length
        self._written += len(text)

    def _place(self, length: int, written: int, *, verbatim: bool) -> None:
        """Those citations that stand in the next `length` characters. One in what is replaced gets all of that, or its
        end if it is not shown itself."""
        end = self._read + length
        left = []
        for citation in self._waiting:
            if citation.start < end or citation.end <= end:
                self._begun.setdefault(id(citation), self._written + self._begin(citation, written, verbatim))
            if citation.end > end:
                left.append(citation)
                continue
            stop = self._written + (citation.end - self._read if verbatim else written)
            start = self._begun.pop(id(citation))
            shown = citation.start < citation.end
            self._placed.append(replace(citation, start=start, end=max(start, stop) if shown else start))
        self._waiting = left

    def _begin(self, citation: Citation, written: int, verbatim: bool) -> int:
        before = max(citation.start - self._read, 0)
        if verbatim:
            return before
        return written if before and citation.start == citation.end else 0
