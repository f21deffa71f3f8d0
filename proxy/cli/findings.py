"""What `groundwire check` finds out: one `Finding` for each thing that it tried, and the report of all. Handed an
attempt that may fail; hands on what came of it within its time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Literal

from providers.records import dataclass
from tools.clean import one_line

Kind = Literal["upstream", "tools", "alias", "search", "read", "store"]
_LONGEST = 300  # characters of what somebody else may have written


@dataclass(frozen=True, slots=True)
class Finding:
    subject: str  # the name of a provider, an upstream or an alias, or what the store is
    kind: Kind
    ok: bool
    seconds: float
    url: str  # what was asked, where it has an address
    detail: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    findings: list[Finding]
    notes: list[str]

    @property
    def ok(self) -> bool:
        return all(finding.ok for finding in self.findings)


class Trouble(Exception):
    """A try that shows what is wrong."""

    def __init__(self, detail: str, fix: str) -> None:
        super().__init__(detail)
        self.fix = fix


async def tried(
    subject: str, kind: Kind, attempt: Awaitable[str], limit: float, when_late: str, *, url: str = ""
) -> Finding:
    """What the attempt says, or the `Trouble` it met; `when_late` is the remedy where nothing comes within `limit`."""
    began = time.monotonic()
    fix = ""
    patience = asyncio.timeout(limit)
    try:
        async with patience:
            detail = await attempt
    except TimeoutError:
        if not patience.expired():
            raise
        detail, fix = f"no answer within {limit:g} s", when_late
    except Trouble as trouble:
        detail, fix = str(trouble), trouble.fix
    seconds = round(time.monotonic() - began, 3)
    return Finding(subject, kind, not fix, seconds, url, one_line(detail, _LONGEST), one_line(fix, _LONGEST))


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
