"""What we want, beside what was seen: the figures that decide, with their bounds against the relay, nginx and LiteLLM.

Handed the rows of one interleaved run; hands on Markdown, and keeps a dated copy of both in bench/results/ with the
versions that they are about. Run as a script it shows a stored run again.
"""

import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from measure import CORES, HERE, Row
from targets import DIRECT, FORWARDED, LITELLM, LITELLM_SEARCH, NGINX, OURS, RELAY

RESULTS = HERE / "results"
COLUMNS = {NGINX: "nginx", RELAY: "relay", FORWARDED: "Groundwire, forwarded", OURS: "Groundwire", LITELLM: "LiteLLM"}
_PYTHON = """\
import platform, sys
print(platform.python_version() + (" of the system" if sys.base_prefix == "/usr" else ""))
"""
PACKAGES = ("aiohttp", "uvicorn", "uvloop", "httptools", "starlette", "httpx")


class Bound(NamedTuple):
    """At most so many times what somebody else takes; in another scenario, where that one has no such."""

    whose: str
    times: float
    of: str
    scenario: str = ""


class Figure(NamedTuple):
    """`added`: what comes on top of the direct run."""

    title: str
    scenario: str
    key: str
    bounds: tuple[Bound, ...]
    unit: float = 1.0
    added: bool = False


FIGURES = (
    Figure(
        "CPU s per 1,000 requests, 16 connections",
        "json16",
        "cpu_1k",
        (Bound(OURS, 1.5, RELAY), Bound(OURS, 1 / 40, LITELLM), Bound(FORWARDED, 1.4, RELAY)),
    ),
    Figure(
        "CPU s per 100,000 chunks, burst",
        "burst",
        "cpu_100k",
        (Bound(OURS, 2.0, RELAY), Bound(OURS, 1 / 100, LITELLM)),
    ),
    Figure("CPU s per 100,000 chunks, paced", "paced", "cpu_100k", (Bound(OURS, 1.3, RELAY), Bound(OURS, 2.7, NGINX))),
    Figure("CPU s per 1,000 searched JSON answers", "tooljson", "cpu_1k", (Bound(OURS, 4.5, RELAY, "json16"),)),
    Figure("added first token p50, paced, ms", "paced", "ttft_p50", (Bound(OURS, 1.3, RELAY),), 1e-3, added=True),
    Figure("added first token p99, paced, ms", "paced", "ttft_p99", (Bound(OURS, 1.3, RELAY),), 1e-3, added=True),
    Figure("start to the first 200, s", "startup", "start", (Bound(OURS, 1.9, RELAY),)),
    Figure("RSS idle, MiB", "startup", "rss", (Bound(OURS, 1.5, RELAY),)),
    Figure("RSS after load, MiB", "paced", "rss", (Bound(OURS, 1.7, RELAY),)),
)


class Medians:
    """Over all rounds of a run."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def of(self, target: str, figure: Figure, scenario: str = "") -> float | None:
        found = self._median(target, scenario or figure.scenario, figure.key)
        if found is None and target == LITELLM:
            found = self._median(LITELLM_SEARCH, scenario or figure.scenario, figure.key)
        if found is None or not figure.added:
            return found
        base = self._median(DIRECT, figure.scenario, figure.key)
        return None if base is None else found - base

    def _median(self, target: str, scenario: str, key: str) -> float | None:
        mine = (row for row in self._rows if row["target"] == target and row["scenario"] == scenario)
        values = [row[key] for row in mine if row.get(key) is not None]
        return statistics.median(values) if values else None


def table(rows: Sequence[Row]) -> str:
    medians = Medians(rows)
    head = ["", *COLUMNS.values(), "Groundwire ÷ relay", "wanted", "seen"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for figure in FIGURES:
        values = {name: medians.of(name, figure) for name in COLUMNS}
        cells = ["–" if value is None else f"{value * figure.unit:.3g}" for value in values.values()]
        ours, floor = values[OURS], values[RELAY]
        ratio = f"{ours / floor:.2f}" if ours is not None and floor is not None and floor > 0 else "–"
        judged = [_judged(medians, figure, bound) for bound in figure.bounds]
        wanted, seen = (", ".join(part) for part in zip(*judged, strict=True))
        lines.append("| " + " | ".join([figure.title, *cells, ratio, wanted, seen]) + " |")
    return "\n".join(lines)


def _judged(medians: Medians, figure: Figure, bound: Bound) -> tuple[str, str]:
    """What is wanted, and what was seen, in bold where it is not enough."""
    whose = "forwarded " if bound.whose == FORWARDED else ""
    of = COLUMNS[bound.of] + ("'s request" if bound.scenario else "")
    times = f"{bound.times:g}×" if bound.times >= 1 else f"1/{1 / bound.times:.0f}"
    mine, theirs = medians.of(bound.whose, figure), medians.of(bound.of, figure, bound.scenario)
    if mine is None or theirs is None or theirs <= 0:
        return f"{whose}≤ {times} {of}", "–"
    ratio = mine / theirs
    shown = f"{ratio:.2f}×" if bound.times >= 1 else f"1/{1 / ratio:.0f}"
    return f"{whose}≤ {times} {of}", shown if ratio <= bound.times else f"**{shown}**"


def versions(litellm: str | None) -> dict[str, str]:
    """What the figures are about."""
    found = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": _said("git", "rev-parse", "--short", "HEAD") + ("+" if _said("git", "status", "--porcelain") else ""),
        "python": _said(sys.executable, "-c", _PYTHON),
        "machine": f"{len(CORES)} cores, {_processor()}",
        "nginx": _said("nginx", "-v").rpartition("/")[2],
    }
    if litellm:
        code = "from importlib.metadata import version; print(version('litellm'))"
        script = Path(shutil.which(litellm) or litellm).absolute()  # we ask from a folder of our own
        python = str(script.with_name("python"))
        found["litellm"] = f"{_said(python, '-c', code)} on Python {_said(python, '-c', _PYTHON)}"
    return found | {name: version(name) for name in PACKAGES}


def keep(rows: Sequence[Row], about: dict[str, str], report: str) -> Path:
    """Both as they are and for people."""
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{about['date']}-{about['commit'].rstrip('+')}.json"
    file.write_text(json.dumps({"versions": about, "rows": list(rows)}, indent=1) + "\n")
    file.with_suffix(".md").write_text(f"{page(rows, about)}\n\n## All figures\n\n{report}\n")
    return file


def page(rows: Sequence[Row], about: dict[str, str]) -> str:
    rounds = 1 + max(row["round"] for row in rows)
    said = ", ".join(f"{name} {value}" for name, value in about.items() if value and name not in ("date", "machine"))
    command = "make bench RIVAL=1" + ("" if rounds == 3 else f" ROUNDS={rounds}")
    return (
        f"# {about['date']}\n\n`{command}`, medians of {rounds} interleaved rounds, one core for the target; "
        f"{about['machine']}. {said}. A commit with a + had changes that were not committed.\n\n{table(rows)}\n\n"
        "Bold: not yet what is wanted. First token: what is added to the direct run."
    )


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=HERE)
    except OSError:
        return ""
    return (done.stdout + done.stderr).strip()


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        stored = json.loads(Path(name).read_text())
        print(page(stored["rows"], stored["versions"]))
