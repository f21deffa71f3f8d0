"""What models say that an answer cost, summed over the rounds of a request. Handed one usage object after the other;
adds each to the total.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def add_usage(total: dict[str, Any], usage: Mapping[str, Any]) -> None:
    """Sums every number of the same name, at every depth; what is no number is taken over."""
    for key, value in usage.items():
        old = total.get(key)
        if isinstance(value, Mapping):
            nested = total[key] = dict(old) if isinstance(old, Mapping) else {}
            add_usage(nested, value)
        elif isinstance(value, int | float) and isinstance(old, int | float) and not isinstance(value, bool):
            total[key] = old + value
        elif value is not None or key not in total:
            total[key] = value
