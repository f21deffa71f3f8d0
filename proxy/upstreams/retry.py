"""Whether a model that failed before its first word is asked again, and after which wait. Handed the failure, what its
upstream allows and the time that is left; hands on a `Verdict`. Nobody waits here: clock and dice are handed in.

A request is asked again twice at most, over all of its rounds. All requests of the process share one budget, so that a
server that fails everybody is not asked three times by everybody.
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Literal, NamedTuple, Protocol

from providers.records import dataclass

from ..values.errors import NO_RETRY
from ..values.events import Failed
from ..watching.steps import RetryOutcome

WINDOW = 10.0  # seconds over which the budget is counted
SHARE = 0.1  # of the requests in that time
LONGEST_WAIT = 4.0  # seconds, where the server does not say how long

# Of the server and perhaps over in a moment: busy (408, 429, 503, Anthropic's 529), broken (500), or out of reach for
# the proxy before it (502, 504; Cloudflare's 520 to 523). Not 524: a model had been at work for minutes.
RETRIED = frozenset({408, 429, 500, 502, 503, 504, 520, 521, 522, 523, 529})

Outcome = RetryOutcome | Literal["passed_on"]


class Verdict(NamedTuple):
    """`asked`: again, after `wait` seconds. Else the failure goes to the client: the request's own retries are `spent`,
    the process is `over_budget`, or asking again is for the client to decide (`passed_on`)."""

    outcome: Outcome
    wait: float = 0.0


class RetryLimits(Protocol):
    """What an upstream's settings say."""

    @property
    def retries(self) -> int: ...

    @property
    def retry_wait(self) -> float: ...

    @property
    def max_retry_after(self) -> float: ...


class RetryBudget:
    """How often all requests of the process together may be asked again within ten seconds: a tenth of those that came
    in that time, and at least `floor`. Requests are counted by the second; one that began longer ago is left out."""

    def __init__(self, floor: int = 10, clock: Callable[[], float] = time.monotonic) -> None:
        self._floor = floor  # for where there are few requests
        self._clock = clock
        self._seconds: deque[list[int]] = deque()  # [second, requests in it]
        self._requests = 0  # the sum of these
        self._retries: deque[float] = deque()  # when each was allowed

    def note_request(self) -> None:
        second = int(self._clock())
        self._requests += 1
        if self._seconds and self._seconds[-1][0] >= second:
            self._seconds[-1][1] += 1
            return
        self._seconds.append([second, 1])
        self._forget(second)

    def take(self) -> bool:
        """Whether one more is allowed; then it counts."""
        now = self._clock()
        self._forget(now)
        while self._retries and self._retries[0] <= now - WINDOW:
            self._retries.popleft()
        if len(self._retries) + 1 > max(self._floor, SHARE * self._requests):
            return False
        self._retries.append(now)
        return True

    def _forget(self, now: float) -> None:
        while self._seconds and self._seconds[0][0] <= now - WINDOW:
            self._requests -= self._seconds.popleft()[1]


@dataclass(slots=True)
class Retries:
    """Of one request: `made` so far."""

    budget: RetryBudget
    dice: Callable[[], float] = random.random
    made: int = 0

    def judge(self, failed: Failed, limits: RetryLimits, seconds_left: float) -> Verdict:
        """What to do about a failure that is all that came. Waits are drawn between nothing and a bound that doubles
        (full jitter); where the server says when to come back, nobody comes earlier."""
        if not limits.retries or is_pointless(failed):
            return Verdict("passed_on")
        told = retry_after(failed.headers)
        wait = told + self.dice() * min(limits.retry_wait * 2**self.made, LONGEST_WAIT)
        if told > limits.max_retry_after or wait >= seconds_left:
            return Verdict("passed_on")
        if self.made >= limits.retries:
            return Verdict("spent")
        if not self.budget.take():
            return Verdict("over_budget")
        self.made += 1
        return Verdict("asked", wait)


def is_pointless(failed: Failed) -> bool:
    """Would another attempt end the same way? `x-should-retry: false` says so, to us as to clients: those failures of
    our own carry it that time does not heal, and some servers send it."""
    return failed.status not in RETRIED or failed.headers.get("x-should-retry") == NO_RETRY["x-should-retry"]


def retry_after(headers: Mapping[str, str], clock: Callable[[], float] = time.time) -> float:
    """The seconds that a server wants to be left alone; 0 where it says nothing that can be read."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        said = headers.get(name, "")
        seconds = _number(said) * unit
        if not math.isnan(seconds):
            return max(seconds, 0.0)
    try:
        return max(parsedate_to_datetime(said).timestamp() - clock(), 0.0)
    except (ValueError, OverflowError, OSError):
        return 0.0


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
