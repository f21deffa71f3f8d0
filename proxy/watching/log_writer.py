"""The way of lines to where they are kept, the log's to its descriptor: a queue with an end, and a thread that writes.
Handed lines, it never waits: a pipe that nobody reads, or a disk that hangs, costs lines and no request. What is lost
is counted, and said as soon as there is room again.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

log = logging.getLogger("groundwire")

ROOM = 1 << 20  # characters that may wait
_PAUSE = 0.02  # seconds between two writes: under load many lines then go out with one, and wake the thread once
_GRACE = 0.002  # seconds from a line to the write that it brings about, where none is under way
_PATIENCE = 1.0  # how long the end waits for a reader that takes nothing
_LONGEST_END = 5.0


class Line(Protocol):
    """A text, or what becomes one where it is written; its length is the room that it takes until then."""

    def __len__(self) -> int: ...

    def __str__(self) -> str: ...


class Output(Protocol):
    def write(self, data: memoryview) -> int:
        """As much of it as there is room for; raises `OSError` where there is none."""

    def takes_more(self) -> bool:
        """Could something be written now, without a wait?"""


class LineQueue:
    """Lines in their order, up to `room` characters. The first one that does not fit is lost, and so are those after it
    until the queue is emptied: what is missing is missing in one place, behind the lines that are taken."""

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._lines: list[Line] = []
        self._size = 0
        self._missing = 0
        self._lock = threading.Lock()
        self.dropped = 0  # in all

    def __bool__(self) -> bool:
        return bool(self._lines or self._missing)

    def put(self, line: Line) -> bool:
        """Whether there is room for as much again as waits now."""
        with self._lock:
            size = self._size + len(line)
            if self._missing or size > self._room:
                self._missing += 1
                self.dropped += 1
            else:
                self._size = size
                self._lines.append(line)
            return 2 * size <= self._room

    def take(self) -> tuple[list[Line], int]:
        """All that wait, and how many are missing behind them."""
        with self._lock:
            taken = self._lines, self._missing
            self._lines, self._size, self._missing = [], 0, 0
            return taken


class LineWriter:
    """`lost` makes the line that says how many are missing in its place."""

    def __init__(
        self, out: Output, lost: Callable[[int], str], *, name: str, room: int = ROOM, encoding: str = "utf-8"
    ) -> None:
        self._out = out
        self._encoding = encoding
        self._lost = lost
        self._queue = LineQueue(room)
        self._wake = threading.Event()
        self._asleep = False
        self._closed = False
        self._written = 0  # bytes
        self._torn = False  # the last line that went out has no end
        self._unsaid = 0  # lines that are missing before the next one
        self._failed = 0  # lines that could not be written, in all
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def dropped(self) -> int:
        return self._queue.dropped + self._failed

    def write(self, line: Line) -> None:
        roomy = self._queue.put(line)
        if self._closed:
            self._write_late()
        elif not roomy:
            self._wake.set()
        elif self._asleep:
            self._asleep = False
            self._wake_soon()

    def _wake_soon(self) -> None:
        """Not in the moment in which a request ends: a client that asks again at once would wait for the thread."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # no request's line
            self._wake.set()
        else:
            loop.call_later(_GRACE, self._wake.set)

    def close(self) -> None:
        """Writes what waits, as long as somebody takes it."""
        self._closed = True
        self._wake.set()
        end = time.monotonic() + _LONGEST_END
        before = -1
        while self._thread.is_alive() and self._written != before and time.monotonic() < end:
            before = self._written
            self._thread.join(_PATIENCE)

    def _run(self) -> None:
        while True:
            while self._queue:
                self._write(*self._queue.take())
                self._rest(_PAUSE)
            if self._closed:
                return
            self._asleep = True
            if self._queue:  # it came before we said so
                self._asleep = False
            else:
                self._rest()

    def _rest(self, longest: float | None = None) -> None:
        """Until somebody wakes it."""
        if not self._closed:
            self._wake.wait(longest)
        self._wake.clear()

    def _write_late(self) -> None:
        """After the end: what the interpreter has still to say while it goes, if it can be said without waiting."""
        if not self._thread.is_alive() and self._out.takes_more():
            self._write(*self._queue.take())

    def _write(self, lines: list[Line], missing: int) -> None:
        """Lines, with a word about those that are missing before and behind them."""
        before, self._unsaid = self._unsaid, 0
        said = [*self._about(before), *map(self._text, lines), *self._about(missing)]
        start = "\n" if self._torn else ""
        data = (start + "\n".join(said) + "\n").encode(self._encoding, "backslashreplace")
        written = self._put_out(data)
        if written < len(data):  # nobody reads it any more, or the disk is full
            whole = self._whole_in(said, written - len(start))
            of_lines = min(max(whole - bool(before), 0), len(lines))
            self._unsaid = (0 if whole and before else before) + len(lines) - of_lines + missing
            self._failed += len(lines) - of_lines
        if written:
            self._torn = data[written - 1 : written] != b"\n"

    def _text(self, line: Line) -> str:
        """What goes wrong with one line must not end the thread that writes all of them."""
        try:
            return str(line)
        except Exception:
            log.exception("a line could not be put together, and is lost")
            self._failed += 1
            return self._lost(1)

    def _about(self, missing: int) -> list[str]:
        return [self._lost(missing)] if missing else []

    def _whole_in(self, lines: list[str], written: int) -> int:
        """How many of the lines are in what was written."""
        for count, line in enumerate(lines):
            written -= len(line.encode(self._encoding, "backslashreplace")) + 1
            if written < 0:
                return count
        return len(lines)

    def _put_out(self, data: bytes) -> int:
        """How much of it was written."""
        rest = memoryview(data)
        with suppress(OSError, ValueError):
            while rest:
                count = self._out.write(rest)
                self._written += count
                rest = rest[count:]
        return len(data) - len(rest)


class LogWriter(LineWriter):
    def __init__(self, descriptor: int, lost: Callable[[int], str], *, encoding: str = "utf-8") -> None:
        super().__init__(_Descriptor(descriptor), lost, name="log", encoding=encoding)


class _Descriptor:
    def __init__(self, number: int) -> None:
        self._number = number

    def write(self, data: memoryview) -> int:
        return os.write(self._number, data)

    def takes_more(self) -> bool:
        ready = select.poll()
        ready.register(self._number, select.POLLOUT)
        return bool(ready.poll(0))


class HurriedWriter:
    """For a process that has few lines, no thread, and no time to wait for a reader."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.dropped = 0

    def write(self, line: str) -> None:
        ready = select.poll()
        ready.register(self._descriptor, select.POLLOUT)
        data = line.encode("utf-8", "backslashreplace")[: select.PIPE_BUF - 1] + b"\n"  # as much as cannot block
        try:
            taken = bool(ready.poll(0)) and os.write(self._descriptor, data) > 0
        except OSError:
            taken = False
        self.dropped += not taken
