"""The measurement of citations: what it counts, and what it says where there is nothing to measure."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "grounding_citations.py"
ROW = {
    "question": "What are the capitals?",
    "answer": "Paris, the capital of France, has 2,102,650 residents [1]. Nobody knows why that is so at all.",
    "sources": {
        "1": {"url": "https://a.org", "text": "Paris is the capital of France. It has 2,102,650 residents."},
        "2": {"url": "https://a.org", "text": "Rome is the capital of Italy and rather old."},
    },
    "claims": [
        {"text": "Paris, the capital of France, has 2,102,650 residents [1].", "cited": [1], "support": "Complete"},
        {"text": "Nobody knows why that is so at all.", "cited": [], "support": "Missing"},
        {"text": "Rome has 17 gates [2].", "cited": [2], "support": "Missing"},
    ],
}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("grounding_citations", BENCH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "grounding_citations", module)
    spec.loader.exec_module(module)
    return module


def test_what_is_counted(bench: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "val.jsonl").write_text(json.dumps(ROW) + "\n", encoding="utf-8")
    halves = bench.measure(tmp_path)
    figures, other = halves[bench.half_of(ROW["question"])], {**halves}
    del other[bench.half_of(ROW["question"])]
    assert (figures.answers, figures.claims, figures.cited, figures.right) == (1, 3, 2, 2)
    assert (figures.marked, figures.marked_with_evidence, figures.marked_right, figures.streamed) == (1, 1, 1, 1)
    assert (figures.citations, figures.with_unmatched, figures.false_alarms) == (2, 1, 0)
    assert figures.listed[0][1] == ("17",)
    assert all(half.answers == 0 for half in other.values())
    assert any("recall: 0.5" in line for line in bench.lines(tmp_path))


def test_without_data_it_says_so(bench: ModuleType, tmp_path: Path) -> None:
    (line,) = bench.lines(tmp_path / "nowhere")
    assert "not measured" in line
