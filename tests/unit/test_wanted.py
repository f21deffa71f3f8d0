"""The table of what is wanted of the bench: medians of the rounds, ratios, and what is not enough in bold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[2] / "bench" / "wanted.py"
ABOUT = {"date": "2026-11-17", "commit": "abc1234", "machine": "2 cores", "python": "3.11.7"}


def row(target: str, scenario: str, number: int, **figures: float) -> dict[str, Any]:
    return {"target": target, "scenario": scenario, "round": number, **figures}


def shown(tmp_path: Path, rows: list[dict[str, Any]]) -> list[list[str]]:
    """The cells of the table, line by line."""
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"versions": ABOUT, "rows": rows}))
    done = subprocess.run([sys.executable, str(SCRIPT), str(file)], capture_output=True, text=True, timeout=60)
    assert not done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_medians_are_compared_with_their_bounds(tmp_path: Path) -> None:
    ours, relay, theirs = (0.3, 9.0, 0.4), (0.2, 0.3, 0.25), (20.0, 20.0, 20.0)
    rows = [
        row(target, "json16", number, cpu_1k=value)
        for target, values in (("groundwire", ours), ("relay", relay), ("litellm", theirs))
        for number, value in enumerate(values)
    ]
    first, *_ = shown(tmp_path, [*rows, row("forwarded", "json16", 0, cpu_1k=0.3)])
    assert first == [
        "CPU s per 1,000 requests, 16 connections",
        *("–", "0.25", "0.3", "0.4", "20", "1.60"),
        "≤ 1.5× relay, ≤ 1/40 LiteLLM, forwarded ≤ 1.4× relay",
        "**1.60×**, 1/50, 1.20×",
    ]


def test_what_is_added_is_what_comes_on_top_of_the_direct_run(tmp_path: Path) -> None:
    values = {"direct": 5000, "relay": 6000, "groundwire": 6200, "nginx": 4990}
    table = shown(tmp_path, [row(name, "paced", 0, ttft_p50=value) for name, value in values.items()])
    (line,) = (cells for cells in table if cells[0] == "added first token p50, paced, ms")
    assert line[1:] == ["-0.01", "1", "–", "1.2", "–", "1.20", "≤ 1.3× relay", "1.20×"]


def test_a_floor_of_nothing_is_no_measure(tmp_path: Path) -> None:
    values = {"direct": 5000, "relay": 4900, "groundwire": 6200}
    table = shown(tmp_path, [row(name, "paced", 0, ttft_p50=value) for name, value in values.items()])
    (line,) = (cells for cells in table if cells[0] == "added first token p50, paced, ms")
    assert line[6:] == ["–", "≤ 1.3× relay", "–"]


def test_a_rival_is_named_with_its_version_wherever_one_stands(tmp_path: Path) -> None:
    python = tmp_path / "env" / "bin" / "python"  # beside the rival's console script
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho 9.8.7\n")
    python.chmod(0o755)
    shown = "print(wanted.versions('env/bin/litellm')['litellm'])"
    code = f"import sys; sys.path.insert(0, sys.argv[1]); import wanted; {shown}"
    command = [sys.executable, "-c", code, str(SCRIPT.parent)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("9.8.7 on Python 9.8.7\n", "")
