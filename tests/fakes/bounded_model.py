"""A model server with a context that has an end: counts the tokens of what it is asked, refuses in llama.cpp's words
what is too much, and says in its usage what it counted. Asked what to search, it answers `keywords`.
"""

from __future__ import annotations

import json
import math
from typing import Any

from tests.fakes.model import ModelServer, Turn
from tools import prompts


class BoundedModel(ModelServer):
    """So many `characters` of English make a token; each of another script is one. `context` tokens fit; it lists them,
    unless `silent`."""

    def __init__(self, context: int = 4096, characters: float = 4.0, *, silent: bool = False) -> None:
        super().__init__()
        self.context = context
        self.characters = characters
        self.keywords = "sky blue"
        self.asked_with: list[int] = []  # tokens of each question, decisions left out
        self.listing = [{"id": "m", "object": "model", "meta": {} if silent else {"n_ctx": context}}]

    def tokens(self, body: dict[str, Any]) -> int:
        return sum(6 + self._tokens_of(str(message["content"])) for message in body["messages"])

    def _tokens_of(self, text: str) -> int:
        latin = len(text.encode("ascii", "ignore"))
        return math.ceil(latin / self.characters) + len(text) - latin

    def turn_for(self, body: dict[str, Any]) -> Turn:
        tokens = self.tokens(body)
        if tokens >= self.context:
            error = {
                "code": 400,
                "message": f"request ({tokens} tokens) exceeds the available context size ({self.context} tokens), "
                "try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": tokens,
                "n_ctx": self.context,
            }
            return Turn(status=400, body=json.dumps({"error": error}).encode())
        usage = {"prompt_tokens": tokens, "completion_tokens": 3, "total_tokens": tokens + 3}
        if prompts.DECIDE_SEARCH in str(body["messages"][-1]["content"]):
            return Turn(text=[self.keywords], usage=usage)
        self.asked_with.append(tokens)
        return Turn(text=["Scattering ", "[1]."], usage=usage)
