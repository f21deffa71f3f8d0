"""`groundwire index` as a person sees it: a bar while it works, which is gone when the report stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from providers.documents.report import Progress
from proxy.cli.indexing import ShownProgress
from tests.fakes.groundwire import SCRIPT, config_file, environment
from tests.fakes.terminal import DrawnOn, Terminal

PAGES = 150


@pytest.mark.parametrize("columns", [120, 40])
def test_the_bar_never_mixes_with_the_report(tmp_path: Path, columns: int) -> None:
    (tmp_path / "pages").mkdir()
    for number in range(PAGES):
        page = f"<title>Page {number}</title><p>{'The walrus of the page and its tusks. ' * 100} {number}</p>"
        (tmp_path / "pages" / f"{number}.html").write_text(page)
    provider = {"name": "pages", "type": "local", "options": {"path": str(tmp_path / "pages"), "index": "memory"}}
    config_file(tmp_path, {"upstreams": [{"name": "demo", "type": "demo"}], "providers": [provider]})
    with Terminal([str(SCRIPT), "index"], tmp_path, environment(None), columns=columns) as terminal:
        terminal.until("pages: indexing ")
        assert terminal.ended() == 0
        assert "".join(terminal.seen.lines) == f"pages: {PAGES} indexed; the index is in memory"
        assert "█" in terminal.written


def test_how_long_it_will_take() -> None:
    """Told once there is a pace, and cut where the line ends."""
    now = 0.0
    with DrawnOn(columns=200) as screen:
        shown = ShownProgress("docs", screen, clock=lambda: now)
        shown(Progress(0, 1000))
        assert screen.seen.text.endswith("0 of 1,000")
        now = 10.0
        shown(Progress(100, 1000))
        assert screen.seen.text.endswith("100 of 1,000, 1:30 left")
    with DrawnOn(columns=30) as narrow:
        ShownProgress("docs", narrow)(Progress(100, 1000))
        assert len(narrow.seen.lines) == 1
