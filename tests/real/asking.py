"""How a client asks the real model through Groundwire, and sees the answer come: what the tests of this folder share.
Handed a running Groundwire and a question; prints the answer as it comes, and hands on what a client saw of it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.fakes.groundwire import Groundwire
from tests.real.server import NAME, RealModel

SITE = "https://skarholm.example/"


@dataclass
class Answer:
    """What a streaming client saw."""

    search: str = ""
    text: list[str] = field(default_factory=list)
    finishing: dict[str, Any] = field(default_factory=dict)
    done: bool = False

    @property
    def results(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.finishing.get("search_results", [])
        return found

    @property
    def citations(self) -> list[dict[str, Any]]:
        return [a["url_citation"] for a in self.finishing["choices"][0]["delta"].get("annotations", [])]


def ask(proxy: Groundwire, question: str, way: str, max_tokens: int = 100) -> Answer:
    """Asks as any client does, and prints the answer while it comes."""
    asked = {"model": NAME, "stream": True, "temperature": 0, "max_tokens": max_tokens}
    asked["messages"] = [{"role": "user", "content": question}]
    seen = Answer()
    print(f"\n\nupstream   {way}\nquestion   {question}\nanswer     ", end="", flush=True)
    with httpx.stream("POST", f"{proxy.url}/chat/completions", json=asked, timeout=600) as answer:
        if answer.status_code != 200:
            raise AssertionError(answer.read().decode())
        seen.search = answer.headers["x-groundwire-search"]
        for line in answer.iter_lines():
            if line.startswith("data: "):
                take(seen, line.removeprefix("data: "))
    print(f"\nheader     X-Groundwire-Search: {seen.search}")
    for result in seen.results:
        print(f"found      {result['title']}: {result['url']}")
    for citation in seen.citations:
        print(f"cited      {citation['title']}: {citation['url']}")
    if not seen.citations:
        print("cited      nothing")
    return seen


def take(seen: Answer, data: str) -> None:
    if data == "[DONE]":
        seen.done = True
        return
    chunk = json.loads(data)
    assert "error" not in chunk, chunk
    choice = chunk["choices"][0]
    if piece := choice["delta"].get("content"):
        seen.text.append(piece)
        print(piece, end="", flush=True)
    if choice["finish_reason"]:
        assert not seen.finishing, "an answer finishes once"
        seen.finishing = chunk


def upstream(model: RealModel, **said: Any) -> dict[str, Any]:
    patience = {"first_byte_timeout": 600, "idle_timeout": 600}  # a busy machine reads a full context for minutes
    return {"name": "real", "base_url": model.url, **patience, **said}


def library(folder: Path) -> dict[str, Any]:
    return {"name": "library", "type": "local", "base_url": SITE, "private": False, "options": {"path": str(folder)}}


def assert_a_whole_stream(answer: Answer) -> None:
    assert "".join(answer.text).strip()
    assert answer.finishing["choices"][0]["finish_reason"] in ("stop", "length")
    assert answer.done
