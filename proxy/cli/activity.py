"""What goes on while no text comes, as one line: waiting for the model, searching with whom, reading which page, and
for how many seconds. Handed the events of an answer and the calls of providers as they are told; hands on the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from providers.base import ProviderCall, Role
from tools.base import WEB_SEARCH

from ..values.events import Event, ReasoningDelta, TextDelta, ToolFinished, ToolStarted
from ..watching.observer import Listener, Observer
from ..watching.steps import Step
from .gathered_answer import urls_of
from .terminal_text import cells, cut_to, title


class Activity(Listener):
    """`searchers` and `readers` are the providers in the order in which they are asked."""

    def __init__(self, model: str, now: float, searchers: Sequence[str] = (), readers: Sequence[str] = ()) -> None:
        self.notice = ""  # what a person should know at the end, besides the answer
        self.model = model
        self._asked: dict[Role, Sequence[str]] = {"search": searchers, "read": readers}
        self._failed: set[tuple[Role, str]] = set()
        self._running: dict[str, tuple[ToolStarted, float]] = {}
        self._thinking = False
        self._since: float | None = now  # that the model is waited for; None while text comes

    def told(self, request: Observer, step: Step) -> None:
        if isinstance(step, ProviderCall) and not step.answered:
            self._failed.add((step.role, step.provider))

    def take(self, events: Iterable[Event], now: float) -> None:
        for event in events:
            if isinstance(event, ToolStarted):
                self._running[event.id] = (event, now)
            elif isinstance(event, ToolFinished):
                self._running.pop(event.id, None)
                self._thinking, self._since = False, now
            elif isinstance(event, ReasoningDelta) and not self._thinking:
                self._thinking, self._since = True, now
            elif isinstance(event, TextDelta):
                self._since = None

    def line(self, now: float, columns: int) -> str:
        """Empty while text comes. Of what has no room the middle is left out: the end is what moves."""
        if self._running:
            started, began = list(self._running.values())[-1]
            others = len(self._running) - 1
            what, by = self._described(started)
            more = [*([by] if by else []), *([f"{others} more"] if others else [])]
            parts = [*(more if cells("".join(more)) < columns // 3 else []), _seconds(now - began)]
        elif self._since is not None:
            waiting = f"Waiting for {title(self.model)}" if self.model else "Waiting"
            what, parts = "Thinking" if self._thinking else waiting, [_seconds(now - self._since)]
        else:
            return ""
        end = " · ".join(["", *parts])
        if cells(end) >= columns - 1:
            return cut_to(what, columns - 1)
        return cut_to(what, columns - 1 - cells(end)) + end

    def _described(self, started: ToolStarted) -> tuple[str, str]:
        if started.tool == WEB_SEARCH:
            query = started.arguments.get("query")
            return f"Searching: {title(query) if isinstance(query, str) else '…'}", self._provider("search")
        urls = urls_of(started.arguments)
        return f"Reading: {_host(urls[0]) if urls else '…'}", self._provider("read")

    def _provider(self, role: Role) -> str:
        """Who is asked now: the first that has not failed."""
        names = self._asked[role]
        return next((name for name in names if (role, name) not in self._failed), names[-1] if names else "")


def _host(url: str) -> str:
    try:
        return title(urlsplit(url).hostname or url)
    except ValueError:  # brackets that hold no address
        return title(url)


def _seconds(seconds: float) -> str:
    return f"{max(0, int(seconds))} s"
