"""The bench of grounding: sections whose data is not there say so, and those that need none print their figures."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench" / "grounding.py"


def test_what_is_not_there_is_said_and_left_out(tmp_path: Path) -> None:
    chosen = ["--only", "passages", "--only", "citations", "--only", "decisions"]
    done = subprocess.run(
        [sys.executable, str(BENCH), *chosen, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    passages, citations, decisions, *_ = (section for section in done.stdout.split("\n\n") if section)
    assert passages == f"passages: left out, there is no xquad/xquad.*.json.gz in {tmp_path}"
    assert citations == f"citations: left out, there is no val.jsonl in {tmp_path / 'expertqa'}"
    assert re.search(r"searched though private +0 of \d+ +0 of \d+ +0 of \d+", decisions)
