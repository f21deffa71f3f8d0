"""A conversation as `groundwire chat` keeps it: what was asked and answered, with the citations of each answer, as any
chat client sends it back. Handed questions and gathered answers; hands on messages for the next question, the sources
of all answers, and a text to save.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..dialects.chat import annotation
from .gathered_answer import GatheredAnswer
from .source_lines import SourceLines


class Conversation:
    def __init__(self) -> None:
        self._turns: list[tuple[str, GatheredAnswer]] = []
        self._saved: set[Path] = set()  # files that this conversation has written

    def add(self, question: str, answer: GatheredAnswer) -> None:
        """An answer that was broken off stays as far as it came; a question without any answer is forgotten."""
        if answer.text:
            self._turns.append((question, answer))

    def messages(self, question: str) -> list[dict[str, Any]]:
        """What is sent to have this question answered."""
        return [*self._history(), {"role": "user", "content": question}]

    def _history(self) -> list[dict[str, Any]]:
        said: list[dict[str, Any]] = []
        for question, answer in self._turns:
            cited = [annotation(citation) for citation in answer.citations]
            said.append({"role": "user", "content": question})
            said.append({"role": "assistant", "content": answer.text, **({"annotations": cited} if cited else {})})
        return said

    @property
    def sources(self) -> GatheredAnswer:
        """What all answers cite and have read."""
        together = GatheredAnswer()
        for _, answer in self._turns:
            together.citations += answer.citations
            together.read |= answer.read
        return together

    def save(self, path: Path) -> None:
        """As JSON if the name says so, else as Markdown. Only a file of its own is written over."""
        path = path.expanduser().absolute()
        text = self._as_json() if path.suffix == ".json" else self._as_markdown()
        with path.open("w" if path in self._saved else "x", encoding="utf-8", errors="replace") as file:
            file.write(text)
        self._saved.add(path)

    def _as_json(self) -> str:
        return json.dumps({"messages": self._history()}, ensure_ascii=False, indent=2) + "\n"

    def _as_markdown(self) -> str:
        plain = SourceLines(verbose=False, terminal=False, colour=False)
        parts: list[str] = []
        for question, answer in self._turns:
            parts += [f"## {' '.join(question.split())}", answer.text.strip()]
            if listed := "\n".join(plain.lines(answer)).strip():
                parts.append(listed)
        return "\n\n".join(parts) + "\n"
