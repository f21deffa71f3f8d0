"""What an answer may rest on. Handed the ledger of a request; says which source a number stands for, if that may be
cited, and which source plainly holds a sentence.
"""

from __future__ import annotations

from collections.abc import Collection

from tools.ledger import Ledger, Source

from ..values.request import LONGEST_QUOTE
from . import plain_support
from .source_texts import SourceTexts


class Grounds:
    """`restored` are numbers from earlier answers. With `read_alone` a source counts only if the model was given text
    of the page itself; of one from an earlier answer that was so when it was cited there."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        restored: Collection[int] = (),
        read_alone: bool = False,
        longest_quote: int = LONGEST_QUOTE,
    ) -> None:
        self.texts = SourceTexts(restored, longest_quote)
        self._ledger = ledger
        self._restored = restored
        self._read_alone = read_alone

    def citable(self, n: int) -> Source | None:
        source = self._ledger.get(n)
        return source if source and (self._counts(source) or n in self._restored) else None

    def plain_source(self, sentence: str) -> Source | None:
        return plain_support.plain_source(
            sentence, self.texts, [source for source in self._ledger if self._counts(source)]
        )

    def _counts(self, source: Source) -> bool:
        return source.basis == "page" or not self._read_alone
