"""A program in a terminal of its own, as a person starts it, and what that person sees. Handed a command, a folder and
an environment; hands on what the program has written so far, escape sequences and all, or the lines on the screen.
Waiting is done for words to appear, or for the end.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Self

import pyte

WIDTH, HEIGHT = 120, 40
PATIENCE = 60.0
CTRL_C, CTRL_D = "\x03", "\x04"
# The terminal becomes the one that the program is controlled by: without that Ctrl-C is a character like any other.
_TAKEN = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"


class Seen:
    """What a person sees of what was written, what has scrolled away at the top included."""

    def __init__(self, columns: int = WIDTH, lines: int = HEIGHT) -> None:
        self._screen = pyte.HistoryScreen(columns, lines, history=100_000, ratio=0.0001)
        self._screen.set_mode(pyte.modes.LNM)  # programs write line feeds; the terminal's driver adds the returns
        self._stream = pyte.Stream(self._screen)

    def write(self, text: str) -> None:
        self._stream.feed(text)

    def resize(self, columns: int, lines: int) -> None:
        """As terminals do it: on one that gets lower the cursor stays in sight, and what is above scrolls away."""
        screen = self._screen
        over = screen.cursor.y + 1 - lines
        if over > 0:
            at, screen.cursor.y = screen.cursor.y, screen.lines - 1
            for _ in range(over):
                screen.index()
            screen.cursor.y = at - over
        if lines < screen.lines:
            for row in range(lines, screen.lines):
                screen.buffer.pop(row, None)
            screen.lines = lines
        screen.resize(lines, columns)

    @property
    def lines(self) -> list[str]:
        """Without blanks at their ends, and without empty ones at the end."""
        gone = ["".join(row[column].data for column in range(max(row, default=-1) + 1)) for row in self._top()]
        shown = [line.rstrip() for line in [*gone, *self._screen.display]]
        while shown and not shown[-1]:
            shown.pop()
        return shown

    def _top(self) -> list[dict[int, pyte.screens.Char]]:
        return list(self._screen.history.top)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def cursor(self) -> tuple[int, int]:
        """Column, and line on the screen."""
        return self._screen.cursor.x, self._screen.cursor.y


class DrawnOn(io.StringIO):
    """A stream to a terminal of this size. `seen` is what a person sees of it, `written` all that went there."""

    def __init__(self, columns: int = WIDTH, lines: int = HEIGHT) -> None:
        super().__init__()
        self._ours, self._theirs = pty.openpty()
        self.seen = Seen(columns, lines)
        self.written = ""
        self._set_size(columns, lines)

    def __exit__(self, *_: object) -> None:
        os.close(self._ours)
        os.close(self._theirs)

    def resize(self, columns: int, lines: int) -> None:
        self._set_size(columns, lines)
        self.seen.resize(columns, lines)

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._theirs

    def write(self, text: str) -> int:
        self.written += text
        self.seen.write(text)
        return len(text)


def _hear_ctrl_c() -> None:
    """As a shell lets its programs begin: tests that run in the background were told to ignore it, and would pass that
    on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """`with Terminal(["vi"], folder, env) as terminal: terminal.until("~")`."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        env: Mapping[str, str],
        *,
        columns: int = WIDTH,
        lines: int = HEIGHT,
    ) -> None:
        self._command = [sys.executable, "-c", _TAKEN, *command]
        self._folder, self._env = folder, {"TERM": "xterm-256color", **env}
        self._size = (columns, lines)
        self._resized: list[tuple[int, tuple[int, int]]] = []  # after so many bytes, to this size
        self._written = b""
        self._pressed = 0  # how much was written before the last key

    def __enter__(self) -> Self:
        self._ours, theirs = pty.openpty()
        self._set_size(*self._size)
        self.process = subprocess.Popen(
            self._command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=self._folder,
            env=self._env,
            start_new_session=True,
            preexec_fn=_hear_ctrl_c,
        )
        os.close(theirs)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)
        os.close(self._ours)

    def until(self, *words: str) -> str:
        """All that was written, as soon as what was written since the last key holds all of these."""
        end = time.monotonic() + PATIENCE
        while missing := [word for word in words if word.encode() not in self._written[self._pressed :]]:
            left = end - time.monotonic()
            if left < 0 or not wait([self._ours], left) or not self._read():
                raise AssertionError(f"{missing} did not appear in {self._written.decode(errors='replace')!r}")
        return self._written.decode(errors="replace")

    def until_bytes(self, count: int) -> None:
        """Until so much was written, or the program has ended."""
        while len(self._written) < count and self._read():
            pass

    def press(self, keys: str) -> None:
        self._pressed = len(self._written)
        os.write(self._ours, keys.encode())

    def press_until_ended(self, keys: str) -> None:
        """As people do: Python's line editing misses a signal that comes just before it begins to wait."""
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < end:
            self.press(keys)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(1)

    def resize(self, columns: int, lines: int) -> None:
        self._resized.append((len(self._written), (columns, lines)))
        self._set_size(columns, lines)

    def ended(self) -> int:
        """The exit code, once the program is over. What it still writes is read."""
        while self._read():
            pass
        return self.process.wait(PATIENCE)

    @property
    def written(self) -> str:
        return self._written.decode(errors="replace")

    @property
    def seen(self) -> Seen:
        """As it is after all that was read up to now."""
        seen, done = Seen(*self._size), 0
        for at, size in self._resized:
            seen.write(self._written[done:at].decode(errors="replace"))
            seen.resize(*size)
            done = at
        seen.write(self._written[done:].decode(errors="replace"))
        return seen

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _read(self) -> bool:
        """Whether the program is still there: of one that has ended Linux says that reading failed."""
        try:
            piece = os.read(self._ours, 65536)
        except OSError:
            return False
        self._written += piece
        return bool(piece)
