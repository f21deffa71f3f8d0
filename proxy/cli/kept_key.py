"""The client key of a server that has none configured: made at the first start, and kept in a file, so that clients and
what they stored outlive a restart.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..config.keys import SHORTEST
from .key import generated
from .running import Mistake

_LONGEST = 512
# Without a comma, which separates the keys of GROUNDWIRE_KEYS.
_KEY = re.compile(rb"[!-+\--~]{%d,%d}" % (SHORTEST, _LONGEST))
_MODE = 0o600
_ANEW = "Delete it, and the next start makes a new key; or set GROUNDWIRE_KEYS."


class KeptKey(NamedTuple):
    key: str
    is_new: bool


def kept_key(path: Path) -> KeptKey:
    """The key in the file, or a new one that is in it from now on. Of several processes that start at once, with the
    same folder, one makes it and all others read it. Raises `Mistake`."""
    found = _read(path)
    if found is not None:
        return KeptKey(found, is_new=False)
    made = generated()
    if _create(path, made):
        return KeptKey(made, is_new=True)
    found = _read(path)
    if found is None:
        raise _mistake(path, "it was deleted while this server started", "Start again.")
    return KeptKey(found, is_new=False)


def _read(path: Path) -> str | None:
    try:
        # A pipe must not hold up the start.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _mistake(path, "it is a symbolic link", _ANEW) from None
        raise _mistake(path, f"it cannot be read ({error.strerror})", f"Let {_user()} read it.") from None
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise _mistake(path, "it is not a plain file", _ANEW)
        if stat.S_IMODE(about.st_mode) & ~_MODE:
            with suppress(OSError):  # it is another user's, who lets us read it
                os.fchmod(descriptor, _MODE)
        data = os.read(descriptor, _LONGEST + 2).strip()
    finally:
        os.close(descriptor)
    if not data:
        raise _mistake(path, "it is empty", _ANEW)
    if not _KEY.fullmatch(data):
        text = f"it must hold one key of {SHORTEST} to {_LONGEST} printable characters, without spaces and commas"
        raise _mistake(path, text, _ANEW)
    return data.decode("ascii")


def _create(path: Path, key: str) -> bool:
    """Whether it was made here: False if another process was faster. The file is never there without its key."""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # for its owner alone
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(key + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
    except OSError as error:
        advice = f"Mount a volume at {path.parent} that {_user()} may write, or set GROUNDWIRE_KEYS."
        raise _mistake(path, f"it cannot be written ({error.strerror})", advice) from None
    return True


def _user() -> str:
    return f"the user {os.geteuid()}"


def _mistake(path: Path, what: str, advice: str) -> Mistake:
    return Mistake(f"The client key cannot be kept in {path}, which GROUNDWIRE_KEY_FILE names: {what}. {advice}")
