"""What was read before a question, for a model that cannot call tools, stands in the user's message between fences of
ours. Handed such a text; hands on what the user wrote of it.
"""

from __future__ import annotations

import re
from itertools import islice

_FENCE = re.compile(r"<<<(web-[0-9a-f]{16})\n")
_MOST_FENCES = 100  # in one text; more are nobody's but an attacker's


def without_reading(text: str) -> str:
    """Less what stands between our fences."""
    if "<<<web-" not in text:
        return text
    kept, at = [], 0
    for opened in islice(_FENCE.finditer(text), _MOST_FENCES):
        closing = f"\n{opened[1]}>>>"
        end = text.find(closing, opened.end() - 1) if opened.start() >= at else -1
        if end >= 0:
            kept.append(text[at : opened.start()])
            at = end + len(closing)
    return "".join(kept) + text[at:]
