"""`groundwire index`: makes the indexes of folders (`local`) now, and says what is in them and what is not, and why.

Handed a config and the parsed arguments; prints a report for each provider with an index.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from providers.documents.report import Report, summary
from tools.clean import one_line

from ..config.settings import Config
from .indexing import awaited_report, with_index
from .running import opened, run_with_config

SHOWN = 20  # skipped files that are named; --json names all
_LONGEST_NAME = 200


def run(given: argparse.Namespace) -> int:
    return run_with_config(index, given)


async def index(config: Config, given: argparse.Namespace) -> int:
    async with opened(config) as house:
        members = [member for member in with_index(house.providers.values()) if given.provider in (None, member.name)]
        if not members:
            print("No such provider has an index: see `type: local` in the config file's `providers`.", file=sys.stderr)
            return 2
        reports = {member.name: await awaited_report(member) for member in members}
    if given.json:
        print(json.dumps([_as_json(name, report) for name, report in reports.items()], ensure_ascii=False, indent=2))
    else:
        for name, report in reports.items():
            _print(name, report)
    return 0 if all(isinstance(report, Report) for report in reports.values()) else 1


def _print(name: str, report: Report | str) -> None:
    if isinstance(report, str):
        print(f"{name}: {report}")
        return
    print(f"{name}: {summary(report)}")
    for path, reason in report.skipped[:SHOWN]:
        print(f"  {one_line(path, _LONGEST_NAME)}: {reason}")
    if len(report.skipped) > SHOWN:
        print(f"  … and {len(report.skipped) - SHOWN:,} more; --json names them all")


def _as_json(name: str, report: Report | str) -> dict[str, Any]:
    if isinstance(report, str):
        return {"provider": name, "error": report}
    return {
        "provider": name,
        "documents": report.documents,
        "equal": report.equal,
        "skipped": [{"path": one_line(path, 4000), "reason": reason} for path, reason in report.skipped],
        "other_kinds": dict(report.kinds.most_common()),
        "kept": report.kept,
    }
