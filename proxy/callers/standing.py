"""Where a key stands with its limits when a request of it has come: the headers that say so, how many searches are
left, and the refusal if it may not go on. Handed limits and the room that is left in each; hands on plain values.

The names of the headers are OpenAI's, and so is the way they write a time; in Anthropic's API both are its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from providers.records import dataclass

from ..values.errors import NO_RETRY, failure
from ..values.events import Failed
from ..values.meters import NEARLY, Charge, Charged, lacks, wait
from .limits import KeyLimits, Limit, seconds_left

Headers = list[tuple[bytes, bytes]]

_SHORT = 60.0  # seconds that a client may well wait by itself and ask again
_RATE = ("rate_limit_error", "rate_limit_exceeded")
_BUDGET = ("insufficient_quota", "budget_exceeded")
_ANTHROPIC = "messages"  # the dialect whose clients read other names
_SHOWN = ("requests", "tokens")  # per minute


@dataclass(frozen=True, slots=True)
class Standing:
    headers: Headers
    searches_left: int | None = None  # None: as many as one likes
    refusal: Failed | None = None


def standing(limits: KeyLimits, charges: Sequence[Charge], charged: Charged, now: float, dialect: str = "") -> Standing:
    write = _anthropic_headers if dialect == _ANTHROPIC else _headers
    headers: Headers = []
    searches: float = math.inf
    for limit, charge, room in zip(limits.limits, charges, charged.rooms, strict=True):
        if limit.unit == "searches":
            searches = min(searches, room)
        if limit.span == "minute" and limit.unit in _SHOWN:
            headers += write(limit, charge, room, now)
    left = None if math.isinf(searches) else max(0, int(searches + 1 - NEARLY))
    return Standing(headers, left, None if charged.taken else _refusal(limits, charges, charged, now))


def _headers(limit: Limit, charge: Charge, room: float, now: float) -> Headers:
    (named, most), remaining, reset = _words(limit.unit, limit.most)
    full = duration(wait(charge.meter, room, limit.most))
    return [(named, most), (remaining, b"%d" % max(0, int(room))), (reset, full.encode())]


def _anthropic_headers(limit: Limit, charge: Charge, room: float, now: float) -> Headers:
    full = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(math.ceil(now + wait(charge.meter, room, limit.most))))
    said = {"limit": f"{limit.most:.0f}", "remaining": str(max(0, int(room))), "reset": full}
    return [(f"anthropic-ratelimit-{limit.unit}-{word}".encode(), value.encode()) for word, value in said.items()]


@lru_cache(maxsize=10_000)
def _words(unit: str, most: float) -> tuple[tuple[bytes, bytes], bytes, bytes]:
    """What stays the same from one answer to the next: the limit itself, and the names of the other two."""
    names = [f"x-ratelimit-{word}-{unit}".encode() for word in ("limit", "remaining", "reset")]
    return (names[0], f"{most:.0f}".encode()), names[1], names[2]


def duration(seconds: float) -> str:
    """As OpenAI writes it: 120ms, 6s, 1m30s, 2h0m0s."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    if seconds <= 59:
        return f"{math.ceil(seconds)}s"
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{rest}s" if hours else f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _refusal(limits: KeyLimits, charges: Sequence[Charge], charged: Charged, now: float) -> Failed:
    """For the limit that holds the longest: before that there is no use in asking again."""
    over = [
        (seconds_left(limit, charge, room, now), limit)
        for limit, charge, room in zip(limits.limits, charges, charged.rooms, strict=True)
        if lacks(charge, room)
    ]
    seconds, limit = max(over, key=lambda found: found[0])
    kind, code = _BUDGET if limit.is_budget else _RATE
    short = seconds <= _SHORT
    failed = failure(429, _sentence(limits.key, limit, seconds, now), kind=kind, code=code, retry=short)
    waits = {"retry-after": str(math.ceil(seconds)), "retry-after-ms": str(math.ceil(seconds * 1000))}
    return replace(failed, headers={**waits, **({} if short else NO_RETRY)})


def _sentence(key: str, limit: Limit, seconds: float, now: float) -> str:
    amount = f"{limit.most:.0f} {limit.unit}" if limit.unit != "cost" else f"{limit.most:g} of money"
    if not limit.is_budget:
        return f"The key '{key}' may use {amount} per minute: ask again in {duration(seconds)}."
    end = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now + seconds))
    return f"The key '{key}' has used up its {amount} for this {limit.span}: ask again after {end}."
