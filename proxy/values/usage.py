"""What models say that an answer cost, summed over the rounds of a request. Handed one usage object after the other;
adds each to the total.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def add_usage(total: dict[str, Any], usage: Mapping[str, Any]) -> None:
    """Sums every number of the same name, at every depth; what is no number is taken over."""
    if not total:  # mostly there is one round
        total.update(usage)
        return
    for key, value in usage.items():
        old, kind = total.get(key), type(value)
        if (kind is int or kind is float) and isinstance(old, int | float):
            total[key] = old + value
        elif kind is dict:
            nested = total[key] = dict(old) if isinstance(old, dict) else {}
            add_usage(nested, value)
        elif value is not None or key not in total:
            total[key] = value
