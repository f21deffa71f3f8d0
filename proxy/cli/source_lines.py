"""The list of sources below an answer, as lines. Handed a gathered answer; `verbose` adds the passage that each
citation rests on. What of a sentence is not in its source is always said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tools.ledger import Source

from ..values.events import Citation, Proof
from .gathered_answer import GatheredAnswer
from .terminal_text import address, harmless, linked, title, wrapped

_INDENT = "    "
_ONLY_READ = "Read, not cited:"

Show = Callable[[str], str]


class SourceLines:
    """On a terminal addresses are links and what stands beside the text is faint, else all is plain. `columns`: how
    wide passages may be; 0: as wide as they are."""

    def __init__(self, *, verbose: bool, terminal: bool, colour: bool, columns: int = 0) -> None:
        self._verbose = verbose
        self._columns = columns
        self._address: Show = linked if terminal else address
        self._faint: Show = _faint if colour else str
        self._strong: Show = _strong if colour else str

    def lines(self, answer: GatheredAnswer) -> list[str]:
        """With an empty line before each source."""
        out: list[str] = []
        for n, citations in answer.cited.items():
            out += ["", *self._cited(n, citations)]
        if answer.only_read:
            out += ["", _ONLY_READ]
            for source in answer.only_read:
                out += self._source(source)
        return out

    def _cited(self, n: int, citations: Sequence[Citation]) -> list[str]:
        """Where it is, what it says about the first sentence that cites it, and what of all of them is not in it."""
        proof = citations[0].proof
        missing = dict.fromkeys(words for citation in citations for words in citation.proof.unmatched)
        auto = all(citation.auto for citation in citations)
        more = [
            *([_quoted(proof)] if self._verbose and proof.quote else []),
            *([f"not in it: {_flat('; '.join(missing))}"] if missing else []),
            *(["marked by Groundwire, not by the model"] if self._verbose and auto else []),
        ]
        lines = [line for said in more for line in self._laid_out(said)]
        return [*self._source(citations[0].source), *map(self._faint, lines)]

    def _laid_out(self, text: str) -> list[str]:
        return wrapped(text, self._columns, _INDENT) if self._columns else [_INDENT + text]

    def _source(self, source: Source) -> list[str]:
        head = f"[{source.n}] "
        return [self._strong(head + title(source.title)), _INDENT + self._address(source.url)]


def _quoted(proof: Proof) -> str:
    """The passage, and what of the source it is; nobody knows that of one that an earlier answer cited."""
    passage = f"“{_flat(proof.quote)}”"
    return f"{proof.basis}: {passage}" if proof.basis else passage


def _flat(text: str) -> str:
    return harmless(" ".join(text.split()))


def _faint(text: str) -> str:
    return f"\x1b[2m{text}\x1b[0m"


def _strong(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m"
