"""The citer: turns the model's `[n]` markers into citations while the text streams by, and marks sentences that have
none where it is told to. Handed text in pieces and a way to look a number up; hands on text in the configured style and
a `Citation` per marker, with its proof. Whatever the pieces, the outcome is the same. Most text has nothing in it that
could matter, and passes after one look; for the rest there is a reader, which is made when it is first needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from tools.ledger import Source

from ..values.events import Citation, TextDelta
from ..values.request import CitationStyle
from .cited_text import CitedText, keeps_blanks
from .marker_reader import MarkerReader, special_in
from .source_texts import SourceTexts

_MOST_PASSED = 256  # pieces of text that nobody has looked at yet
_MOST_UNREAD = 4000  # characters of these: some milliseconds of work, where they are hostile
_PROSE_BEGINS = re.compile(r"\s*[^\s{\[]")  # an answer that begins like a JSON object or list may be one


class Citer:
    """`lookup` is asked when a marker is complete. `enabled=False` passes everything on untouched. `shown` are the
    pages that were cited earlier in the same answer, with the numbers that people see; `taken`: see `CitedSources`.
    `texts` are what proofs are taken from."""

    def __init__(
        self,
        lookup: Callable[[int], Source | None],
        style: CitationStyle = "link",
        footer: bool = False,
        enabled: bool = True,
        shown: Mapping[str, int] | None = None,
        taken: Collection[int] = (),
        texts: SourceTexts | None = None,
    ) -> None:
        self._lookup = lookup
        self._texts = texts
        self._style: CitationStyle = style
        self._footer = footer
        self._shown = shown
        self._taken = taken
        self._written: CitedText | None = None
        self._reader: MarkerReader | None = None  # of this round
        self._source_of: Callable[[str], Source | None] | None = None  # where sentences are marked that have no marker
        self._holds_special = special_in(keeps_blanks(style)).stands_in
        self._plain = False  # does text without a special character just pass? Not before it is known to be prose
        self._passed: list[str] = []  # that the reader does not know yet
        self._enabled = enabled
        self._unread = 0  # characters of these
        self._passes_all = not enabled

    @property
    def cited(self) -> list[Source]:
        """In order of first citation."""
        return list(self._written.sources) if self._written else []

    def mark_sentences(self, source_of: Callable[[str], Source | None]) -> None:
        """From here on a sentence without a marker gets that of the source which `source_of` names for it, if any."""
        self._source_of = source_of
        if not self._passes_all:
            reader = self._informed_reader()
            reader.mark_sentences(source_of)
            self._holds_special = reader.special.stands_in

    def passes(self, text: str) -> bool:
        """Is there nothing to cite in it, and nothing held before it? Then it goes on as it is."""
        if self._passes_all:
            if text and self._written is not None:  # offsets count it, because a later round may cite
                self._written.pass_on(text)
            return bool(text)
        if not text or not (self._plain or self._begins_prose(text)) or self._holds_special(text):
            return False
        self._plain = True
        self._passed.append(text)
        self._unread += len(text)
        if len(self._passed) > _MOST_PASSED or self._unread > _MOST_UNREAD:
            self._informed_reader()
        return True

    def feed(self, text: str) -> list[TextDelta | Citation]:
        if self.passes(text):
            return [TextDelta(text)]
        if not text:
            return []
        reader = self._informed_reader()
        return self._follow(reader, reader.read(text))

    def release(self) -> list[TextDelta | Citation]:
        """What is held back, at the end of a stretch of text. A whole answer ends with `flush`."""
        if self._reader is None and not self._passed:
            return []
        reader = self._informed_reader()
        return self._follow(reader, reader.release())

    def end_round(self) -> list[TextDelta | Citation]:
        """The same where the model is asked again: code, a tag or JSON that it left open do not go on in what it says
        then."""
        held = self.release()
        self._reader, self._plain, self._passes_all = None, False, not self._enabled
        special = special_in(keeps_blanks(self._style), stops=self._source_of is not None)
        self._holds_special = special.stands_in
        return held

    def flush(self) -> list[TextDelta | Citation]:
        if self._written is None:
            return []
        reader = self._informed_reader()
        return self._follow(reader, reader.flush())

    def _begins_prose(self, text: str) -> bool:
        return self._reader is None and _PROSE_BEGINS.match(text) is not None

    def _informed_reader(self) -> MarkerReader:
        """The reader, which knows all text so far."""
        if self._written is None:
            self._written = CitedText(self._style, self._footer, self._shown or {}, self._taken)
        if self._reader is None:
            self._written.keeps_blanks = keeps_blanks(self._style)
            self._reader = MarkerReader(self._lookup, self._texts or SourceTexts(), self._written)
            if self._source_of:
                self._reader.mark_sentences(self._source_of)
        if self._passed:
            self._reader.pass_on("".join(self._passed))
            self._passed.clear()
            self._unread = 0
        return self._reader

    def _follow(self, reader: MarkerReader, out: list[TextDelta | Citation]) -> list[TextDelta | Citation]:
        """What passes from here on depends on where the reader is."""
        self._plain, self._passes_all = reader.is_plain, reader.passes_all
        self._holds_special = reader.special.stands_in
        return out
