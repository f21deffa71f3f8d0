"""The content blocks of an answer. Each knows itself as it begins, as it is when it is whole, and what is written in
between. Handed pieces by the encoder; hands on plain JSON objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from providers.random_ids import random_id
from tools.base import WEB_SEARCH

from ...upstreams.calls import ArgumentReader
from ...values.events import Citation

_SERVER_NAMES = {WEB_SEARCH: "web_search"}


class Block:
    """`begun` is what its first event holds, `whole` what it is in the end."""

    def __init__(self, index: int) -> None:
        self.index = index

    def begun(self) -> dict[str, Any]:
        return self.whole()

    def whole(self) -> dict[str, Any]:
        raise NotImplementedError


class TextBlock(Block):
    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.text: list[str] = []
        self.length = 0
        self.cited: list[tuple[Citation, int]] = []  # with the place in this text
        self.is_closing = False  # a marker stands at its end: only what closes a sentence still belongs to it
        self.citations: list[dict[str, Any]] = []

    def write(self, text: str) -> None:
        self.text.append(text)
        self.length += len(text)

    def begun(self) -> dict[str, Any]:
        return {"type": "text", "text": ""}

    def whole(self) -> dict[str, Any]:
        cited = {"citations": self.citations} if self.citations else {}
        return {"type": "text", "text": "".join(self.text), **cited}


class ThinkingBlock(Block):
    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.text: list[str] = []
        self.signature = ""

    def begun(self) -> dict[str, Any]:
        return {"type": "thinking", "thinking": "", "signature": ""}

    def whole(self) -> dict[str, Any]:
        return {"type": "thinking", "thinking": "".join(self.text), "signature": self.signature}


class CallBlock(Block):
    """A call of the client's tool."""

    def __init__(self, index: int, id_: str, name: str) -> None:
        super().__init__(index)
        self.id = id_
        self.name = name
        self.arguments: list[str] = []
        self._reader = ArgumentReader()
        self._is_wrong = False

    def write(self, arguments: str) -> str:
        """What of it is shown: nothing of arguments that are no object. SDKs read them as JSON while they come."""
        if not self.arguments:
            arguments = arguments.lstrip()
            self._is_wrong = self._is_wrong or not "{".startswith(arguments[:1])
        if self._is_wrong or not arguments:
            return ""
        self.arguments.append(arguments)
        self._reader.feed(arguments)
        return arguments

    @property
    def is_complete(self) -> bool:
        return self._reader.over

    def begun(self) -> dict[str, Any]:
        return {"type": "tool_use", "id": self.id, "name": self.name, "input": {}}

    def whole(self) -> dict[str, Any]:
        return {**self.begun(), "input": self._input()}

    def _input(self) -> dict[str, Any]:
        """What was cut short, or was never JSON, cannot stand in an object: nothing is made up for it."""
        given = _parsed("".join(self.arguments))
        return given if isinstance(given, dict) else {}


class PlainBlock(Block):
    """One that comes whole: thinking that only its vendor can read, and what our tools found."""

    def __init__(self, index: int, block: Mapping[str, Any]) -> None:
        super().__init__(index)
        self._block = dict(block)

    def whole(self) -> dict[str, Any]:
        return self._block


class ServerCallBlock(Block):
    """A search of ours, or a page that we opened; `beyond` how many of them the request allows."""

    def __init__(self, index: int, tool: str, given: Mapping[str, Any], *, beyond: bool = False) -> None:
        super().__init__(index)
        self.beyond = beyond
        self.id = "srvtoolu_" + random_id()
        self.tool = tool
        self.input = dict(given)

    def begun(self) -> dict[str, Any]:
        name = _SERVER_NAMES.get(self.tool, "web_fetch")
        return {"type": "server_tool_use", "id": self.id, "name": name, "input": {}}

    def whole(self) -> dict[str, Any]:
        return {**self.begun(), "input": self.input}


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
