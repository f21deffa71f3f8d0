"""Random ids for what is made many times in a second. Handed nothing; hands on 24 hexadecimal digits that nobody can
guess, and never the same twice. The system is asked for random bytes once for many of them.
"""

from __future__ import annotations

import os

_DIGITS = 24
_AT_ONCE = 256

_stock: list[str] = []
os.register_at_fork(after_in_child=_stock.clear)  # or two workers would give the same ids


def random_id() -> str:
    try:
        return _stock.pop()
    except IndexError:
        digits = os.urandom(_AT_ONCE * _DIGITS // 2).hex()
        made = [digits[at : at + _DIGITS] for at in range(0, len(digits), _DIGITS)]
        found = made.pop()
        _stock.extend(made)
        return found
