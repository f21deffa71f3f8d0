"""What stands of a page in what the model was given. Handed the result of a call and its sources; hands on the text of
each page without the lines that are ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tools.ledger import Source

_FENCED = re.compile(r"<<<(web-[0-9a-f]{16})\n(.*?)\n\1>>>", re.DOTALL)


def pages_in(text: str, sources: Sequence[Source]) -> Iterator[tuple[Source, str]]:
    for fenced in _FENCED.finditer(text):
        head, _, content = fenced[2].partition("\n\n")
        for source in sources:
            if any(source.url in line for line in head.split("\n")):
                yield source, content
                break
