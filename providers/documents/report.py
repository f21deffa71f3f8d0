"""What can be said of an index: how far it is, what is in it, what is not and why; in values and in words.

Handed the counts by `library`; hands them to the log, to `groundwire check` and to `groundwire index`. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Literal, Protocol, runtime_checkable

from ..records import dataclass
from .folder import OTHER_KIND


@dataclass(frozen=True, slots=True)
class Progress:
    ready: int
    total: int  # documents in the folder; 0 as long as nobody has counted them

    @property
    def left(self) -> int:
        return self.total - self.ready


@dataclass(frozen=True, slots=True)
class IndexState:
    """The same in figures that are known without looking."""

    documents: int
    pending: int
    skipped: int
    state: Literal["waiting", "reading", "ready"]  # before the first look; while one goes on; after it


@dataclass(frozen=True, slots=True)
class Report:
    """What is in the index and what is not."""

    documents: int
    equal: int  # of these, how many say the same as another
    skipped: list[tuple[str, str]]  # path and reason
    kinds: Counter[str]  # how many files of other kinds, by the endings of their names
    kept: bool  # in a file, so that it outlives the process
    progress: Progress

    def reasons(self) -> Counter[str]:
        found = Counter(reason for _, reason in self.skipped)
        if self.kinds:
            found[OTHER_KIND] = self.kinds.total()
        return found


@runtime_checkable
class Indexing(Protocol):
    """A provider with an index that has to be made before all of it can be searched."""

    def start_index(self) -> None: ...

    async def indexed(self, watch: Callable[[Progress], None] | None = None) -> Report: ...

    async def index_report(self) -> Report: ...


@runtime_checkable
class Indexed(Protocol):
    """A provider that can say at once how far its index is."""

    def index_state(self) -> IndexState: ...


def summary(report: Report) -> str:
    """One line: how many are indexed, how many not, and why."""
    progress = report.progress
    if progress.left:
        return f"{progress.ready:,} of {progress.total:,} documents are read so far"
    text = f"{report.documents:,} indexed"
    if report.equal:
        text += f" ({report.equal:,} of them equal to others)"
    reasons = report.reasons()
    if reasons:
        said = "; ".join(f"{count:,} {_because(reason, report)}" for reason, count in reasons.most_common())
        text += f", {reasons.total():,} skipped: {said}"
    return text if report.kept else f"{text}; the index is in memory"


def _because(reason: str, report: Report) -> str:
    if reason != OTHER_KIND:
        return f"because {reason}" if " " in reason and reason.split()[0] in ("it", "the", "what") else reason
    kinds = ", ".join(f"{kind or 'without an ending'} {count:,}" for kind, count in report.kinds.most_common(5))
    return f"{reason} ({kinds})"
