"""The journals of answers that are made in the background, each under its owner and its response's id: written where
the work is done, followed and cancelled from anywhere. `MemoryJournals` are one process's own, bounded in all; those
that many processes share are in `proxy/store/redis_journals.py`.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from dataclasses import field
from typing import Protocol

from providers.records import dataclass

from .journal import MOST_BYTES, PIECE_OVERHEAD, Journal, frames_after, next_pieces

EVENTS_KEPT = 600.0  # seconds after the end of the work
MOST_IN_ALL = 64 << 20  # bytes of all journals of one process
JOURNAL_OVERHEAD = 4000  # about what Python needs around one journal, bytes


class JournalGone(Exception):
    """There is no such journal, or not any more."""


class NobodyWorks(Exception):
    """The journal has no end, and nobody is left to write it."""


class JournalsAway(Exception):
    """The shared store cannot be asked."""


class JournalsFull(Exception):
    """Those that are worked on leave no room for another one."""


class Journals(Protocol):
    async def open(self, owner: str, key: str, frames: bytes) -> Journal:
        """For whoever is about to work: a journal that begins with these frames. Raises `JournalsAway` where others
        could not find it, `JournalsFull` where there is no room for it."""

    def write(self, journal: Journal, frames: bytes, *, last: bool = False) -> None:
        """Only whoever has opened it may."""

    async def close(self, journal: Journal) -> None:
        """The work is over, and all is written."""

    def follow(self, owner: str, key: str, after: int) -> AsyncGenerator[bytes, None]:
        """Frames with a greater number, as they come, until the work is over: first some of those that are there, or
        none of them, then more. Raises what stands above."""

    async def cancel(self, owner: str, key: str) -> None:
        """Whoever works on it is told to stop; this does not wait until it has."""

    async def is_worked_on(self, owner: str, key: str) -> bool: ...

    async def claim_abandoned(self, owner: str, key: str) -> bool:
        """Whether nobody works on it, and from now on nobody will."""

    async def write_end(self, owner: str, key: str, last_frames: Callable[[int], bytes]) -> None:
        """An end for one that was claimed. `last_frames` is handed the number of its next frame."""

    async def drop(self, owner: str, key: str) -> None: ...

    async def aclose(self) -> None: ...


@dataclass(slots=True)
class _Held:
    journal: Journal
    until: float | None = None  # None: somebody works on it


@dataclass(slots=True)
class MemoryJournals:
    """Where there is no room the one that ended first goes; one that is worked on never does, but takes no more."""

    most: int = MOST_BYTES
    most_in_all: int = MOST_IN_ALL
    kept: float = EVENTS_KEPT
    clock: Callable[[], float] = time.monotonic
    _held: OrderedDict[tuple[str, str], _Held] = field(default_factory=OrderedDict)
    _size: int = 0

    @property
    def size(self) -> int:
        return self._size

    def __len__(self) -> int:
        return len(self._held)

    async def open(self, owner: str, key: str, frames: bytes) -> Journal:
        self._remove((owner, key))
        needed = JOURNAL_OVERHEAD + PIECE_OVERHEAD + len(frames)
        self._make_room(needed)
        if self._size + needed > self.most_in_all:
            raise JournalsFull
        journal = Journal(self.most)
        self._held[owner, key] = _Held(journal)
        self._size += JOURNAL_OVERHEAD + journal.write(frames, last=True)
        return journal

    def write(self, journal: Journal, frames: bytes, *, last: bool = False) -> None:
        needed = len(frames) + PIECE_OVERHEAD
        if self._size + needed > self.most_in_all:
            self._make_room(needed)
        if self._size + needed > self.most_in_all and not last:
            journal.skip(frames)
        else:
            more = journal.write(frames, last=last)
            self._size += more if journal.held else 0

    async def close(self, journal: Journal) -> None:
        journal.close()
        self._make_room()  # not for this one: who made it has hardly had time to read it
        for name, held in self._held.items():
            if held.journal is journal:
                held.until = self.clock() + self.kept
                self._held.move_to_end(name)
                break

    async def follow(self, owner: str, key: str, after: int) -> AsyncGenerator[bytes, None]:
        journal = self.find(owner, key)
        if journal is None:
            raise JournalGone
        at = 0
        while True:
            news, over, first = journal.news, journal.over, at == 0
            pieces = next_pieces(journal.pieces, at)
            at += len(pieces)
            frames = frames_after(pieces, after)
            if frames or first:
                after = max(after, pieces[-1].next - 1)
                yield frames
            elif not pieces and over:
                return
            elif not pieces:
                await news.wait()

    async def cancel(self, owner: str, key: str) -> None:
        if (journal := self.find(owner, key)) and not journal.over:
            journal.halt("cancelled")

    async def is_worked_on(self, owner: str, key: str) -> bool:
        journal = self.find(owner, key)
        return journal is not None and not journal.over

    async def claim_abandoned(self, owner: str, key: str) -> bool:
        return not await self.is_worked_on(owner, key)

    async def write_end(self, owner: str, key: str, last_frames: Callable[[int], bytes]) -> None:
        """Here nobody dies without having closed its journal."""

    async def drop(self, owner: str, key: str) -> None:
        self._remove((owner, key))

    async def aclose(self) -> None: ...

    def find(self, owner: str, key: str) -> Journal | None:
        held = self._held.get((owner, key))
        if held is not None and held.until is not None and self.clock() >= held.until:
            self._remove((owner, key))
            return None
        return held.journal if held else None

    def _make_room(self, needed: int = 0) -> None:
        """Those that ended stand in the order in which they did, among those that are worked on."""
        now = self.clock()
        for name, held in list(self._held.items()):
            full = self._size + needed > self.most_in_all
            if held.until is not None and (full or now >= held.until):
                self._remove(name)

    def _remove(self, name: tuple[str, str]) -> None:
        held = self._held.pop(name, None)
        if held is not None:
            held.journal.held = False
            self._size -= JOURNAL_OVERHEAD + held.journal.size
