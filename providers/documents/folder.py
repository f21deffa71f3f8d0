"""A folder of documents: which of its files are documents, and why the others are none.

Handed a folder; hands on document paths (relative, `/`-separated) with the stamps by which a change shows, and what was
skipped for which reason. Hidden files are passed over without a word. Links that leave the folder are not followed.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable
from dataclasses import field
from pathlib import Path

from ..records import dataclass

Stamp = tuple[int, int]  # the time of the last change in nanoseconds, and the size

TOO_LARGE = "larger than max_file_size"
LEADS_OUT = "a link that leads out of the folder"
NO_FILE = "no file that can be opened"
OTHER_KIND = "of another kind"
_LONGEST_PATH = 4096
_MOST_KINDS = 200  # names are anybody's: there is no end to them


@dataclass(slots=True)
class Look:
    """What a look through the folder saw."""

    documents: dict[str, Stamp] = field(default_factory=dict)
    skipped: list[tuple[str, str]] = field(default_factory=list)  # path and reason
    kinds: Counter[str] = field(default_factory=Counter)  # files of other kinds, by the endings of their names

    def note_kind(self, name: str) -> None:
        kind = os.path.splitext(name)[1].lower()
        self.kinds[kind if kind in self.kinds or len(self.kinds) < _MOST_KINDS else ""] += 1


@dataclass(frozen=True, slots=True)
class Folder:
    root: Path  # real: no link on the way
    extensions: frozenset[str]
    max_file_size: int

    def look(self) -> Look:
        seen = Look()
        folders = [""]
        while folders:
            folder = folders.pop()
            for entry in self._entries(folder):
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{folder}{entry.name}/")
                else:
                    self._judge(seen, folder + entry.name, entry)
        return seen

    def holds(self, path: str) -> bool:
        return self._may_be_document(path) and isinstance(self._found(path), tuple)

    def read(self, path: str) -> bytes | None:
        """None if there is no such document, or none any more."""
        if not self.holds(path):
            return None
        try:
            with open(self._opened(path), "rb") as file:
                body = file.read(self.max_file_size + 1)
        except OSError:
            return None
        return body if len(body) <= self.max_file_size else None  # it may grow while we look

    def _opened(self, path: str) -> int:
        """A descriptor of the file behind a path. Something else may lie there since we looked: a pipe would hold us up
        for good, and a link could lead anywhere."""
        real = os.path.realpath(self.root / path)
        file = os.open(real, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
        if Path(real).is_relative_to(self.root) and stat.S_ISREG(os.fstat(file).st_mode):
            return file
        os.close(file)
        raise FileNotFoundError

    def _judge(self, seen: Look, path: str, entry: os.DirEntry[str]) -> None:
        if os.path.splitext(entry.name)[1].lower() not in self.extensions:
            seen.note_kind(entry.name)
            return
        found = self._found(path, entry)
        if isinstance(found, str):
            seen.skipped.append((path, found))
        else:
            seen.documents[path] = found

    def _entries(self, folder: str) -> Iterable[os.DirEntry[str]]:
        try:
            with os.scandir(self.root / folder) as entries:
                return list(entries)
        except OSError:
            if not folder:  # without its root nothing can be said about any document
                raise
            return []

    def _found(self, path: str, seen: os.DirEntry[str] | None = None) -> Stamp | str:
        """The stamp of the file behind a path, else why it is no document. `seen` on a look: only a link needs to be
        followed then."""
        try:
            found = seen.stat() if seen is not None and not seen.is_symlink() else self._followed(path)
        except (OSError, ValueError):  # gone, unreadable, or a name that no file can have
            return NO_FILE
        if found is None:
            return LEADS_OUT
        if not stat.S_ISREG(found.st_mode):
            return NO_FILE
        return TOO_LARGE if found.st_size > self.max_file_size else (found.st_mtime_ns, found.st_size)

    def _may_be_document(self, path: str) -> bool:
        """By its name alone: nothing hidden on the way, one of our extensions, and no longer than a path can be."""
        if len(path) > _LONGEST_PATH:
            return False
        hidden = any(not part or part.startswith(".") for part in path.split("/"))
        return not hidden and os.path.splitext(path)[1].lower() in self.extensions

    def _followed(self, path: str) -> os.stat_result | None:
        """What the path leads to, unless a link leads out of the folder."""
        real = Path(os.path.realpath(self.root / path))
        return real.stat() if real.is_relative_to(self.root) else None
