"""What our tools were asked and what they found, as the blocks of Anthropic's server tools. Handed the events of a call
and what the model read of its result; hands on inputs, and blocks with results or with the reason why there are none.
Results carry handles: a later request knows by them what was found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from providers.records import dataclass
from tools.base import WEB_SEARCH
from tools.ledger import Source

from ...values.events import ToolFinished, ToolStarted
from .blocks import ServerCallBlock
from .fenced_pages import pages_in
from .handles import Handles


class ToldCall(NamedTuple):
    """A call as it stands in the conversation: how the model wrote it, and what it read of the result."""

    arguments: str
    text: str


@dataclass(slots=True)
class ShownCall:
    """A call of ours that the client sees: one block for a search, one for each page."""

    started: ToolStarted
    blocks: list[ServerCallBlock]
    finished: ToolFinished | None = None
    told: ToldCall | None = None

    @property
    def is_search(self) -> bool:
        return self.started.tool == WEB_SEARCH

    def results(self, handles: Handles) -> list[dict[str, Any]]:
        if self.is_search:
            return [self._result("web_search", block, self._found(handles)) for block in self.blocks]
        pages = dict(pages_in(self.told.text if self.told else "", self._sources))
        return [self._result("web_fetch", block, self._read(at, pages)) for at, block in enumerate(self.blocks)]

    @property
    def _sources(self) -> tuple[Source, ...]:
        return self.finished.sources if self.finished else ()

    def _result(self, name: str, block: ServerCallBlock, content: Any) -> dict[str, Any]:
        if content is None:
            content = {"type": f"{name}_tool_result_error", "error_code": self._error_code(block)}
        return {"type": f"{name}_tool_result", "tool_use_id": block.id, "content": content}

    def _error_code(self, block: ServerCallBlock) -> str:
        if block.beyond:
            return "max_uses_exceeded"
        if not any(block.input.values()):
            return "invalid_tool_input"
        return "unavailable" if self.is_search else "url_not_accessible"

    def _found(self, handles: Handles) -> list[dict[str, Any]] | None:
        if self.finished is None or not self.finished.ok:
            return None
        first = {"id": self.started.id, **self.told._asdict()} if self.told else {}
        found = []
        for source in self._sources:
            found.append(_search_result(source, handles.seal({**as_known(source), **first})))
            first = {}
        return found

    def _read(self, at: int, pages: Mapping[Source, str]) -> dict[str, Any] | None:
        """The page of the block at this place: by its address, else by its turn, for redirects lead elsewhere."""
        asked = self.blocks[at].input["url"]
        turn = self._sources[at : at + 1] if len(self._sources) == len(self.blocks) else ()
        source = next((s for s in self._sources if s.url == asked), turn[0] if turn else None)
        if source is None:
            return None
        text = {"type": "text", "media_type": "text/plain", "data": pages.get(source) or source.snippet or source.title}
        document = {"type": "document", "source": text, "title": source.title}
        retrieved = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"type": "web_fetch_result", "url": source.url, "retrieved_at": retrieved, "content": document}


@dataclass(slots=True)
class ShownCalls:
    """The calls of one answer that the client sees: of the `tools` that it named, each as often as `most` allows."""

    tools: frozenset[str]
    most: Mapping[str, int | None]
    _running: dict[str, ShownCall] = field(default_factory=dict)
    _uses: Counter[str] = field(default_factory=Counter)

    def start(self, event: ToolStarted, index: int) -> list[ServerCallBlock]:
        """The blocks that it begins with, the first of them at this place; none for a call that is not shown."""
        if event.tool not in self.tools:
            return []
        blocks = [self._block(index + at, event.tool, given) for at, given in enumerate(_inputs(event))]
        self._running[event.id] = ShownCall(event, blocks)
        return blocks

    def _block(self, index: int, tool: str, given: Mapping[str, Any]) -> ServerCallBlock:
        self._uses[tool] += 1
        most = self.most.get(tool)
        return ServerCallBlock(index, tool, given, beyond=most is not None and self._uses[tool] > most)

    def finish(self, event: ToolFinished) -> None:
        if call := self._running.get(event.id):
            call.finished = event

    @property
    def ended(self) -> bool:
        return bool(self._running) and any(call.finished for call in self._running.values())

    def take(self, told: Mapping[str, ToldCall]) -> list[ShownCall]:
        """Those that have ended, in their order, with what is told of them."""
        ended = [call for call in self._running.values() if call.finished]
        for call in ended:
            call.told = told.get(call.started.id)
            del self._running[call.started.id]
        return ended


def as_known(source: Source) -> dict[str, Any]:
    """What a handle holds of a source."""
    known = {"n": source.n, "url": source.url, "title": source.title, "snippet": source.snippet}
    return {**known, "basis": source.basis}


def _search_result(source: Source, handle: str) -> dict[str, Any]:
    return {
        "type": "web_search_result",
        "url": source.url,
        "title": source.title,
        "encrypted_content": handle,
        "page_age": source.date,
    }


def _inputs(event: ToolStarted) -> list[dict[str, Any]]:
    given = event.arguments
    if event.tool == WEB_SEARCH:
        return [{"query": str(given.get("query") or "")}]
    urls = given.get("urls")
    listed = urls if isinstance(urls, list) and urls else [given.get("url") or ""]
    return [{"url": str(url)} for url in listed]
