"""An answer as it grows, with all that a person may want to know of it: its text, what it cites, what was searched and
read for it. Handed events; hands on plain values, to `--json`, to the list of sources and to a conversation's history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tools.base import OPEN_PAGE, WEB_SEARCH
from tools.ledger import Source

from ..dialects.proof_fields import proof_fields
from ..values.events import (
    Begun,
    Citation,
    Event,
    Failed,
    TextDelta,
    ToolFinished,
    ToolStarted,
    UsageSeen,
)

Clock = float  # seconds, of whichever clock


class GatheredAnswer:
    def __init__(self, model: str = "") -> None:
        self.model = model
        self.citations: list[Citation] = []
        self.read: dict[int, Source] = {}  # pages whose own text the model was given, by number
        self.searches: list[dict[str, Any]] = []
        self.pages: list[dict[str, Any]] = []
        self.usage: Mapping[str, Any] = {}
        self.failed: Failed | None = None
        self._text: list[str] = []
        self._started: dict[str, tuple[ToolStarted, Clock]] = {}

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def cited(self) -> dict[int, list[Citation]]:
        """By the number of their source."""
        found: dict[int, list[Citation]] = {}
        for citation in self.citations:
            found.setdefault(citation.source.n, []).append(citation)
        return dict(sorted(found.items()))

    @property
    def only_read(self) -> list[Source]:
        cited = {citation.source.n for citation in self.citations}
        return [source for n, source in sorted(self.read.items()) if n not in cited]

    def take(self, events: Iterable[Event], now: Clock) -> None:
        for event in events:
            if isinstance(event, TextDelta):
                self._text.append(event.text)
            elif isinstance(event, Citation):
                self.citations.append(event)
            elif isinstance(event, ToolStarted):
                self._started[event.id] = (event, now)
            elif isinstance(event, ToolFinished):
                self._finish(event, now)
            elif isinstance(event, UsageSeen):
                self.usage = event.usage
            elif isinstance(event, Begun):
                self.model = event.model or self.model
            elif isinstance(event, Failed):
                self.failed = event

    def _finish(self, event: ToolFinished, now: Clock) -> None:
        started, began = self._started.pop(event.id, (None, now))
        arguments = started.arguments if started else {}
        ran = {"ok": event.ok, "ms": round((now - began) * 1000)}
        if event.tool == WEB_SEARCH:
            found = len(event.sources)
            self.searches.append({"query": _text_of(arguments), "provider": event.provider, "results": found, **ran})
        elif event.tool == OPEN_PAGE:
            self.pages += [{"url": url, **ran} for url in urls_of(arguments)]
        if event.tool == OPEN_PAGE:
            self.read.update((source.n, source) for source in event.sources)

    def as_json(self) -> dict[str, Any]:
        """What `ask --json` prints."""
        fields = {
            "answer": self.text,
            "model": self.model,
            "citations": [_citation_fields(citation) for citation in self.citations],
            "read": [{"n": source.n, "url": source.url, "title": source.title} for source in self.only_read],
            "searches": self.searches,
            "pages": self.pages,
            "usage": dict(self.usage),
        }
        return {"error": dict(self.failed.error), **fields} if self.failed else fields


def _citation_fields(citation: Citation) -> dict[str, Any]:
    source = citation.source
    place = {"n": source.n, "start": citation.start, "end": citation.end}
    return {**place, "url": source.url, "title": source.title, **proof_fields(citation)}


def _text_of(arguments: Mapping[str, Any]) -> str:
    """A query as the model wrote it: it may have written anything."""
    query = arguments.get("query")
    return query if isinstance(query, str) else ""


def urls_of(arguments: Mapping[str, Any]) -> list[str]:
    given = arguments.get("urls") or arguments.get("url")
    return [url for url in (given if isinstance(given, list) else [given]) if isinstance(url, str)]
