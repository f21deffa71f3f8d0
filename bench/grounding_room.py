"""How much of a small context is used, and whether it overflows. Handed nothing: a real Groundwire is asked three times
in front of a server that counts tokens and refuses what is too much, over a folder that holds more than any of them can
read. Hands on the tokens of each question and what was refused, by context and by characters per token.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.fakes.bounded_model import BoundedModel
from tests.fakes.groundwire import Groundwire

CONTEXTS = (2048, 4096, 16_384)
CHARACTERS = (4.0, 2.5, 1.5)  # of a token
ANSWER = 300  # tokens that the client leaves for it
ASKED = "Why is the sky blue?"
PARAGRAPH = "The sky is blue, part {}, because air scatters blue light more than red light."
FILLER = "word " * 2390  # of a conversation that was: some 3,000 tokens, at four characters each


@dataclass(frozen=True)
class Used:
    tokens: list[int]  # of each question that the model answered
    refused: int  # requests that its server refused
    failed: int  # of these, requests whose client was refused too


def measure(folder: Path, context: int, characters: float, before: str = "", times: int = 3) -> Used:
    """`before`: what was said before the question."""
    history = [{"role": "user", "content": before}, {"role": "assistant", "content": "Yes."}] if before else []
    library = {"name": "library", "type": "local", "private": False, "base_url": "https://sky.example/"}
    library["options"] = {"path": str(folder / "sky"), "index": str(folder / "index.sqlite")}
    with BoundedModel(context, characters) as model:
        upstream = {"name": "up", "base_url": model.url, "tool_calls": "none"}
        with Groundwire({"upstreams": [upstream], "providers": [library]}) as proxy:
            statuses = [_ask(proxy, [*history, {"role": "user", "content": ASKED}]) for _ in range(times)]
        refused = sum(model.tokens(body) >= context for body in model.requests)
        return Used(model.asked_with, refused, sum(status != 200 for status in statuses))


def _ask(proxy: Groundwire, messages: list[dict[str, Any]]) -> int:
    body = {"model": "m", "messages": messages, "max_tokens": ANSWER}
    return httpx.post(f"{proxy.url}/chat/completions", json=body, timeout=60).status_code


def make_folder(folder: Path) -> None:
    (folder / "sky").mkdir()
    for name in ("one", "two", "three"):
        paragraphs = (PARAGRAPH.format(f"{name} {number}") for number in range(400))
        (folder / "sky" / f"{name}.md").write_text("\n\n".join([f"# Blue sky {name}", *paragraphs]), encoding="utf-8")


def lines() -> Iterator[str]:
    yield f"Room: tokens of what the model is asked with ({ANSWER} are left for the answer), for three questions"
    yield f"{'context':>9}{'characters a token':>20}{'tokens used':>24}{'refused':>10}"
    with tempfile.TemporaryDirectory(prefix="groundwire-bench-") as made:
        folder = Path(made)
        make_folder(folder)
        for context in CONTEXTS:
            for characters in CHARACTERS:
                yield _row(context, characters, measure(folder, context, characters))
        yield "\nbehind a conversation of some 3,000 tokens, which the server answers when it is asked directly"
        yield _row(4096, 4.0, measure(folder, 4096, 4.0, FILLER))
    yield "\ntests/fakes/bounded_model.py counts the tokens; the folder holds 100,000 characters about the question."


def _row(context: int, characters: float, used: Used) -> str:
    tokens = ", ".join(f"{tokens:,}" for tokens in used.tokens)
    refused = f"{used.refused}" + (f", {used.failed} for the client" if used.failed else "")
    return f"{context:9,}{characters:20}{tokens:>24}{refused:>10}"
