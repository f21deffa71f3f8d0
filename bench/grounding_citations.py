"""How well the source of a sentence is found, and how often `unmatched` speaks. Handed the folder with ExpertQA's
answers (`val.jsonl`: answers of retrieve-and-read systems, their sources, and which of these each claim cites); hands
on figures for each half of the answers. Half of them, by a hash of the question, chose the numbers in
`proxy/answering/plain_support.py`; the other half was not looked at for that.

    .venv/bin/python bench/grounding_citations.py ../shared/data/expertqa
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.answering.citations import Citer
from proxy.answering.plain_support import plain_source, ranked
from proxy.answering.proofs import proof
from proxy.answering.source_texts import SourceTexts
from proxy.values.events import Citation
from tools.ledger import Ledger, Source

DATA = "val.jsonl"
_MARKERS = re.compile(r"\s*(?:\[\d{1,3}\])+")


@dataclass(slots=True)
class Figures:
    answers: int = 0
    claims: int = 0
    cited: int = 0  # claims that have evidence in the data
    right: int = 0  # of these, how often the best source is one that the claim cites
    marked: int = 0
    marked_with_evidence: int = 0
    marked_right: int = 0
    streamed: int = 0  # markers that the citer put into the answers, fed as one text without theirs
    seconds: float = 0.0  # of all claims together, the reading of their sources among them
    citations: int = 0  # each claim with each source that it cites
    with_quote: int = 0
    with_unmatched: int = 0
    false_alarms: int = 0  # unmatched words that stand in the source, letter for letter
    listed: list[tuple[str, tuple[str, ...], str]] = field(default_factory=list)

    def rates(self) -> dict[str, float]:
        return {
            "right source": _share(self.right, self.cited),
            "precision, marked claims with evidence": _share(self.marked_right, self.marked_with_evidence),
            "precision, all marked claims": _share(self.marked_right, self.marked),
            "recall": _share(self.marked_right, self.cited),
            "citations with a quote": _share(self.with_quote, self.citations),
            "citations with unmatched words": _share(self.with_unmatched, self.citations),
            "microseconds a claim": round(1e6 * self.seconds / max(self.claims, 1)),
        }


def half_of(question: str) -> str:
    return "held out" if hashlib.sha256(question.encode()).digest()[0] % 2 else "tuning"


def measure(folder: Path) -> dict[str, Figures] | str:
    """Figures for each half, or why there are none."""
    if not (folder / DATA).is_file():
        return f"no {DATA} in {folder}: citations are not measured"
    halves = {"tuning": Figures(), "held out": Figures()}
    for line in (folder / DATA).read_text("utf-8").splitlines():
        row = json.loads(line)
        _measure_answer(row, halves[half_of(row["question"])])
    return halves


def _measure_answer(row: dict[str, Any], figures: Figures) -> None:
    ledger = Ledger()
    sources = dict(_sources(row, ledger))
    numbers = {source.n: number for number, source in sources.items()}
    texts = SourceTexts()
    figures.answers += 1
    figures.streamed += _streamed_markers(_without_markers(row["answer"]), ledger)
    for claim in row["claims"]:
        _measure_claim(_without_markers(claim["text"]), claim["cited"], texts, sources, numbers, figures)


def _sources(row: dict[str, Any], ledger: Ledger) -> Iterator[tuple[int, Source]]:
    """Two of them may be passages of one page: each has an address of its own here."""
    for number, said in row["sources"].items():
        known = ledger.add(f"https://source-{number}.example/")
        yield int(number), ledger.give(known.n, said["text"], "page")


def _measure_claim(
    text: str,
    cited: list[int],
    texts: SourceTexts,
    sources: dict[int, Source],
    numbers: dict[int, int],
    figures: Figures,
) -> None:
    began = time.perf_counter()
    marked = plain_source(text, texts, list(sources.values()))
    figures.seconds += time.perf_counter() - began
    best = ranked(text, texts, list(sources.values()))
    figures.claims += 1
    figures.cited += bool(cited)
    figures.right += bool(best) and numbers[best[0][2].n] in cited
    if marked:
        figures.marked += 1
        figures.marked_with_evidence += bool(cited)
        figures.marked_right += numbers[marked.n] in cited
    for number in cited:
        if number in sources:
            _measure_proof(text, sources[number], texts, figures)


def _measure_proof(text: str, source: Source, texts: SourceTexts, figures: Figures) -> None:
    made = proof(text, source, texts)
    figures.citations += 1
    figures.with_quote += bool(made.quote)
    figures.with_unmatched += bool(made.unmatched)
    figures.false_alarms += sum(any(_stands_in(words, given) for given in source.given) for words in made.unmatched)
    if made.unmatched:
        figures.listed.append((text, made.unmatched, " ".join(source.given)))


def _stands_in(words: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(words)}(?!\w)", text) is not None


def _streamed_markers(answer: str, ledger: Ledger) -> int:
    texts = SourceTexts()
    citer = Citer(ledger.get, texts=texts)
    citer.mark_sentences(lambda sentence: plain_source(sentence, texts, list(ledger)))
    return sum(isinstance(event, Citation) for event in (*citer.feed(answer), *citer.flush()))


def _without_markers(text: str) -> str:
    return _MARKERS.sub("", text)


def _share(part: int, whole: int) -> float:
    return round(part / whole, 3) if whole else 0.0


def lines(folder: Path) -> Iterable[str]:
    """The figures as text, for whoever prints them."""
    made = measure(folder)
    if isinstance(made, str):
        yield made
        return
    for half, figures in made.items():
        yield f"{half}: {figures.answers} answers, {figures.claims} claims, {figures.cited} of them with evidence"
        yield from (f"  {name}: {value:g}" for name, value in figures.rates().items())
        yield f"  markers put into the streamed answers: {figures.streamed} (claims marked: {figures.marked})"
        yield f"  unmatched words that do stand in the source: {figures.false_alarms}"


if __name__ == "__main__":
    print("\n".join(lines(Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/data/expertqa"))))
