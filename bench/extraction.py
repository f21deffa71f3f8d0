"""How well and how fast pages become text: ours beside trafilatura's default mode, same process, same pages, by turns.

Needs a folder of pages with their known main content (truth.jsonl and gzipped HTML); says so and stops where there is
none. Word-level F1 on plain text, averaged over pages; milliseconds per page on one core.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from providers.errors import ProviderError  # noqa: E402
from providers.web.extract import extract, plain_text  # noqa: E402

Reader = Callable[[bytes, str], str]


@dataclass(frozen=True)
class Reading:
    kind: str
    f1: float
    seconds: float


def read_ours(html: bytes, url: str) -> str:
    try:
        return plain_text(extract(html, "text/html", "", url).text)
    except ProviderError:
        return ""


def score(text: str, truth: str) -> float:
    found, wanted = (re.findall(r"\w+", part.lower()) for part in (text, truth))
    if not found or not wanted:
        return float(found == wanted)
    shared = sum((Counter(found) & Counter(wanted)).values())
    return 2 * shared / (len(found) + len(wanted))


def measure(folder: Path, readers: dict[str, Reader]) -> dict[str, list[Reading]]:
    readings: dict[str, list[Reading]] = {name: [] for name in readers}
    rows = [json.loads(line) for line in (folder / "truth.jsonl").read_text("utf-8").splitlines()]
    for number, row in enumerate([rows[0], *rows]):
        html = gzip.decompress((folder / row["html"]).read_bytes())
        for name, read in readers.items():
            begun = time.perf_counter()
            text = read(html, row["url"])
            seconds = time.perf_counter() - begun
            if number:  # the first page is read twice: what is imported on first use is not the page's fault
                readings[name].append(Reading(row["type"], score(text, row["main_content"]), seconds))
    return readings


def show(readings: dict[str, list[Reading]]) -> None:
    names = list(readings)
    kinds = sorted({reading.kind for reading in readings[names[0]]})
    print(f"{'F1':15}" + "".join(f"{name:>24}" for name in names))
    for kind in [*kinds, "all"]:
        of_kind = [[r.f1 for r in readings[name] if kind in (r.kind, "all")] for name in names]
        print(f"{kind:10}{len(of_kind[0]):5}" + "".join(f"{mean(scores):24.3f}" for scores in of_kind))
    times = {name: sorted(1000 * reading.seconds for reading in readings[name]) for name in names}
    print(f"{'ms mean':15}" + "".join(f"{mean(times[name]):24.1f}" for name in names))
    print(f"{'ms p95':15}" + "".join(f"{times[name][int(0.95 * len(times[name]))]:24.1f}" for name in names))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=Path, default=ROOT.parent / "shared/data/pages")
    folder = parser.parse_args().pages
    if not (folder / "truth.jsonl").is_file():
        print(f"no pages in {folder}: give a folder with truth.jsonl and its pages by --pages")
        return
    import trafilatura

    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    show(
        measure(
            folder,
            {
                "groundwire": read_ours,
                "trafilatura": lambda html, _: trafilatura.extract(html, include_comments=False) or "",
                "trafilatura + comments": lambda html, _: trafilatura.extract(html) or "",
            },
        )
    )


if __name__ == "__main__":
    main()
