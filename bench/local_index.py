"""How fast a folder of documents is indexed, found again and searched: `python bench/local_index.py [--files N]`.

Makes a folder of invented pages (HTML with navigation, Markdown and text; words as unequally common as in real ones),
indexes it, opens the index again as a new process would, and asks it questions. `measure` is what other benches call.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from providers.base import SearchQuery
from providers.errors import NoResults
from providers.services.local import Local

VOCABULARY = 30_000
SYLLABLES = [a + b for a in "bdfghklmnprstvz" for b in ("a", "e", "i", "o", "u", "ar", "en", "il")]
NAVIGATION = "".join(f'<li><a href="/section{number}.html">Section {number}</a></li>' for number in range(60))


class Words:
    """Invented words, the n-th about 1/n as common as the first: as in every language."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        made: dict[str, None] = {}
        while len(made) < VOCABULARY:
            made["".join(self.random.choices(SYLLABLES, k=self.random.choice((2, 3, 3, 4))))] = None
        self.all = list(made)
        self._weights = list(accumulate(1 / (rank + 2) for rank in range(VOCABULARY)))

    def some(self, count: int) -> str:
        return " ".join(self.random.choices(self.all, cum_weights=self._weights, k=count))

    def paragraphs(self, count: int) -> Iterator[str]:
        for _ in range(count):
            yield ". ".join(self.some(self.random.randint(6, 18)).capitalize() for _ in range(5)) + "."


def make_folder(root: Path, files: int, kinds: str = "html,md,txt", paragraphs: int = 12, seed: int = 7) -> None:
    words, chosen = Words(seed), kinds.split(",")
    for number in range(files):
        kind = chosen[number % len(chosen)]
        folder = root / f"part{number // 200}"
        folder.mkdir(parents=True, exist_ok=True)
        title, texts = words.some(4).title(), list(words.paragraphs(paragraphs))
        (folder / f"document{number}.{kind}").write_text(_page(kind, title, texts))


def _page(kind: str, title: str, texts: list[str]) -> str:
    if kind == "html":
        body = "".join(f"<p>{text}</p>" for text in texts)
        head = f"<!doctype html><html><head><title>{title}</title></head><body><nav><ul>{NAVIGATION}</ul></nav>"
        return f"{head}<main><h1>{title}</h1>{body}</main><footer>All rights reserved.</footer></body></html>"
    heading = f"# {title}" if kind == "md" else title
    return "\n\n".join([heading, *texts]) + "\n"


def queries(count: int, seed: int = 11) -> list[str]:
    """What people ask: a few words, common and rare ones."""
    words = Words(7)
    words.random = random.Random(seed)
    return [words.some(words.random.randint(2, 6)) for _ in range(count)]


async def _ask(service: Local, texts: list[str]) -> list[float]:
    took = []
    for text in texts:
        began = time.perf_counter()
        with contextlib.suppress(NoResults):
            await service.search(SearchQuery(text))
        took.append(time.perf_counter() - began)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=20_000)
    given = parser.parse_args()
    print(given)


if __name__ == "__main__":
    main()
