"""A model that searches whenever it may, for whole programs that ask as they please: titles and tags, questions, tool
loops. Handed what to answer to which words, it searches first where `web_search` is offered and nothing was found yet,
calls what it is told to call, and then says what it was told to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.fakes.model import ModelServer, Turn


@dataclass(frozen=True)
class Said:
    """What the model says to a question that holds these words: before it, calls of the client's tools. `query` is what
    it searches for, where the question does not begin with its own words."""

    words: str
    text: str
    calls: Sequence[tuple[str, object]] = ()
    query: str = ""


class EagerModel(ModelServer):
    """`answers` are tried in order; what none fits is answered with "OK.". A model that has a `part` plays that."""

    def __init__(self, answers: Sequence[Said]) -> None:
        super().__init__()
        self._answers = answers
        self._calls = 0

    def turn_for(self, body: dict[str, Any]) -> Turn:
        if body.get("model") in self.asked:
            return super().turn_for(body)
        messages = body["messages"]
        asked = max(i for i, message in enumerate(messages) if message["role"] == "user")
        question = _text(messages[asked])
        done = {call["function"]["name"] for message in messages[asked:] for call in message.get("tool_calls") or ()}
        tools = {tool["function"]["name"] for tool in body.get("tools") or ()}
        said = next((said for said in self._answers if said.words in question), Said("", "OK."))
        wanted = [("web_search", {"query": said.query or question[:60]}), *said.calls]
        calls = [(name, arguments) for name, arguments in wanted if name in tools - done]
        if calls and body.get("tool_choice") != "none":
            self._calls += 1
            return Turn(calls=[(f"c{self._calls}x{i}", *call) for i, call in enumerate(calls)])
        return Turn(text=[said.text[at : at + 5] for at in range(0, len(said.text), 5)])


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
