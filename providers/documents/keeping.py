"""Where an index is kept: handed what an operator said, hands on a file that nobody else may read, or None, which is
memory. Also the lock by which processes agree on who of them writes.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from .folder import Folder

_NOT_BY_LINKS = getattr(os, "O_NOFOLLOW", 0)
MEMORY = Path("memory")  # what an operator says for "nowhere"


class NotKept(Exception):
    """Why the index cannot be kept; without the folder's name."""


def default_file(folder: Folder, environ: Mapping[str, str]) -> Path:
    """In the user's cache folder, one file for each folder and each way to choose its documents."""
    said = environ.get("XDG_CACHE_HOME", "")
    base = Path(said) if os.path.isabs(said) else _home(environ) / ".cache"
    chosen = "\0".join([str(folder.max_file_size), *sorted(folder.extensions)])
    name = hashlib.sha256(os.fsencode(folder.root) + b"\0" + chosen.encode()).hexdigest()[:24]
    return base / "groundwire" / "documents" / f"{name}.sqlite"


def make_private(file: Path, *, own_folder: bool) -> None:
    """Makes an empty file for an index, for us alone. `own_folder`: its folder too, and the one around it,
    which must be ours already if they are there: in a shared place somebody else may have made them first."""
    try:
        if own_folder:
            for folder in (file.parent.parent, file.parent):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                _own(folder)
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
        _make_file(file)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "there is no home folder"
        raise NotKept(str(reason)) from error


def _make_file(file: Path) -> None:
    """Or finds one that is ours: in a folder that others may write to, somebody may have made it for us to fill."""
    made = os.open(file, os.O_RDWR | os.O_CREAT | _NOT_BY_LINKS, 0o600)
    try:
        found = os.fstat(made)
        if not stat.S_ISREG(found.st_mode) or not _is_ours(found):
            raise PermissionError(1, "the file belongs to somebody else")
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.fchmod(made, 0o600)
    finally:
        os.close(made)


def remove(file: Path) -> None:
    for name in (file.name, f"{file.name}-wal", f"{file.name}-shm", f"{file.name}-journal"):
        with suppress(OSError):
            file.with_name(name).unlink()


@contextmanager
def locked(file: Path | None) -> Iterator[bool]:
    """Whether we are the one who writes, of all processes; not, if another one is."""
    if file is None:
        yield True
        return
    try:
        lock = os.open(file.with_name(f"{file.name}.lock"), os.O_RDWR | os.O_CREAT | _NOT_BY_LINKS, 0o600)
    except OSError:  # nobody can lock here, so that nobody does
        yield True
        return
    try:
        yield _lock(lock)
    finally:
        os.close(lock)  # and the lock goes with it, also if we die


def _lock(lock: int) -> bool:
    try:
        import fcntl
    except ImportError:  # no such locks here: SQLite alone keeps them apart, and some files are read twice
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a disk without locks
        return True
    return True


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ["HOME"]) if os.path.isabs(environ.get("HOME", "")) else Path.home()


def _is_ours(found: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or found.st_uid == os.geteuid()


def _own(folder: Path) -> None:
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or not _is_ours(found):
        raise PermissionError(1, "the cache folder belongs to somebody else")
    if stat.S_IMODE(found.st_mode) != 0o700:
        os.chmod(folder, 0o700)
