"""What a tool is handed and what it hands back. Handed a `ToolCall` by the loop; the toolbox answers a `ToolResult`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .ledger import Source

WEB_SEARCH = "web_search"
OPEN_PAGE = "open_page"


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    tool: str  # our name (`web_search`, `open_page`), or whatever unknown name the model made up
    arguments: str  # the JSON text as the model wrote it


@dataclass(frozen=True, slots=True)
class ToolResult:
    id: str
    text: str  # what the model reads
    ok: bool = True
    provider: str = ""
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as it is offered to the model. Constant bytes: nothing in it depends on the request."""

    tool: str
    description: str
    parameters: Mapping[str, Any]
