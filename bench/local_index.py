"""How fast a folder of documents is indexed, found again and searched: `python bench/local_index.py [--files N]`.

Makes a folder of invented pages (HTML with navigation, Markdown and text; words as unequally common as in real ones),
indexes it, opens the index again as a new process would, and asks it questions. `measure` is what other benches call.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Measured:
    files: int
    indexed: float  # seconds, the first time
    indexed_cpu: float  # seconds of all processes that took part
    restarted: float  # seconds from a new process's first question to its answer
    searches: list[float]  # seconds each, sorted
    computed: list[float]  # seconds of CPU time each, sorted: the same on a machine that is busy
    size: int  # bytes of the index

    def lines(self) -> list[str]:
        middle, late = self.searches[len(self.searches) // 2], self.searches[int(len(self.searches) * 0.95)]
        return [
            f"{self.files:,} files indexed in {self.indexed:.1f} s (CPU time {self.indexed_cpu:.1f} s), "
            f"{self.size / 1e6:.0f} MB",
            f"first answer after a restart: {self.restarted:.2f} s",
            f"search: median {middle * 1000:.1f} ms, 95 % within {late * 1000:.1f} ms, "
            f"longest {self.searches[-1] * 1000:.1f} ms ({len(self.searches)} searches)",
            f"of these, CPU time: median {self.computed[len(self.computed) // 2] * 1000:.1f} ms, "
            f"95 % within {self.computed[int(len(self.computed) * 0.95)] * 1000:.1f} ms",
        ]


def measure(files: int = 20_000, kinds: str = "html,md,txt", paragraphs: int = 12) -> Measured:
    """Makes a folder, indexes it, and asks it."""
    with tempfile.TemporaryDirectory(prefix="groundwire-bench-") as made:
        folder, index = Path(made) / "folder", Path(made) / "index.sqlite"
        make_folder(folder, files, kinds, paragraphs)
        indexed, computing = asyncio.run(_index(folder, index))
        restarted, searches = asyncio.run(restart(folder, index))
        walls, computed = (sorted(took) for took in zip(*searches, strict=True))
        return Measured(files, indexed, computing, restarted, walls, computed, index.stat().st_size)


async def _index(folder: Path, index: Path) -> tuple[float, float]:
    began, used = time.perf_counter(), _cpu_time()
    service = Local(Local.Settings(path=folder, index=index))
    await service.indexed()
    took = time.perf_counter() - began
    await service.aclose()
    return took, _cpu_time() - used


def _cpu_time() -> float:
    """Of this process and of those that it started, as far as they have ended."""
    return sum(os.times()[:4])


async def restart(folder: Path, index: Path) -> tuple[float, list[tuple[float, float]]]:
    """Seconds to the first answer of an index that was made before; of 200 more the seconds, and those of the CPU."""
    first, *more = queries(201)
    service = Local(Local.Settings(path=folder, index=index, wait=60))
    ((restarted, _),) = await _ask(service, [first])
    searches = await _ask(service, more)
    await service.aclose()
    return restarted, searches


async def _ask(service: Local, texts: list[str]) -> list[tuple[float, float]]:
    took = []
    for text in texts:
        began, used = time.perf_counter(), time.process_time()
        with suppress(NoResults):
            await service.search(SearchQuery(text))
        took.append((time.perf_counter() - began, time.process_time() - used))
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description="How fast a folder of documents is indexed and searched.")
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--kinds", default="html,md,txt")
    parser.add_argument("--paragraphs", type=int, default=12, help="of a document")
    given = parser.parse_args()
    print("\n".join(measure(given.files, given.kinds, given.paragraphs).lines()))


if __name__ == "__main__":
    main()
