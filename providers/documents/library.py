"""A folder that can be searched: keeps an index true to it, in the background, and searches what is ready.

Handed a `Folder` and where the index is kept; hands on hits together with how far the index is. A look compares the
folder with the index and reads what changed, in worker processes; of all processes on one index one reads at a time,
and the others follow. An index that is broken is made anew; one that cannot be kept is made in memory.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from ..errors import ProgramFailed, ProviderError, TimedOut
from ..places import Places
from ..web.workers import Workers
from . import keeping
from .folder import Folder, Look, Stamp
from .index import Counts, Hit, Index, is_broken, is_out_of_room
from .reading import needs_no_parser, read_passages
from .report import IndexState, Progress, Report, summary

log = logging.getLogger(__name__)
T = TypeVar("T")
P = ParamSpec("P")

READ_LIMIT = 30.0  # seconds for one document
MOST_READERS = 4
SWIFT = 0.02  # seconds
FEW = 32  # so many short files of plain text are read without starting processes
BREATH = 20  # times as long as a look took, there is no other one
PAUSE = 0.2  # seconds between two looks at how far another process has come
_VANISHED = "it vanished, or cannot be opened"


class Library:
    """`file` keeps the index, None keeps it in memory; `own_folder` says that it lies in a cache folder of ours.
    `refresh` is for how many seconds a change may go unseen. `label` is what the log calls it. A look that takes no
    longer than `swift` seconds is always waited for."""

    def __init__(
        self,
        folder: Folder,
        file: Path | None,
        *,
        own_folder: bool,
        refresh: float,
        label: str,
        swift: float = SWIFT,
    ) -> None:
        self._folder = folder
        self._file = file
        self._own_folder = own_folder
        self._refresh = refresh
        self._label = label
        self._swift = swift
        self._index: Index | None = None
        self._seen = Look()
        self._known: dict[str, Stamp] = {}
        self._version = -1
        self._passing: dict[str, tuple[Stamp, str]] = {}  # what could not be read this time, though it may be later
        self._progress = Progress(0, 0)
        self._looking: asyncio.Task[None] | None = None
        self._looked: float | None = None
        self._walk_took = 0.0
        self._told: tuple[int, int] | None = None
        # One thread writes and walks, one searches: SQLite and the disk are slow, and the loop waits for neither.
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="documents")
        self._searching = ThreadPoolExecutor(1, thread_name_prefix="documents-search")

    @property
    def progress(self) -> Progress:
        return self._progress

    async def search(
        self, words: list[str], first: str, last: str, limit: int, patience: float
    ) -> tuple[list[Hit], Progress]:
        """What the index holds, and how far it is. A look that is due is waited for up to `patience` seconds; once the
        index is whole, only if it will take a moment."""
        look = self._look_if_due()
        if look is not None and (self._looked is None or self._progress.left or self._walk_took <= self._swift):
            await asyncio.wait([look], timeout=patience)
            if look.done():
                look.result()
        if self._index is None:  # the folder is so large, or the disk so slow, that there is nothing yet
            return [], self._progress
        return await self._searched(self._index, words, first, last, limit), self._progress

    async def ready(self, watch: Callable[[Progress], None] | None = None) -> None:
        """Comes back when the index is true to the folder. `watch` is told how far it is, now and then."""
        look = self._look_if_due()
        while look is not None and not look.done():
            await asyncio.wait([look], timeout=PAUSE)
            if watch is not None:
                watch(self._progress)
        if look is not None:
            look.result()

    def begin(self) -> None:
        """Starts to look, for nobody in particular."""
        self._look_if_due()

    async def report(self) -> Report:
        index = self._index
        counts = await self._run(index.counts) if index is not None else Counts(0, 0, [])
        passing = [(path, reason) for path, (_, reason) in self._passing.items()]
        skipped = [*counts.skipped, *passing, *self._seen.skipped]
        kinds, kept = self._seen.kinds, self._file is not None
        return Report(counts.documents, counts.equal, skipped, kinds, kept, self._progress)

    def state(self) -> IndexState:
        documents, skipped = self._told or (self._progress.ready, len(self._seen.skipped))
        left = self._progress.left
        if left or self._looked is None:
            looking = self._looking is not None and not self._looking.done()
            return IndexState(self._progress.ready, left, skipped, "reading" if looking else "waiting")
        return IndexState(documents, 0, skipped, "ready")

    async def aclose(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        await self._run(self._close)  # behind whatever is still at work, which may just be opening it
        self._writing.shutdown(wait=False)
        self._searching.shutdown(wait=False)

    def _close(self) -> None:
        if self._index is not None:
            self._index.close()
            self._index = None

    async def _searched(self, index: Index, *asked: Any) -> list[Hit]:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._searching, lambda: index.search(*asked))
        except sqlite3.Error as error:
            if not is_broken(error):
                raise
            await self._run(self._start_anew, index, error)
            return []

    # Looking

    def _look_if_due(self) -> asyncio.Task[None] | None:
        """The look that is under way, one that begins now, or None if the last one is fresh."""
        if self._looking is not None and not self._looking.done():
            return self._looking
        if self._looked is not None and time.monotonic() - self._looked < self._pause():
            return None
        self._looking = asyncio.create_task(self._look())
        self._looking.add_done_callback(lambda done: done.cancelled() or done.exception())  # told to who waits for it
        return self._looking

    def _pause(self) -> float:
        """Looking through a very large folder takes so long that it may not be done all the time."""
        return self._refresh and max(self._refresh, self._walk_took * BREATH)

    async def _look(self) -> None:
        try:
            await self._bring_up_to_date()
        except sqlite3.Error as error:
            self._version = -1  # what we believed to be written may have been taken back
            if self._index is None or not (is_broken(error) or self._cannot_be_kept(error)):
                raise
            await self._run(self._start_anew, self._index, error)
            await self._bring_up_to_date()
        self._looked = time.monotonic()
        await self._tell()

    async def _bring_up_to_date(self) -> None:
        index = await self._run(self._open) if self._index is None else self._index
        await self._run(self._walk, index)
        while await self._run(self._is_behind):
            with ExitStack() as lock:
                if await self._run(lock.enter_context, keeping.locked(self._file)):
                    await self._run(self._catch_up, index)  # with what others wrote meanwhile
                    await self._take_in(index)
                    return
            await asyncio.sleep(PAUSE)
            await self._run(self._catch_up, index)

    def _walk(self, index: Index) -> None:
        self._catch_up(index)
        began = time.monotonic()
        self._seen = self._folder.look()
        self._walk_took = time.monotonic() - began
        self._passing = {path: why for path, why in self._passing.items() if path in self._seen.documents}
        self._count()

    def _catch_up(self, index: Index) -> None:
        version = index.version()
        if version != self._version:
            self._known, self._version = index.known(), version
        self._count()

    def _count(self) -> None:
        self._progress = Progress(len(self._seen.documents) - len(self._changed()), len(self._seen.documents))

    def _changed(self) -> list[str]:
        return [path for path, stamp in self._seen.documents.items() if not self._is_settled(path, stamp)]

    def _is_behind(self) -> bool:
        return bool(self._changed() or self._gone())

    def _is_settled(self, path: str, stamp: Stamp) -> bool:
        return self._known.get(path) == stamp or self._passing.get(path, ((), ""))[0] == stamp

    def _gone(self) -> list[str]:
        return [path for path in self._known if path not in self._seen.documents]

    async def _take_in(self, index: Index) -> None:
        changed = await self._run(self._changed)
        await self._run(self._forget, index)
        whole = False
        try:
            if len(changed) <= FEW and all(map(self._is_small, changed)):
                for path in changed:
                    await self._run(self._read_here, index, path)
            else:
                await self._read_all(index, changed)
            whole = True
        finally:
            await self._run(index.commit, last=whole)  # who is broken off has no time to put things in order

    def _is_small(self, path: str) -> bool:
        return needs_no_parser(path, self._seen.documents[path][1])

    async def _read_all(self, index: Index, changed: list[str]) -> None:
        readers = min(MOST_READERS, os.cpu_count() or 1)
        # Nobody waits for a place, so that no document is sent away for taking long.
        workers = Workers(READ_LIMIT, quick=READ_LIMIT * 2, places=Places(readers))
        paths = iter(changed)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(readers):
                    group.create_task(self._read_some(index, workers, paths))
        except* (ProgramFailed, OSError, sqlite3.Error) as failed:
            raise failed.exceptions[0] from None
        finally:
            await workers.aclose()

    async def _read_some(self, index: Index, workers: Workers, paths: Iterator[str]) -> None:
        for path in paths:
            body = await self._run(self._folder.read, path)
            await self._read_one(index, workers, path, body)

    async def _read_one(self, index: Index, workers: Workers, path: str, body: bytes | None) -> None:
        try:
            found = None if body is None else await workers.read_passages(path, body)
        except ProgramFailed:
            raise
        except TimedOut:
            self._pass_over(path, "it takes too long to read")
        except ProviderError as error:
            await self._run(self._skip, index, path, str(error))
        else:
            await self._run(self._put, index, path, found)

    def _read_here(self, index: Index, path: str) -> None:
        body = self._folder.read(path)
        try:
            found = None if body is None else asdict(read_passages(path, body))
        except ProviderError as error:
            self._skip(index, path, str(error))
        else:
            self._put(index, path, found)

    # In the index, and in what we know of it

    def _put(self, index: Index, path: str, found: dict[str, Any] | None) -> None:
        if found is None:
            self._pass_over(path, _VANISHED)
        else:
            index.put(path, self._seen.documents[path], found)
            self._settle(path)

    def _skip(self, index: Index, path: str, reason: str) -> None:
        index.skip(path, self._seen.documents[path], reason)
        self._settle(path)

    def _settle(self, path: str) -> None:
        self._known[path] = self._seen.documents[path]
        self._passing.pop(path, None)
        self._progress = Progress(self._progress.ready + 1, self._progress.total)

    def _pass_over(self, path: str, reason: str) -> None:
        self._passing[path] = (self._seen.documents[path], reason)
        self._progress = Progress(self._progress.ready + 1, self._progress.total)

    def _forget(self, index: Index) -> None:
        for path in self._gone():
            index.forget(path)
            del self._known[path]

    def _open(self) -> Index:
        self._index = self._opened()
        self._known, self._version = {}, -1
        return self._index

    def _opened(self) -> Index:
        if self._file is None:
            return Index(None)
        try:
            keeping.make_private(self._file, own_folder=self._own_folder)
            return _opened_or_anew(self._file)
        except (keeping.NotKept, sqlite3.Error) as error:
            log.warning("documents %s: the index cannot be kept (%s); it is made in memory", self._label, error)
            self._file = None
            return Index(None)

    def _cannot_be_kept(self, error: sqlite3.Error) -> bool:
        return self._file is not None and is_out_of_room(error)

    def _start_anew(self, broken: Index, error: sqlite3.Error) -> None:
        """Only if nobody did so meanwhile. Where the disk is full or may not be written any more, in memory; the file
        stays: others may still read it."""
        if broken is not self._index:
            return
        with suppress(sqlite3.Error):
            broken.close()
        if self._cannot_be_kept(error):
            log.warning("documents %s: the index cannot be kept (%s); it is made in memory", self._label, error)
            self._file = None
        else:
            log.warning("documents %s: the index is damaged and is made anew", self._label)
        if self._file is not None:
            keeping.remove(self._file)
        self._looked = None
        self._open()

    async def _run(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        call = partial(work, *arguments, **named)
        return await asyncio.get_running_loop().run_in_executor(self._writing, call)

    async def _tell(self) -> None:
        """In the log, whenever there is something else to tell."""
        report = await self.report()
        state = (report.documents, len(report.skipped))
        if state != self._told:
            self._told = state
            log.info("documents %s: %s", self._label, summary(report))


def _opened_or_anew(file: Path) -> Index:
    try:
        return Index(file)
    except sqlite3.Error as error:
        if not is_broken(error):
            raise
    keeping.remove(file)
    return Index(file)
