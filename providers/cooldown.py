"""When a provider is left alone: a failure cools it down for the time its error carries, else for its kind's; when that
time is over one call goes through as a probe and brings it back, or cools it down for longer.

Handed what became of each call; refuses the next with `CoolingDown` while it would be in vain. `Breaker` is pure: it is
told the time. Why calls that were under way when it tripped have no say: fifty failures at once are one piece of news.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from math import ceil

from .base import Role
from .errors import AuthFailed, ProviderError, QuotaExceeded, RateLimited, TimedOut, Unavailable
from .neighbours import Stopped, Trouble
from .records import dataclass
from .settings import CooldownSettings

log = logging.getLogger(__name__)

GROWTH = (1, 2, 4, 8, 16, 30)  # with each failed probe, in multiples of the first time of our own
LONGEST = 86_400.0  # however long a service says: once a day it is tried

_SAME = 0.1  # seconds by which two processes that speak of the same may differ

CooledDown = Callable[[str, float], None]  # which provider, and for how many seconds


class CoolingDown(ProviderError):
    """The provider was left out, because it failed a short while ago."""

    outcome = "cooling_down"


@dataclass(frozen=True, slots=True)
class Resting:
    """A provider that is left alone: why, and for how many seconds from now."""

    reason: str
    seconds: float


class Breaker:
    """Closed, until failures open it for a time; then half-open: one probe may pass, and its outcome decides.

    A call takes the number that `begin` gives it; what it reports counts only until the breaker trips the next time.
    """

    def __init__(self) -> None:
        self._trips = 0
        self._row = 0  # failures since the last success
        self.longer = 0  # trips for a time of our own since the last success
        self._open = False
        self._until = 0.0
        self._probing = False
        self.reason = ""

    def refusal(self, now: float) -> str:
        """Why no call may begin now; empty if one may."""
        if self._open and now < self._until:
            return f"cooling down for another {ceil(self._until - now)} s ({self.reason})"
        if self._probing:
            return f"another call is finding out whether it is back ({self.reason})"
        return ""

    def resting(self, now: float) -> Resting | None:
        return Resting(self.reason, self._until - now) if self._open and now < self._until else None

    def begin(self) -> int:
        self._probing = self._open
        return self._trips

    def succeeded(self, call: int) -> None:
        if call == self._trips:
            self._row = self.longer = 0
            self._open = self._probing = False

    def failed(
        self, call: int, reason: str, now: float, seconds: float, tolerance: int = 1, *, told: float | None = None
    ) -> float:
        """Cools down once `tolerance` calls failed in a row, a probe at once. Hands back for how long.

        What the service itself `told` holds as it is; `seconds` is our guess, and grows with each that was too short.
        """
        if call != self._trips:
            return 0.0
        self._row += 1
        if self._row < tolerance and not self._open:
            return 0.0
        if not told:
            seconds *= GROWTH[min(self.longer, len(GROWTH) - 1)]
            self.longer += 1
        seconds = min(told or seconds, LONGEST)
        self._trips += 1
        self._open, self._probing = True, False
        self._until, self.reason = now + seconds, reason.rstrip(".")
        return seconds

    def told(self, until: float, reason: str, longer: int) -> bool:
        """Another process found out what `failed` would. Whether that was news."""
        if self._open and until <= self._until + _SAME:
            return False
        self._trips += 1
        self.longer = max(self.longer, longer)
        self._open, self._probing = True, False
        self._until, self.reason = until, reason
        return True

    def left(self, call: int) -> None:
        """The call ended without a word on the provider: if it was the probe, the next call is."""
        if call == self._trips:
            self._probing = False


class Cooldown:
    """One provider's breakers. Its account is one: a refused key or a used-up plan stops both searching and reading.
    Trouble stops the role that met it; but what goes wrong with a page says nothing about `reads_itself`, a reader
    that dials the pages, or owns them. `cooled_down` is told the provider's name and for how many seconds it is left
    alone; `tell` the same for other processes, and `hear` is for what they tell.
    """

    def __init__(
        self,
        name: str,
        settings: CooldownSettings,
        *,
        reads_itself: bool = False,
        cooled_down: CooledDown | None = None,
        tell: Callable[[Trouble], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._tell = tell
        self._clock = clock
        self._settings = settings
        self._reads_itself = reads_itself
        self._cooled_down = cooled_down
        self._account = Breaker()
        self._trouble: dict[Role, Breaker] = {"search": Breaker(), "read": Breaker()}
        self._stopped: dict[Stopped, Breaker] = {"account": self._account}
        self._stopped.update(self._trouble.items())

    def resting(self) -> Resting | None:
        """For the longest time of those that it may not be asked for something; None if it may be asked for all."""
        now = self._clock()
        found = (breaker.resting(now) for breaker in (self._account, *self._trouble.values()))
        return max(filter(None, found), key=lambda rest: rest.seconds, default=None)

    def check(self, role: Role) -> None:
        now = self._clock()
        if reason := self._account.refusal(now) or self._trouble[role].refusal(now):
            raise CoolingDown(reason)

    def watch(self, role: Role) -> _Watch:
        """Around one call: refuses it or lets it go, and learns from how it ends."""
        return _Watch(self, role)

    def began(self, role: Role) -> tuple[int, int]:
        self.check(role)
        return self._account.begin(), self._trouble[role].begin()

    def ended(self, role: Role, account_call: int, call: int, error: BaseException | None) -> None:
        account, trouble = self._account, self._trouble[role]
        match error:
            case RateLimited() | AuthFailed() | QuotaExceeded():
                self._cool(account, account_call, error, self._first(error))
            case TimedOut() | Unavailable():
                if role == "search" or not self._reads_itself:
                    told = error.retry_after is not None
                    self._cool(trouble, call, error, self._settings.unavailable, 1 if told else self._settings.failures)
            case None | ProviderError():  # at the most a refusal of this one request, from a provider that works
                account.succeeded(account_call)
                trouble.succeeded(call)
                return
        account.left(account_call)
        trouble.left(call)

    def _first(self, error: ProviderError) -> float:
        match error:
            case AuthFailed():
                return self._settings.auth_failed
            case QuotaExceeded():
                return self._settings.quota_exceeded
        return self._settings.rate_limited

    def _cool(self, breaker: Breaker, call: int, error: ProviderError, first: float, tolerance: int = 1) -> None:
        seconds = breaker.failed(call, str(error), self._clock(), first, tolerance, told=error.retry_after)
        if not seconds:
            return
        what = f"{error}; {error.advice}" if error.advice else str(error)  # the log is the operator's
        log.warning("provider %s cools down for %.3g s: %s", self._name, seconds, what)
        if self._cooled_down is not None:
            self._cooled_down(self._name, seconds)
        if self._tell is not None:
            stopped = next(name for name, one in self._stopped.items() if one is breaker)
            self._tell(Trouble(self._name, stopped, seconds, breaker.reason, breaker.longer))

    def hear(self, trouble: Trouble, at: float) -> bool:
        """What another process had to tell, at that time of our clock. Whether it was news."""
        return self._stopped[trouble.stopped].told(at + trouble.seconds, trouble.reason, trouble.trips)


class _Watch:
    __slots__ = ("_calls", "_cooldown", "_role")

    def __init__(self, cooldown: Cooldown, role: Role) -> None:
        self._cooldown = cooldown
        self._role = role

    def __enter__(self) -> None:
        self._calls = self._cooldown.began(self._role)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._cooldown.ended(self._role, *self._calls, error)
