"""The report: medians over all rounds, one line per figure, targets side by side, with ratios.

Handed the rows of a run; hands on Markdown. Run as a script it reports on a stored run again.
"""

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from measure import SCENARIOS, Row
from targets import DIRECT, OURS


def _values(rows: Sequence[Row], target: str, scenario: str, figure: str) -> list[float]:
    mine = (row for row in rows if row["target"] == target and row["scenario"] == scenario)
    return [row[figure] for row in mine if row.get(figure) is not None]


def _figures(scenario: str) -> list[tuple[str, str, float, bool]]:
    """(title, key, unit, added): an added figure is what a target puts on top of the direct run."""
    if scenario == "startup":
        return [("start-up, s", "start", 1, False), ("RSS idle, MiB", "rss", 1, False)]
    streamed = SCENARIOS[scenario].streamed
    figures = [("requests/s", "rps", 1, False), ("latency p50, ms", "lat_p50", 1e-3, True)]
    if streamed:
        figures += [("first token p50, ms", "ttft_p50", 1e-3, True), ("first token p99, ms", "ttft_p99", 1e-3, True)]
    figures += [("CPU s per 1,000 requests", "cpu_1k", 1, False)]
    figures += [("CPU s per 100,000 chunks", "cpu_100k", 1, False)] if streamed else []
    return [*figures, ("RSS, MiB", "rss", 1, False)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _cell(values: list[float], base: float | None, unit: float, figure: str) -> str:
    if not values:
        return "–"
    middle = statistics.median(values)
    if base is not None:
        return f"{(middle - base) * unit:+.2f}"
    spread = f" ({_number(min(values))}–{_number(max(values))})" if figure.startswith("cpu") and len(values) > 1 else ""
    return _number(middle * unit) + spread


def report(rows: Sequence[Row]) -> str:
    targets = list(dict.fromkeys(row["target"] for row in rows))
    rivals = [name for name in targets if name not in (DIRECT, OURS)] if OURS in targets else []
    head = ["scenario", "figure", *targets, *(f"{rival} ÷ {OURS}" for rival in rivals)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for scenario in ["startup", *SCENARIOS]:
        for title, figure, unit, added in _figures(scenario):
            found = {name: _values(rows, name, scenario, figure) for name in targets}
            if not any(found.values()):
                continue
            base = statistics.median(found[DIRECT]) if added and found.get(DIRECT) else None
            cells = [_cell(found[name], None if name == DIRECT else base, unit, figure) for name in targets]
            for rival in rivals:
                ours, theirs = (statistics.median(found[name]) if found[name] else 0 for name in (OURS, rival))
                ours, theirs = ours - (base or 0), theirs - (base or 0)
                cells.append(f"{theirs / ours:.3g}×" if found[rival] and ours > 0 else "–")
            lines.append("| " + " | ".join([scenario, title, *cells]) + " |")
    lines += ["", "Latency and first token: the direct run whole, the others as what they add to it.", *_faults(rows)]
    return "\n".join(lines)


def _faults(rows: Sequence[Row]) -> list[str]:
    lines = []
    for row in rows:
        if row.get("bad") or row.get("err"):
            fault = f"{row['bad']} of {row['bad'] + row['ok']} answers bad: {row['err']}"
        elif row.get("ok") == 0:
            fault = "too slow: no connection got past its first answer, so there is CPU time but no latency"
        else:
            continue
        lines.append(f"- {row['target']}, {row['scenario']}, round {row['round']}: {fault}")
    return ["", "Not every run is whole:", *lines] if lines else []


if __name__ == "__main__":
    print(report([json.loads(line) for file in sys.argv[1:] for line in Path(file).read_text().splitlines()]))
