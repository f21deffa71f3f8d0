"""Thinking that a model writes into its answer's text: `<think>…</think>` at its very beginning. Handed the text in
pieces, hands on which of it was thought and which is the answer. Further in, such a tag is ordinary text.
"""

from __future__ import annotations

import re
from typing import Literal

_TAGS = {"<think>": "</think>", "<thinking>": "</thinking>", "[THINK]": "[/THINK]"}
_MOST_BLANKS = 1000  # before an opening tag: what comes behind more of them is text
_NO_TAG = re.compile(r"\s*[^\s<\[]")
_CLOSED = re.compile(r"\A.*?(?:</think>|</thinking>|\[/THINK\])\s*", re.DOTALL)

Piece = tuple[Literal["thought", "answer"], str]


class ThoughtReader:
    """`feed(text)` per piece, `flush()` at the end; held back is at most a tag that is not whole yet."""

    def __init__(self) -> None:
        self._place: Literal["start", "thought", "after", "answer"] = "start"
        self._held = ""
        self._close = ""

    @property
    def done(self) -> bool:
        """Only answer from here on: nothing more to look for."""
        return self._place == "answer"

    def is_absent(self, text: str) -> bool:
        """Does the answer begin with this text, without any thinking? Then there is nothing to look for."""
        return self._place == "start" and not self._held and _NO_TAG.match(text) is not None

    def feed(self, text: str) -> list[Piece]:
        if self._place == "answer":
            return [("answer", text)] if text else []
        out: list[Piece] = []
        self._held += text
        if self._place == "start":
            self._begin(out)
        if self._place == "thought":
            self._think(out)
        if self._place == "after":
            self._held = self._held.lstrip()  # the blank lines between the thinking and the answer
            if self._held:
                self._pass_on(out)
        return out

    def flush(self) -> list[Piece]:
        kind: Literal["thought", "answer"] = "thought" if self._place == "thought" else "answer"
        held, self._held, self._place = self._held, "", "answer"
        return [(kind, held)] if held else []

    def _begin(self, out: list[Piece]) -> None:
        said = self._held.lstrip()
        late = len(self._held) - len(said) > _MOST_BLANKS
        for tag, close in _TAGS.items():
            if said.startswith(tag) and not late:
                self._place, self._held, self._close = "thought", said[len(tag) :], close
                return
        if late or not any(tag.startswith(said) for tag in _TAGS):
            self._pass_on(out)

    def _think(self, out: list[Piece]) -> None:
        thought, closed, rest = self._held.partition(self._close)
        if closed:
            self._place, self._held = "after", rest
        else:
            keep = _begun(thought, self._close)
            thought, self._held = thought[: len(thought) - keep], thought[len(thought) - keep :]
        if thought:
            out.append(("thought", thought))

    def _pass_on(self, out: list[Piece]) -> None:
        held, self._held, self._place = self._held, "", "answer"
        out.append(("answer", held))


def without_thinking(text: str) -> str:
    """A message as it may stand in the history. Templates that open the thinking themselves leave only its end."""
    if "/" not in text or ("/think" not in text and "[/THINK]" not in text):  # one character is found much sooner
        return text
    return _CLOSED.sub("", text, count=1)


def _begun(text: str, tag: str) -> int:
    """How many characters at the end of the text could begin the tag."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:size])), 0)
