"""Makes docs/faults.md: every row of the table, with the tests that carry its number. Run by `make faults`, which runs
those tests first; test_page.py fails where the page is not what this makes.
"""

from __future__ import annotations

import importlib
import json
from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from tests.faults.table import SECTIONS, Row

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "faults.md"
LOADS = HERE.parents[1] / "bench" / "loads.json"  # what `make load` and `make soak` saw, by row

_HEAD = """\
# Faults

```text
data: {"choices": [{"delta": {"content": "The tower is"}}]}
data: {"error": {"message": "…", "code": "upstream_truncated"}}
```

Here the model's server died in the middle of an answer. The client gets an error event, and no `[DONE]`: half an answer
never looks like a whole one. This page lists 87 such faults, of the model's server, of search providers and pages, of
clients and of the process itself, and says what happens.

Each row is a test that `make test` runs against a running Groundwire. *Searched* means that our tools are offered,
*forwarded* that bytes pass both ways; a row that concerns both is tested on both. Rows about load and time are measured
by `make load` and `make soak`, and carry the date. `make faults` runs the tests and writes this page.
"""


class Shown(NamedTuple):
    test: str
    roads: tuple[str, ...]
    part: str


def shown() -> dict[int, list[Shown]]:
    """The tests of each row."""
    tests: dict[int, list[Shown]] = defaultdict(list)
    for path in sorted(HERE.glob("test_*.py")):
        module = importlib.import_module(f"tests.faults.{path.stem}")
        for name, number, roads, part in _marked(module):
            tests[number].append(Shown(f"{path.name}::{name}", roads, part))
    return tests


def page() -> str:
    tests = shown()
    loads: dict[str, dict[str, str]] = json.loads(LOADS.read_text()) if LOADS.exists() else {}
    parts = [_HEAD]
    for title, rows in SECTIONS.items():
        parts.append(
            f"\n## {title}\n\n| # | what goes wrong | what happens | result | shown by |\n|---|---|---|---|---|\n"
        )
        parts += [_line(row, tests.get(row.number, []), loads.get(str(row.number))) for row in rows]
    return "".join(parts)


def _line(row: Row, tests: list[Shown], load: dict[str, str] | None) -> str:
    cells = str(row.number), row.fault, row.promise, _result(tests, load), _by(tests, load)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _result(tests: list[Shown], load: dict[str, str] | None) -> str:
    if not tests and not load:
        return "not shown"
    reasons = [part for part in [*(test.part for test in tests), load["part"] if load else ""] if part]
    roads = ", ".join(dict.fromkeys(road for test in tests for road in test.roads))
    held = f"holds ({roads})" if roads else "holds"
    return f"in part: {'; '.join(reasons)}" if reasons else held


def _by(tests: list[Shown], load: dict[str, str] | None) -> str:
    measured = [f"{load['date']}: {load['seen']}"] if load else []
    return "<br>".join([*(f"`{test.test}`" for test in tests), *measured])


def _marked(module: ModuleType) -> list[tuple[str, int, tuple[str, ...], str]]:
    found: list[tuple[str, int, tuple[str, ...], str]] = []

    def look(named: dict[str, Any], prefix: str) -> None:
        for name, value in named.items():
            if isinstance(value, type) and name.startswith("Test"):
                look(vars(value), f"{prefix}{name}::")
            elif name.startswith("test_"):
                marks = [mark for mark in getattr(value, "pytestmark", []) if mark.name == "fault"]
                found.extend((prefix + name, *mark.args) for mark in marks)

    look(vars(module), "")
    return found


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
