"""The table of messages to a model that cannot call tools (tests/data/first_searches.yaml), as rows: what the tests of
the plan are handed, and the bench that counts its decisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

TABLE = Path(__file__).parents[1] / "data" / "first_searches.yaml"
HELD_OUT = 3  # every third message of the file
AFTERWARDS = ("Afterwards", "Hostile")  # thought of when the rule was written, or found against it


class Row(NamedTuple):
    language: str
    wanted: str
    text: str
    keep: list[str]
    secret: list[str]
    part: str  # tuned | held out | afterwards


def rows() -> list[Row]:
    return [_row(number, *found) for number, found in enumerate(_entries(), 1)]


def _entries() -> Iterator[tuple[str, str, Any]]:
    for language, kinds in yaml.safe_load(TABLE.read_text(encoding="utf-8")).items():
        for wanted, entries in kinds.items():
            for entry in entries:
                yield language, wanted, entry


def _row(number: int, language: str, wanted: str, entry: Any) -> Row:
    given = entry if isinstance(entry, dict) else {"text": entry}
    return Row(language, wanted, given["text"], given.get("keep", []), given.get("secret", []), _part(number, language))


def _part(number: int, language: str) -> str:
    if language in AFTERWARDS:
        return "afterwards"
    return "tuned" if number % HELD_OUT else "held out"
