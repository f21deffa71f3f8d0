"""The text that people see, with its citations. Handed text and the sources that are cited in it, in order; hands on
both in the configured style, each citation with its place, and the list of sources at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tools.ledger import Source

from ..values.events import Citation, Proof, TextDelta
from ..values.request import CitationStyle
from .cited_sources import CitedSources
from .marker_forms import AUTO_LEAD, FOOTER_HEAD, SURE_LEAD, footer_line, marker_text

BLANKS = " \t\u00a0\u202f\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u205f"
MOST_BLANKS = 8  # that are held back


def keeps_blanks(style: CitationStyle) -> bool:
    """`none` removes the blanks before a marker and `openai` makes them one: these two hold blanks back."""
    return style in ("none", "openai")


class CitedText:
    """`shown` and `taken`: see `CitedSources`."""

    def __init__(self, style: CitationStyle, footer: bool, shown: Mapping[str, int], taken: Collection[int]) -> None:
        self.sources = CitedSources(shown, taken, counted=style != "number")
        self.keeps_blanks = keeps_blanks(style)
        self.shows_markers = style != "none"
        self._style = style
        self._footer = footer
        self._length = 0  # of all text handed on
        self._last = "\n"  # its last character; none behind a marker
        self._blanks = ""
        self._out: list[str] = []
        self._citations: list[Citation] = []

    @property
    def holds_blanks(self) -> bool:
        return bool(self._blanks)

    def pass_on(self, text: str) -> None:
        """It is handed on by others, and nothing is held."""
        self._length += len(text)
        self._last = text[-1]

    def put(self, text: str) -> None:
        text = self._blanks + text
        stop = len(text)
        if self.keeps_blanks:
            stop = max(len(text.rstrip(BLANKS)), stop - MOST_BLANKS)
        self._blanks = text[stop:]
        self._write(text[:stop])

    def release_blanks(self) -> None:
        blanks, self._blanks = self._blanks, ""
        self._write(blanks)

    def cite(self, source: Source, proof: Proof, *, auto: bool = False) -> None:
        number, source = self.sources.cite(source)
        marker = marker_text(number, source, self._style)
        if auto:
            self.release_blanks()  # the model's own
        lead = self._lead(marker, auto)
        self._blanks = ""
        self._write(lead + marker)
        self._last = ""
        self._citations.append(Citation(self._length - len(marker), self._length, source, proof, auto))

    def put_footer(self) -> None:
        """Once, where it is wanted and something is cited."""
        if self._footer and self.sources:
            self.put(FOOTER_HEAD + "\n".join(footer_line(*row) for row in self.sources.numbered()))
            self._footer = False

    def take(self) -> list[TextDelta | Citation]:
        """What is new."""
        text = "".join(self._out)
        events: list[TextDelta | Citation] = [TextDelta(text)] if text else []
        events += self._citations
        self._out, self._citations = [], []
        return events

    def _lead(self, marker: str, auto: bool) -> str:
        """What stands between the text and this marker."""
        if auto:
            return (AUTO_LEAD if marker.startswith("[[") else SURE_LEAD) if marker else ""
        if self._last == AUTO_LEAD and marker and not self._blanks:
            return " "  # the model's own hair space must not make this a marker of ours
        if self._style == "openai":
            return " " if self._blanks or not self._last.isspace() else ""
        return " " if self._last == "!" and marker.startswith("[[") else ""  # a link right after `!` would be an image

    def _write(self, text: str) -> None:
        if text:
            self._out.append(text)
            self._length += len(text)
            self._last = text[-1]
