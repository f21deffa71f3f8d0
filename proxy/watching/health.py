"""How providers, models and the cache have done so far, in this process. A listener that remembers of each what was
seen last, and how often; asked by the route of the same name. It asks nobody, so it knows nothing of who was not asked.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from providers.base import ProviderCall, Role
from providers.records import dataclass

from .contents import code_word
from .log import without_secrets
from .observer import Hearer, Listener, Observer
from .step_fields import milliseconds
from .steps import Forwarded, ModelAnswered, ModelFailed, Step

_WELL = ("ok", "empty")
_OF_THE_PAGE = ("bad_request", "not_allowed", "blocked")  # another one may be read by the same provider
_REFUSES_US = (401, 402, 403, 407, 408, 429)  # of the 4xx; the others are the fault of what was asked


@dataclass(slots=True)
class ProviderRecord:
    """Calls that were made; not what the cache answered, nor who was left alone."""

    calls: int = 0
    failures: int = 0
    last_outcome: str = ""
    last_ms: float | None = None

    @property
    def state(self) -> str:
        if not self.calls:
            return "untried"
        return "ok" if self.last_outcome in (*_WELL, *_OF_THE_PAGE) else "failing"

    @property
    def why(self) -> str:
        return "" if self.last_outcome in ("", *_WELL) else f"The last call failed ({self.last_outcome})."


@dataclass(slots=True)
class UpstreamRecord:
    last_ok: float | None = None  # in seconds since 1970
    last_failure: float | None = None
    failing: bool = False
    why: str = ""

    @property
    def state(self) -> str:
        if self.failing:
            return "failing"
        return "untried" if self.last_ok is None else "ok"


class Health(Listener):
    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._providers: dict[str, ProviderRecord] = defaultdict(ProviderRecord)
        self._upstreams: dict[str, UpstreamRecord] = defaultdict(UpstreamRecord)
        self._cache: Counter[tuple[Role, bool]] = Counter()

    def hearers(self) -> Mapping[type[Step], Hearer]:
        return {
            ProviderCall: self._called,
            ModelAnswered: self._answered,
            ModelFailed: self._failed,
            Forwarded: self._forwarded,
        }

    def of_provider(self, name: str) -> ProviderRecord:
        return self._providers.get(name) or ProviderRecord()

    def of_upstream(self, name: str) -> UpstreamRecord:
        return self._upstreams.get(name) or UpstreamRecord()

    def of_cache(self, role: Role) -> dict[str, int]:
        return {"hits": self._cache[role, True], "misses": self._cache[role, False]}

    def _called(self, request: Observer, step: ProviderCall) -> None:
        if step.outcome == "cooling_down":
            return
        self._cache[step.role, step.cached] += 1
        if step.cached:
            return
        record = self._providers[step.provider]
        record.calls += 1
        record.failures += not step.answered
        record.last_outcome, record.last_ms = step.outcome, milliseconds(step.seconds)

    def _answered(self, request: Observer, step: ModelAnswered | Forwarded) -> None:
        record = self._upstreams[step.upstream]
        record.last_ok, record.failing, record.why = self._now(), False, ""

    def _forwarded(self, request: Observer, step: Forwarded) -> None:
        if step.status < 400:
            self._answered(request, step)
        else:
            self._badly(step.upstream, step.status, "")

    def _failed(self, request: Observer, step: ModelFailed) -> None:
        self._badly(step.upstream, step.status, step.code)

    def _badly(self, upstream: str, status: int, code: str) -> None:
        if 400 <= status < 500 and status not in _REFUSES_US:
            return
        record = self._upstreams[upstream]
        record.last_failure, record.failing = self._now(), True
        named = f", {without_secrets(code_word(code))}" if code else ""
        record.why = f"The last question failed (HTTP {status}{named})."


def iso(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
