"""What is searched before a model that cannot call tools is asked, where nobody but Groundwire decides: its fallback,
without a model. Handed nothing but the table of messages of the tests; hands on counts for each part of the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from proxy.answering.query_plan import Planner
from tests.fakes.first_searches import TABLE, rows

PARTS = ("tuned", "held out", "afterwards")
KINDS = {
    "private": "searched though private",
    "needless": "searched though needless",
    "search": "not searched though needed",
}
Counts = Counter[tuple[str, str]]  # by part and kind


def measure() -> tuple[Counts, Counts]:
    """How many messages there are, and for how many the decision is wrong."""
    there, wrong = Counts(), Counts()
    for row in rows():
        searched = Planner([{"role": "user", "content": row.text}]).alone().query != ""
        there[row.part, row.wanted] += 1
        wrong[row.part, row.wanted] += searched != (row.wanted == "search")
    return there, wrong


def lines() -> Iterator[str]:
    there, wrong = measure()
    yield f"Decisions: what is searched of {there.total()} messages where no model says what, or nothing of use"
    yield f"{'':28}" + "".join(f"{part:>14}" for part in PARTS)
    for kind, said in KINDS.items():
        shares = [f"{wrong[part, kind]} of {there[part, kind]}" for part in PARTS]
        yield f"{said:28}" + "".join(f"{share:>14}" for share in shares)
    yield f"\n{TABLE.relative_to(TABLE.parents[2])}: every third message was held out."
