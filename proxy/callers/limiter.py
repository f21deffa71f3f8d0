"""Holds the limits of keys. Handed a request that has come and, as a listener, every one that has ended; charges the
counters of the store and hands on where the key stands.

Requests are counted when they come; tokens, searches and money when an answer ends, however it ends, so that one may
overshoot. What an answer cost travels with the key's next request, or is brought to the counters a moment later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from ..values.meters import Charge, Charged, Counters
from ..values.response_paths import is_about_stored_response
from ..watching.observer import Listener, Observer
from .limits import KeyLimits, Unit, Used
from .standing import Standing, standing

_NOTHING: frozenset[Unit] = frozenset()
_ANSWER: frozenset[Unit] = frozenset({"requests", "tokens", "cost"})
# A search that no model asked for needs no tokens, and is refused without searches; a model is told so in words.
_SEARCH: frozenset[Unit] = frozenset({"requests", "searches", "cost"})
_PAGE: frozenset[Unit] = frozenset({"requests", "cost"})
_NEEDED: Mapping[str, frozenset[Unit]] = {
    "/v1/search": _SEARCH,
    "/search": _SEARCH,
    "/compat/openwebui/search": _SEARCH,
    "/v1/open": _PAGE,
    "/extract": _PAGE,
    "/compat/openwebui/load": _PAGE,
    "/v1/alpha/search": _PAGE,  # here a model reads that no searches are left
    "/mcp": _PAGE,  # and here
}
# What was answered has been paid for: it can be read and cancelled when no tokens are left.
_ONLY_REQUESTS: frozenset[Unit] = frozenset({"requests"})
# What lists, counts and watches costs nothing: a client may look which models there are as often as it likes.
_FREE = ("/v1/models", "/v1/messages/count_tokens", "/v1/groundwire/", "/metrics")


class Limiter(Listener):
    """`now` is the time of day."""

    def __init__(self, counters: Counters, now: Callable[[], float] = time.time) -> None:
        self._counters = counters
        self._now = now
        self._owed: dict[str, tuple[KeyLimits, Used]] = {}  # by the name of the key

    async def admit(self, limits: KeyLimits, method: str, path: str, dialect: str = "") -> Standing | None:
        """None: this costs nothing."""
        if path.startswith(_FREE):
            return None
        now = self._now()
        known = self._owed.get(limits.key)
        if known is not None and known[1].is_of_another_day(now):  # what was used yesterday is yesterday's
            await self._charge(limits, known[1].at, _NOTHING)
        charges, charged = await self._charge(limits, now, _needed(method, path))
        return standing(limits, charges, charged, now, dialect)

    def ended(self, request: Observer) -> None:
        known = self._owed.get(request.caller)
        if known is not None:
            summary = request.summary
            tokens = summary.input_tokens + summary.output_tokens
            known[1].add(tokens, summary.searches, summary.cost, self._now())

    async def flush(self) -> None:
        """Brings to the counters what answers cost since the last request of their key."""
        for limits, owed in list(self._owed.values()):
            if owed:
                await self._charge(limits, owed.at, _NOTHING)
        await self._counters.flush()

    async def _charge(self, limits: KeyLimits, now: float, needed: frozenset[Unit]) -> tuple[Sequence[Charge], Charged]:
        owed = self._owed[limits.key][1] if limits.key in self._owed else Used()
        self._owed[limits.key] = limits, Used()
        charges = limits.charges(now, owed, needed)
        try:
            return charges, await self._counters.charge(charges)
        except BaseException:  # who is stopped in the middle still owes it
            self._owed[limits.key][1].add(owed.tokens, owed.searches, owed.cost, owed.at)
            raise


def _needed(method: str, path: str) -> frozenset[Unit]:
    return _ONLY_REQUESTS if is_about_stored_response(method, path) else _NEEDED.get(path, _ANSWER)
