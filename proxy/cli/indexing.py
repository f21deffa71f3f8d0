"""Waiting for indexes of folders: `search`, `ask`, `open` and `index` do, and show how far they are.

Handed providers; shows progress on stderr, as a bar on a terminal, else as a line now and then.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any, TextIO

from providers.documents.report import Indexing, Progress, Report
from providers.errors import ProviderError
from providers.records import dataclass
from providers.registry import NamedProvider

from ..house import House

_WIDTH = 30
_COLUMNS = 80  # where the terminal does not say
_PACE = 2.0  # seconds, before a pace is known


def with_index(members: Iterable[NamedProvider]) -> list[NamedProvider]:
    return [member for member in members if isinstance(member.provider, Indexing)]


async def await_indexes(members: Iterable[NamedProvider], *, drawn_only: bool = False) -> None:
    """Shows how far they are, and leaves what goes wrong to the search itself. `drawn_only`: on a terminal or not."""
    for member in with_index(members):
        await awaited_report(member, drawn_only=drawn_only)


async def awaited_report(member: NamedProvider, *, drawn_only: bool = False) -> Report | str:
    """What is in its index once that is whole; in words, if it cannot be made."""
    provider: Any = member.provider
    shown = ShownProgress(member.name, sys.stderr)
    quiet = drawn_only and not sys.stderr.isatty()
    try:
        return await provider.indexed(None if quiet else shown)  # type: ignore[no-any-return]
    except ProviderError as error:
        return str(error)
    finally:
        shown.end()


@dataclass
class ShownProgress:
    """On a terminal one line that changes, and never more than one; elsewhere a line for every tenth of the work."""

    name: str
    stream: TextIO
    clock: Callable[[], float] = time.monotonic
    _began: tuple[float, int] | None = field(default=None, init=False)  # when, and how many were ready then
    _tenth: int = field(default=-1, init=False)
    _drawn: bool = field(default=False, init=False)

    def __call__(self, progress: Progress) -> None:
        if not progress.total or not progress.left:
            return
        if self.stream.isatty():
            done = _WIDTH * progress.ready // progress.total
            bar = "█" * done + "░" * (_WIDTH - done)
            line = f"{self.name}: indexing {bar} {progress.ready:,} of {progress.total:,}{self._time_left(progress)}"
            self._write(f"\r\x1b[K{line[: self._columns() - 1]}")
            self._drawn = True
            return
        tenth = 10 * progress.ready // progress.total
        if tenth > self._tenth:
            self._tenth = tenth
            self._write(f"{self.name}: indexing, {progress.ready:,} of {progress.total:,} documents are ready\n")

    def _time_left(self, progress: Progress) -> str:
        """By the pace up to now; nothing before there is one."""
        now = self.clock()
        began, ready = self._began = self._began or (now, progress.ready)
        done, seconds = progress.ready - ready, now - began
        if not done or seconds < _PACE:
            return ""
        left = round(progress.left * seconds / done)
        return f", {left // 60}:{left % 60:02} left"

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self.stream.fileno()).columns or _COLUMNS
        except (OSError, ValueError):
            return _COLUMNS

    def end(self) -> None:
        if self._drawn:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


def owners_of(house: House, urls: Iterable[str]) -> list[NamedProvider]:
    """The folders that these documents are from."""
    members = with_index(house.providers.values())
    wanted = list(urls)
    return [member for member in members if any(_owns(member.provider, url) for url in wanted)]


def _owns(provider: Any, url: str) -> bool:
    return bool(provider.owns(url)) if hasattr(provider, "owns") else False
