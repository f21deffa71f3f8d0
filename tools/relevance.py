"""Which of several texts speak about a question: BM25, small and self-contained. Handed a question and texts, hands on
one score per text. Used to pick passages of a long page, and by the demo model to pick what it quotes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

# Scripts written without blanks count character by character.
_UNSPACED = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORD = re.compile(f"[{_UNSPACED}]|[^\\W_{_UNSPACED}]+")
# English endings, so that "checked" speaks about "check"; what is left must still look like a word.
_ENDING = re.compile(r"(?<=\w{3})(?:ations?|ings?|ed|es|(?<!s)s|e)$")
_COMMON_WORDS = (
    "a about an and any are as at be been but by can could did do does for from had has have how i if in into is it "
    "its me my no not of on or our so tell than that the their them then there these they this to us was we were what "
    "when where which who whom why will with would you your"
)
_COMMON = frozenset(_COMMON_WORDS.split())


def terms(text: str) -> list[str]:
    """The words that carry meaning, in lower case, endings cut; all words if every one is common."""
    words = [word.casefold() for word in _WORD.findall(text)]
    telling = [word for word in words if word not in _COMMON] or words
    return [_ENDING.sub("", word) for word in telling]


def relevance(question: str, texts: Sequence[str]) -> list[float]:
    """One BM25 score per text; 0.0 where no word of the question occurs."""
    wanted = set(terms(question))
    counts = [Counter(terms(text)) for text in texts]
    lengths = [count.total() for count in counts]
    usual = sum(lengths) / len(lengths) if any(lengths) else 1.0
    weights = {}
    for term in sorted(wanted):  # sorted: floating sums must not depend on the order of a set
        holding = sum(term in count for count in counts)
        weights[term] = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
    return [
        sum(
            weight * count[term] * 2.2 / (count[term] + 1.2 * (0.25 + 0.75 * length / usual))
            for term, weight in weights.items()
            if term in count
        )
        for count, length in zip(counts, lengths, strict=True)
    ]
