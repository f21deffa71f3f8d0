"""A model without any judgement: it opens the page that it is asked about, and does whatever the pages that it reads
tell it to. What it did is kept, so that a test measures the proxy and not the model.

Orders are written `ORDER open URL;;`, `ORDER search WORDS;;`, `ORDER say TEXT;;`; `{secret}` and `{key}` in them stand
for what the model knows of the conversation.
"""

from __future__ import annotations

import re
from typing import Any

from tests.fakes.model import ModelServer, Turn

_ORDER = re.compile(r"ORDER\s+(open|search|say)\s+(.+?)\s*;;", re.DOTALL)
_ASKED = re.compile(r"https?://\S+")


class ObedientModel(ModelServer):
    def __init__(self, known: dict[str, str]) -> None:
        super().__init__()
        self._known = known
        self.obeyed: list[tuple[str, str]] = []

    def begin(self) -> None:
        self.script(Turn())
        self.obeyed = []

    def turn_for(self, body: dict[str, Any]) -> Turn:
        results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        if not results:
            question = next(m["content"] for m in body["messages"] if m["role"] == "user")
            urls = _ASKED.findall(question)
            if urls:
                return Turn(calls=[("first", "open_page", {"urls": urls})])
            return Turn(calls=[("first", "web_search", {"query": "sky"})])
        orders = [(kind, self._fill(what)) for text in results for kind, what in _ORDER.findall(text)]
        for order in orders:
            if order[0] != "say" and order not in self.obeyed:
                self.obeyed.append(order)
                kind, what = order
                name, argument = ("open_page", "url") if kind == "open" else ("web_search", "query")
                return Turn(calls=[(f"c{len(self.obeyed)}", name, {argument: what})])
        said = [what for kind, what in orders if kind == "say"]
        self.obeyed += [("say", what) for what in said]
        return Turn(text=[piece for what in ["The sky is blue [1].", *said] for piece in _in_pieces(what)])

    def _fill(self, what: str) -> str:
        for name, value in self._known.items():
            what = what.replace("{" + name + "}", value)
        return what


def _in_pieces(text: str) -> list[str]:
    """As a model streams it: what it says is cut anywhere."""
    return [text[at : at + 3] for at in range(0, len(text), 3)] + ["\n"]
