"""docs/clients.md, cut into its sections. Handed the title of a section and the language of its snippets; hands on what
a reader copies from there, with nothing replaced but the address, the key and the model.
"""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "clients.md").read_text(encoding="utf-8")


def _sections() -> dict[str, str]:
    """By title; what stands before the first of them is called by the page's own."""
    found = {"Clients": PAGE.partition("\n## ")[0]}
    for part in PAGE.split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        found[title] = text
    return found


SECTIONS = _sections()


def snippets(title: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", SECTIONS[title], re.S)


def snippet(title: str, language: str, root: str, *, model: str = "m", key: str = "sk-nobodys") -> str:
    """The one snippet of a section, for the Groundwire at `root` (an address without a path)."""
    (only,) = snippets(title, language)
    return here(only, root, model=model, key=key)


def here(text: str, root: str, *, model: str = "m", key: str = "sk-nobodys") -> str:
    assert "http://127.0.0.1:8080" in text
    return text.replace("http://127.0.0.1:8080", root).replace("unused", key).replace("qwen3", model)
