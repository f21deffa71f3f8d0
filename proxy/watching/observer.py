"""One request as it is watched. Made at the edge, told what happens by the rooms where it happens, and asked at the end
by its listeners. Handed `Step`s; hands each, with its time, to whoever listens. Without listeners it only takes notes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from .steps import Step
from .summary import Summary

MOST_STEPS = 500  # of one request that are kept one by one


class Listener(Protocol):
    """The log, the metrics, and whoever comes after them: one file each."""

    def began(self, request: Observer) -> None: ...

    def told(self, request: Observer, step: Step) -> None: ...

    def ended(self, request: Observer) -> None: ...


class Observer:
    """`outcome` is `ok`, `left` (the client went away), or the code of what went wrong."""

    def __init__(
        self,
        listeners: Sequence[Listener] = (),
        *,
        request_id: str = "",
        method: str = "",
        path: str = "",
        dialect: str = "",
    ) -> None:
        self._listeners = listeners
        self.id = request_id
        self.method = method
        self.path = path  # as it was sent, without its query: that may hold what people wrote
        self.dialect = dialect
        self.caller = ""  # the key's name
        self.status = 0  # 0: nothing was sent
        self.outcome = ""
        self.steps: list[tuple[float, Step]] = []  # the first of them, each with the seconds since the request began
        self.summary = Summary()  # of all of them
        self.began = time.perf_counter()
        self.ended = 0.0
        for listener in listeners:
            listener.began(self)

    def tell(self, step: Step) -> None:
        seconds = time.perf_counter() - self.began
        if len(self.steps) < MOST_STEPS:
            self.steps.append((seconds, step))
        self.summary.take(step, seconds)
        for listener in self._listeners:
            listener.told(self, step)

    def fail(self, code: object) -> None:
        """The request ends in an error; the first one told is the one that counts."""
        self.outcome = self.outcome or str(code or "error")

    def end(self) -> None:
        self.ended = time.perf_counter()
        self.outcome = self.outcome or ("ok" if self.status else "left")
        for listener in self._listeners:
            listener.ended(self)

    @property
    def seconds(self) -> float:
        return (self.ended or time.perf_counter()) - self.began
