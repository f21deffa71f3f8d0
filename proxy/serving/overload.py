"""Whether more comes than can be served, and what those are told who are refused: a pure machine without a clock of its
own. Handed how long people wait, who is served and who is refused; hands on the state and the time to stay away.
"""

from __future__ import annotations

import random
from collections import Counter

_SHORTEST, _LONGEST = 1.0, 60.0  # seconds: then its end is tried, whatever is known
_SHORTEST_AWAY, _LONGEST_AWAY = 1.0, 8.0  # seconds
_AWAY_PER_SECOND_OF_WORK = 4.0


class Overload:
    """It begins when somebody has waited for the whole `patience`. It is over when those who wait and those who were
    told to stay away could all be served within half of it. Who comes back too early counts as two, so its end is tried
    now and then whatever they seem to be."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self.on = False
        self._began = 0.0
        self._away: Counter[int] = Counter()  # how many may come back in each second from now on
        self._counted_since = 0.0
        self._served = 0  # since then
        self._rate = 0.0  # requests that are served in a second

    def look(self, now: float, waiting: int, longest_wait: float) -> bool:
        """The state after a look at the lines."""
        if not self.on and longest_wait >= self._patience:
            self.on = True
            self._began = now
        elif self.on and self._is_over(now, waiting):
            self.on = False
        return self.on

    def served(self) -> None:
        self._served += 1

    def refused(self, now: float) -> float:
        """How many seconds one who is refused should stay away: the more they are, the longer, for refusing takes time
        too. Never all for the same time, or they would come back together."""
        work = self._are_away(now) / max(1.0, self._rate_at(now))
        away = min(_LONGEST_AWAY, _SHORTEST_AWAY + _AWAY_PER_SECOND_OF_WORK * work) * random.uniform(0.75, 1.25)
        self._away[int(now + away)] += 1
        return away

    def _is_over(self, now: float, waiting: int) -> bool:
        lasted = now - self._began
        if lasted > _LONGEST:
            return True
        return lasted > _SHORTEST and waiting + self._are_away(now) < self._rate_at(now) * self._patience / 2

    def _are_away(self, now: float) -> int:
        for second in [second for second in self._away if second < int(now)]:
            del self._away[second]
        return self._away.total()

    def _rate_at(self, now: float) -> float:
        if now - self._counted_since >= 1:
            self._rate = self._served / (now - self._counted_since)
            self._served = 0
            self._counted_since = now
        return self._rate
