"""What an answer may rest on. Handed the ledger of a request; says which source a number stands for, if that may be
cited, and which source plainly holds a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from providers.apart import in_thread
from tools.ledger import KnownSource, Ledger, Source

from ..values.request import LONGEST_QUOTE
from . import plain_support
from .source_texts import SourceTexts

_MOST_LATER = 5000  # characters of sources that are read when they are cited: of hostile ones 40 milliseconds of work


class Grounds:
    """`restored` are sources of earlier answers. Where `read_alone` says so a source counts only if the model was given
    text of the page itself. Of a restored one that may not be known: it counts, because it was cited then."""

    def __init__(
        self,
        ledger: Ledger,
        restored: Mapping[int, KnownSource] | None = None,
        read_alone: Callable[[], bool] = lambda: False,
        longest_quote: int = LONGEST_QUOTE,
    ) -> None:
        self._restored = restored or {}
        self.texts = SourceTexts(self._restored, longest_quote)
        self._ledger = ledger
        self._read_alone = read_alone

    def citable(self, n: int) -> Source | None:
        source = self._ledger.get(n)
        return source if source and (self._counts(source) or self._was_cited(n)) else None

    async def read_aside(self, *, all_of_them: bool) -> None:
        """Reads sources in a thread, before the answer that cites them streams by: the longest, until little is left
        to be read when it is cited; or all, where every sentence will be compared with each."""
        sources = sorted(self._ledger.given(), key=_length, reverse=True)
        left = sum(map(_length, sources))
        aside = []
        for source in sources:
            if left < _MOST_LATER:
                break
            aside.append(source)
            left = left if all_of_them else left - _length(source)
        if aside:
            await in_thread(self.texts.read, aside)

    def plain_source(self, sentence: str) -> Source | None:
        return plain_support.plain_source(
            sentence, self.texts, [source for source in self._ledger.given() if self._counts(source)]
        )

    def _was_cited(self, n: int) -> bool:
        return n in self._restored and self._restored[n].basis is None

    def _counts(self, source: Source) -> bool:
        return source.basis == "page" or not self._read_alone()


def _length(source: Source) -> int:
    return sum(map(len, source.given))
