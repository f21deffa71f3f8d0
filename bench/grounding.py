"""How well answers are grounded, in figures. One function for each section prints a table and where it comes from.

    .venv/bin/python bench/grounding.py [--only passages] [--files 20000] [folder of the data]

The data is never part of the product; a section whose data is not there says so and is left out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import grounding_citations  # noqa: E402
import grounding_decisions  # noqa: E402
import grounding_passages  # noqa: E402
import grounding_room  # noqa: E402
import local_index  # noqa: E402


def passages(chosen: argparse.Namespace) -> None:
    grounding_passages.passages(chosen.data)


def citations(chosen: argparse.Namespace) -> None:
    folder = chosen.data / "expertqa"
    if not (folder / grounding_citations.DATA).is_file():
        print(f"citations: left out, there is no {grounding_citations.DATA} in {folder}")
        return
    print("Citations: which source a claim comes from, where the model wrote no marker; what `unmatched` says")
    print("\n".join(grounding_citations.lines(folder)))
    print(f"\nExpertQA (MIT) in {folder}: the half that was held out chose nothing in plain_support.py.")


def decisions(_: argparse.Namespace) -> None:
    print("\n".join(grounding_decisions.lines()))


def documents(chosen: argparse.Namespace) -> None:
    print("Documents: a folder is indexed, opened again as by a new process, and searched")
    print("\n".join(local_index.measure(chosen.files).lines()))
    print("\nbench/local_index.py: invented pages of some 5 KB, a third each of HTML, Markdown and text.")


def room(_: argparse.Namespace) -> None:
    for line in grounding_room.lines():
        print(line, flush=True)


SECTIONS: dict[str, Callable[[argparse.Namespace], None]] = {
    "passages": passages,
    "citations": citations,
    "decisions": decisions,
    "documents": documents,
    "room": room,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", default=ROOT.parent / "shared/data")
    parser.add_argument("--only", choices=SECTIONS, action="append", help="a section; may be said again")
    parser.add_argument("--files", type=int, default=20_000, help="of the folder that is indexed")
    chosen = parser.parse_args()
    for name in chosen.only or SECTIONS:
        SECTIONS[name](chosen)
        print()


if __name__ == "__main__":
    main()
