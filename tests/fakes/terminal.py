"""A program in a terminal of its own, as a person starts it. Handed a command, a folder and an environment; hands on
what the program has written so far, escape sequences and all. Waiting is done for words to appear.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

SIZE = struct.pack("HHHH", 40, 120, 0, 0)  # lines and columns; of pixels it knows nothing
PATIENCE = 60.0


class Terminal:
    """`with Terminal(["vi"], folder, env) as terminal: terminal.until("~")`."""

    def __init__(self, command: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        self._command, self._folder, self._env = command, folder, {"TERM": "xterm-256color", **env}
        self._written = b""

    def __enter__(self) -> Self:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, SIZE)
        self._process = subprocess.Popen(
            self._command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=self._folder,
            env=self._env,
            start_new_session=True,
        )
        os.close(theirs)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)
        os.close(self._ours)

    def until(self, *words: str) -> str:
        """All that was written, as soon as it holds all of these."""
        end = time.monotonic() + PATIENCE
        while missing := [word for word in words if word.encode() not in self._written]:
            left = end - time.monotonic()
            if left < 0 or not select.select([self._ours], [], [], left)[0] or not self._read():
                raise AssertionError(f"{missing} did not appear in {self._written.decode(errors='replace')!r}")
        return self._written.decode(errors="replace")

    def _read(self) -> bool:
        """Whether the program is still there: of one that has ended Linux says that reading failed."""
        try:
            piece = os.read(self._ours, 65536)
        except OSError:
            return False
        self._written += piece
        return bool(piece)
