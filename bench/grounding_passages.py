"""Does the model get to read the passage that holds the answer? Handed the folder of the data (XQuAD in six languages),
`passages` prints tables by language, by budget and by layout. A section of `bench/grounding.py`.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from statistics import mean
from typing import Any

from providers.base import Page
from providers.chain import Opened
from tools.pages import ReadPage, part_of, prepare
from tools.provenance import Address

ARTICLES = 8  # on a page
QUESTIONS = 20  # of a page, for the figures by budget and by layout
BUDGETS = (500, 1000, 2000, 4000)
HELD_OUT = 3  # by every third question nothing was chosen while the passages were tuned
SENTENCE_END = re.compile(r"(?<=[.!?؟।])\s+|(?<=[。！？])")
LAYOUTS: dict[str, Callable[[str], str]] = {
    "paragraphs": lambda text: text,
    "no paragraphs": lambda text: text.replace("\n\n", " "),
    "sentences": lambda text: SENTENCE_END.sub("\n\n", text),
}


@dataclass(frozen=True)
class Asked:
    text: str
    question: str
    answer: str
    held_out: bool


Figure = Callable[[list[Asked]], float]


def passages(data: Path) -> None:
    """The share of questions whose answer stands in what `open_page(query=question, max_length=…)` returns."""
    files = sorted((data / "xquad").glob("xquad.*.json.gz"))
    if not files:
        print(f"passages: left out, there is no xquad/xquad.*.json.gz in {data}")
        return
    asked = {file.name.split(".")[1]: _pages(file) for file in files}
    _print_shares({language: [one for page in pages for one in page] for language, pages in asked.items()})
    few = {
        language: [page[at * len(page) // QUESTIONS] for page in pages for at in range(QUESTIONS)]
        for language, pages in asked.items()
    }
    print(f"\nby budget, {QUESTIONS} questions of each page")
    _print_table(few, {f"{most:,}": partial(_share, most=most) for most in BUDGETS})
    print(f"\nat 2,000, by how the same page is laid out, {QUESTIONS} questions of each page")
    _print_table(few, {name: partial(_share, most=2000, lay_out=lay_out) for name, lay_out in LAYOUTS.items()})
    print(
        f"\nXQuAD (CC BY-SA 4.0) in {data / 'xquad'}: pages of {ARTICLES} articles, paragraphs shuffled, joined by\n"
        "blank lines; kept is what holds the answer's text. ns/char: CPU time per character of the page."
    )


def _print_shares(asked: dict[str, list[Asked]]) -> None:
    print("Passages: share of questions whose answer is in what open_page(query=question, max_length=2000) returns")
    columns: dict[str, Figure] = {
        "all": partial(_share, most=2000),
        "tuned": lambda some: _share([one for one in some if not one.held_out], 2000),
        "held out": lambda some: _share([one for one in some if one.held_out], 2000),
        "questions": lambda some: float(len(some)),
        "characters": lambda some: mean(len(one.text) for one in some),
        "ns/char": _time,
    }
    _print_table(asked, columns)


def _print_table(asked: dict[str, list[Asked]], columns: dict[str, Figure]) -> None:
    print(f"{'':6}" + "".join(f"{name:>15}" for name in columns))
    rows = {language: [figure(some) for figure in columns.values()] for language, some in asked.items()}
    rows["mean"] = [mean(column) for column in zip(*rows.values(), strict=True)]
    for language, row in rows.items():
        print(f"{language:6}" + "".join(f"{figure:15,.3f}" if figure <= 1 else f"{figure:15,.0f}" for figure in row))


def _share(asked: Sequence[Asked], most: int, lay_out: Callable[[str], str] = LAYOUTS["paragraphs"]) -> float:
    return mean(_keeps(one, most, lay_out) for one in asked)


@cache
def _keeps(asked: Asked, most: int, lay_out: Callable[[str], str]) -> bool:
    page = _read(lay_out(asked.text))
    part = part_of(page, 0, asked.question, most)
    if len(part.content) > most:
        raise AssertionError(f"{len(part.content)} characters where {most} were asked for")
    return _read(asked.answer).text in part.content


def _time(asked: Sequence[Asked]) -> float:
    """Nanoseconds for each character of the page: the choice alone, not the cleaning before."""
    pages = [_read(one.text) for one in asked]
    begun = time.process_time()
    for one, page in zip(asked, pages, strict=True):
        part_of(page, 0, one.question, 2000)
    return 1e9 * (time.process_time() - begun) / sum(len(page.text) for page in pages)


@lru_cache(maxsize=20_000)
def _read(text: str) -> ReadPage:
    """A text as `open_page` would show it."""
    url = "https://example.org/"
    return prepare(Address(url), Opened(Page(url, "", text), "bench"))


def _pages(file: Path) -> list[list[Asked]]:
    """The questions of each page. The layout of the data is SQuAD 1.1's."""
    articles = json.loads(gzip.decompress(file.read_bytes()))["data"]
    return [_page(articles[at : at + ARTICLES], at) for at in range(0, len(articles), ARTICLES)]


def _page(articles: Sequence[dict[str, Any]], seed: int) -> list[Asked]:
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    questions = [question for paragraph in paragraphs for question in paragraph["qas"]]
    texts = [paragraph["context"] for paragraph in paragraphs]
    random.Random(seed).shuffle(texts)
    page = "\n\n".join(texts)
    return [
        Asked(page, one["question"], one["answers"][0]["text"], number % HELD_OUT == HELD_OUT - 1)
        for number, one in enumerate(questions)
    ]
