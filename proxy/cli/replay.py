"""`groundwire replay`: the requests of an audit file, or one of them as the terminal would have shown it. Handed the
parsed arguments; reads the file, and those that were put aside beside it. It asks nobody.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from .activity import Activity
from .answer_view import view_for
from .audit_lines import AuditLines, Unreadable
from .replayed_request import events_of, heading, lacks, lines_of_steps
from .terminal_text import accept_any_character, harmless, harmless_json, title

_SHOWN = 200  # of the requests, the newest; more are for `--all`
_COLUMNS = ("time", "request", "who", "model", "searches", "outcome")
_LONGEST = {"time": 19, "request": 32, "who": 20, "model": 30, "searches": 8, "outcome": 24}


def run(given: argparse.Namespace) -> int:
    accept_any_character(sys.stdout)
    lines = AuditLines(given.file)
    try:
        code = _show(lines, given.id, as_json=given.json) if given.id else _list(lines, given)
    except Unreadable as error:
        print(harmless(str(error)), file=sys.stderr)
        return 2
    for remark in lines.remarks():
        print(harmless(remark), file=sys.stderr)
    return code


def _list(lines: AuditLines, given: argparse.Namespace) -> int:
    shown = deque(lines.requests(), maxlen=None if given.all else _SHOWN)  # a whole audit may be larger than memory
    if given.json:
        for request in shown:
            print(_as_json(request))
    elif not shown:
        print("There is no request in it yet.")
    else:
        print(_table([_cells(request) for request in shown]))
    if len(shown) < lines.count:
        print(f"{lines.count - len(shown)} older ones are not shown: --all shows them.", file=sys.stderr)
    return 0


def _as_json(request: Mapping[str, Any], indent: int | None = None) -> str:
    try:
        written = json.dumps(request, ensure_ascii=False, indent=indent)
    except RecursionError:  # nested as nothing of ours is: it can be read, but not written
        written = json.dumps({"id": request["id"]}, ensure_ascii=False)
    return harmless_json(written)


def _cells(request: Mapping[str, Any]) -> tuple[str, ...]:
    calls = request.get("searches")
    cells = (
        _local_time(request.get("time")),
        request.get("id"),
        request.get("key") or "-",
        request.get("model") or "-",
        str(len(calls)) if isinstance(calls, list) else "0",
        request.get("outcome"),
    )
    return tuple(_cut(name, cell) for name, cell in zip(_COLUMNS, cells, strict=True))


def _cut(column: str, cell: object) -> str:
    text = title(str(cell))
    most = _LONGEST[column]
    return text if len(text) <= most else text[: most - 1] + "…"


def _local_time(value: object) -> str:
    try:
        return datetime.fromisoformat(str(value)).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError):  # years that no calendar has
        return title(str(value))


def _table(rows: Sequence[Sequence[str]]) -> str:
    whole = [_COLUMNS, *rows]
    widths = [max(map(len, column)) for column in zip(*whole, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in whole
    )


def _show(lines: AuditLines, wanted: str, *, as_json: bool) -> int:
    found = [request for request in lines.requests() if str(request.get("id", "")).startswith(wanted)]
    exact = [request for request in found if request["id"] == wanted]
    if not found:
        print(harmless(f"There is no request {title(wanted)} in {lines.described()}."), file=sys.stderr)
        return 1
    if len(found) > 1 and not exact:
        print(f"{len(found)} requests begin with {title(wanted)}: write more of the id.", file=sys.stderr)
        return 1
    request = (exact or found)[-1]
    if as_json:
        print(_as_json(request, indent=2))
        return 0
    for line in _before_answer(request):
        print(line)
    view = view_for(sys.stdout, sys.stderr, Activity("", time.monotonic()), verbose=True)
    try:
        view.take(events_of(request))
        view.end()
    finally:
        view.stop()
    return 0


def _before_answer(request: Mapping[str, Any]) -> Iterator[str]:
    yield from heading(request, _local_time(request.get("time")))
    yield ""
    question = request.get("question")
    yield harmless(question) if isinstance(question, str) and question else lacks(request, "question")
    yield ""
    if steps := lines_of_steps(request):
        yield from steps
        yield ""
    answer = request.get("answer")
    if not isinstance(answer, str) or not answer:
        yield lacks(request, "answer")
