"""The file of the audit: only its owner may read it, several processes may write to it, and it does not grow without an
end. Handed whole lines, writes each piece in one go behind what is there; a file that is full is put aside, and one
that somebody else has put aside (logrotate) is begun anew.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..config.audit import AuditConfig
from ..config.file import ConfigError

log = logging.getLogger("groundwire")

_MODE = 0o600
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def open_audit(config: AuditConfig) -> AuditFile:
    """The file that the operator names; raises `ConfigError` where it cannot be opened."""
    try:
        return AuditFile(config.file, max_size=config.max_size, keep=config.keep)
    except OSError as error:
        raise ConfigError("The audit", [f"{config.file}: {error.strerror}"]) from None


class AuditFile:
    """Raises `OSError`, with a text for people, if it cannot be opened."""

    def __init__(self, name: str, *, max_size: int, keep: int) -> None:
        self._name = name
        self._max_size = max_size
        self._keep = keep
        self._failing = False
        self._descriptor = self._opened()

    def write(self, data: memoryview) -> int:
        try:
            self._look_after(len(data))
            written = os.write(self._descriptor, data)
        except OSError as error:
            self._say(error)
            raise
        self._say(None if written == len(data) else OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        return written

    def takes_more(self) -> bool:
        return True

    def close(self) -> None:
        os.close(self._descriptor)

    def _look_after(self, more: int) -> None:
        """It is the file of this name, and there is room in it."""
        if not self._is_there():
            self._reopen()
        size = os.fstat(self._descriptor).st_size
        if size and size + more > self._max_size:
            self._rotate(more)

    def _rotate(self, more: int) -> None:
        """Several processes may find it full: the first puts it aside, the others find a new one."""
        with _locked(self._descriptor):
            if self._is_there() and os.fstat(self._descriptor).st_size + more > self._max_size:
                for number in range(self._keep - 1, 0, -1):
                    with suppress(FileNotFoundError):
                        os.replace(f"{self._name}.{number}", f"{self._name}.{number + 1}")
                os.replace(self._name, f"{self._name}.1")
        self._reopen()

    def _is_there(self) -> bool:
        try:
            here = os.stat(self._name, follow_symlinks=False)
        except FileNotFoundError:
            return False
        ours = os.fstat(self._descriptor)
        return (here.st_dev, here.st_ino) == (ours.st_dev, ours.st_ino)

    def _reopen(self) -> None:
        fresh = self._opened()
        os.close(self._descriptor)
        self._descriptor = fresh

    def _opened(self) -> int:
        try:
            descriptor = os.open(self._name, _FLAGS, _MODE)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise OSError(error.errno, "it is no file") from None
            raise
        try:
            _make_private(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _say(self, error: OSError | None) -> None:
        """Once that it fails, and once that it does not any more."""
        if error and not self._failing:
            text = "the audit cannot be written to %s: %s. What is asked until it can is missing there"
            log.error(text, self._name, error.strerror)
        elif self._failing and not error:
            log.warning("the audit is written to %s again", self._name)
        self._failing = error is not None


def _make_private(descriptor: int) -> None:
    """Whatever the umask says, and whoever made the file: nobody else reads it."""
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.EINVAL, "it is no file")
    if stat.S_IMODE(about.st_mode) != _MODE:
        try:
            os.fchmod(descriptor, _MODE)
        except OSError:
            raise OSError(errno.EPERM, "others may read it, and it is not ours to change: chmod 600 it") from None


@contextmanager
def _locked(descriptor: int) -> Iterator[None]:
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
