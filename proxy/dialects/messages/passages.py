"""What a source says about a claim, in one sentence. Handed the claim and what the model was given of the source; hands
on the sentence that speaks most about it, verbatim and short. Never nothing: a title stands in for a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from providers.text.relevance import relevance
from tools.ledger import Source

LONGEST = 150  # characters, as this API has it
_MOST_SENTENCES = 400  # of a page; a citation is not worth more time
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|(?<=[。！？])|\n+")
_FENCED = re.compile(r"<<<(web-[0-9a-f]{16})\n(.*?)\n\1>>>", re.DOTALL)


def best_sentence(claim: str, given: str, title: str) -> str:
    sentences = [said for part in _SENTENCE_END.split(given) if (said := part.strip(" \t*_#>|-"))]
    sentences = sentences[:_MOST_SENTENCES]
    if not sentences:
        return _short(title)
    scores = relevance(claim, sentences)
    return _short(sentences[scores.index(max(scores))])


def _short(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    cut = text[: LONGEST + 1].rsplit(None, 1)[0]
    return cut if len(cut) <= LONGEST else text[:LONGEST]


def pages_in(text: str, sources: Sequence[Source]) -> Iterator[tuple[Source, str]]:
    """What stands of each page in what the model was given, without the lines that are ours."""
    for fenced in _FENCED.finditer(text):
        head, _, content = fenced[2].partition("\n\n")
        for source in sources:
            if any(source.url in line for line in head.split("\n")):
                yield source, content
                break
