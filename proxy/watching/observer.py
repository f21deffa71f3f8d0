"""One request as it is watched. Made at the edge, told what happens by the rooms where it happens, and asked at the end
by its listeners. Handed `Step`s; hands each to whoever listens. Where nobody does it takes no notes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal

from .contents import code_word
from .prices import NO_PRICES, PriceList
from .steps import KINDS, Step
from .summary import TAKERS, Summary
from .transcript import Transcript

log = logging.getLogger("groundwire")

MOST_STEPS = 500  # of one request that are kept one by one
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})

Ending = Literal["ok", "client_left", "refused", "failed"]
_CLIENT_ENDED = frozenset({"client_left", "client_stalled", "client_cancelled"})  # it wanted no more of the answer

Hearer = Callable[["Observer", Any], None]  # of one kind of step


class Listener:
    """Whoever wants to know: the log, the metrics, and who comes after them, one file each. `request` has all that was
    told so far when it is handed on. What goes wrong in a listener is logged, and disturbs no request."""

    def began(self, request: Observer) -> None: ...

    def told(self, request: Observer, step: Step) -> None: ...

    def ended(self, request: Observer) -> None: ...

    def hearers(self) -> Mapping[type[Step], Hearer]:
        """Who of it hears of which kind of step. `told` hears of every kind; who wants only some says so here."""
        return dict.fromkeys(KINDS, self.told) if _does(self, "told") else {}


class _Audience:
    """All who listen, by what they have something to do with: most wait for the end alone, and there are many steps."""

    __slots__ = ("listeners", "of_begin", "of_end", "of_step")

    def __init__(self, listeners: tuple[Listener, ...]) -> None:
        self.listeners = listeners
        self.of_begin = [listener for listener in listeners if _does(listener, "began")]
        self.of_end = [listener for listener in listeners if _does(listener, "ended")]
        heard = [(listener, listener.hearers()) for listener in listeners]
        self.of_step: dict[type[Step], Sequence[tuple[Listener, Hearer]]] = {
            kind: [(listener, hearers[kind]) for listener, hearers in heard if kind in hearers] for kind in KINDS
        }


def _does(listener: Listener, what: str) -> bool:
    return getattr(type(listener), what) is not getattr(Listener, what)


_audience = lru_cache(maxsize=16)(_Audience)


class Observer:
    """`outcome` is `ok`, `client_left`, or the code of what went wrong."""

    __slots__ = (
        "_audience",
        "began",
        "caller",
        "dialect",
        "ended",
        "ended_at",
        "id",
        "method",
        "onward",
        "outcome",
        "path",
        "status",
        "steps",
        "summary",
        "trace_headers",
        "transcript",
    )

    def __init__(
        self,
        listeners: Sequence[Listener] = (),
        request_id: str = "",
        method: str = "",
        path: str = "",
        dialect: str = "",
        prices: PriceList = NO_PRICES,
    ) -> None:
        self._audience = _audience(tuple(listeners))
        self.id = request_id
        self.method = method
        self.path = path  # as it was sent, without its query: that may hold what people wrote
        self.dialect = dialect
        self.caller = ""  # the key's name
        self.status = 0  # 0: nothing was sent
        self.outcome = ""
        self.trace_headers: Mapping[str, str] = _NO_HEADERS  # by which the client says what its request is a part of
        self.onward: Mapping[str, str] = _NO_HEADERS  # headers that say the same to the model that is asked now
        self.transcript: Transcript | None = None  # of what is asked and answered, for who may keep it
        self.steps: list[tuple[float, Step]] = []  # the first of them, each with the seconds since the request began
        self.summary = Summary(prices)  # of all of them
        self.began = time.perf_counter()
        self.ended = self.ended_at = 0.0  # the second by the world's clock
        for listener in self._audience.of_begin:
            try:
                listener.began(self)
            except Exception:  # who only watches must not stop what it watches
                _complain(listener)

    def listen(self, listener: Listener) -> None:
        """For who comes later: it hears what is told from now on."""
        self._audience = _Audience((*self._audience.listeners, listener))

    def tell(self, step: Step) -> None:
        audience = self._audience
        if not audience.listeners or self.ended:  # what comes after the end would be kept for nobody
            return
        seconds = time.perf_counter() - self.began
        if len(self.steps) < MOST_STEPS:
            self.steps.append((seconds, step))
        kind = type(step)
        TAKERS[kind](self.summary, step, seconds)
        for listener, hear in audience.of_step[kind]:
            try:
                hear(self, step)
            except Exception:  # as above
                _complain(listener)

    def fail(self, code: object) -> None:
        """The request ends in an error; the first one told is the one that counts. Codes may be an upstream's words."""
        word = code_word(str(code or "error"))
        self.outcome = self.outcome or ("error" if word == "ok" else word)

    def succeed(self) -> None:
        """All of the answer has left: what the client does from now on is no failure."""
        self.outcome = self.outcome or "ok"

    def stop(self) -> None:
        """It is over. Its listeners are to be told of that soon (`tell_end`)."""
        self.ended, self.ended_at = time.perf_counter(), time.time()
        self.outcome = self.outcome or _outcome_of(self.status)

    def end(self) -> None:
        self.stop()
        self.tell_end()

    def tell_end(self) -> None:
        for listener in self._audience.of_end:
            try:
                listener.ended(self)
            except Exception:  # as above
                _complain(listener)

    @property
    def ending(self) -> Ending:
        """The outcome in one of four words. All that count or judge requests go by this, so that they agree."""
        if self.outcome == "ok":
            return "ok"
        if self.outcome in _CLIENT_ENDED:
            return "client_left"
        return "refused" if 400 <= self.status < 500 else "failed"

    @property
    def seconds(self) -> float:
        return (self.ended or time.perf_counter()) - self.began


def _outcome_of(status: int) -> str:
    """Where nobody said how it ended, the status does."""
    if not status:
        return "client_left"
    return "ok" if status < 400 else f"http_{status}"


def _complain(listener: Listener) -> None:
    log.exception("%s failed while it watched a request", type(listener).__name__)
