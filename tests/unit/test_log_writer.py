"""The lines on their way out: in order, whole, and never at anybody's expense. Real pipes, files and a full disk."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.watching.log_writer import ROOM, HurriedWriter, LineQueue, LogWriter

LONG = 10.0  # seconds; each wait is for an event that comes at once


def lost(lines: int) -> str:
    return f"({lines} lost)"


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for end in (reading, writing):
        with suppress(OSError):  # the test closed it
            os.close(end)


def read_until(reading: int, end: bytes) -> bytes:
    found = b""
    while not found.endswith(end):
        found += os.read(reading, 1 << 20)
    return found


# The queue


@given(st.lists(st.one_of(st.integers(0, 12), st.none()), max_size=60))
def test_lines_come_out_in_order_and_what_is_missing_is_counted(steps: list[int | None]) -> None:
    """A number puts a line of that length, None takes all."""
    queue = LineQueue(room=20)
    put: list[str] = []
    taken: list[str | int] = []
    waiting = 0
    for step in [*steps, None]:
        if step is None:
            lines, missing = queue.take()
            assert sum(map(len, lines)) <= 20
            taken += [*lines, *([missing] if missing else [])]
            waiting = 0
        else:
            put.append(f"{len(put)}".ljust(step, "x"))
            queue.put(put[-1])
            waiting += 1
        assert bool(queue) == bool(waiting)
    at = 0
    for item in taken:
        if isinstance(item, int):
            at += item
        else:
            assert item == put[at]
            at += 1
    assert at == len(put)
    assert queue.dropped == sum(item for item in taken if isinstance(item, int))


def test_it_says_when_it_is_half_full() -> None:
    queue = LineQueue(room=20)
    assert queue.put("x" * 10)
    assert not queue.put("x")
    assert not queue.put("x" * 10), "nor is there room where one was lost"
    queue.take()
    assert queue.put("x")


# The writer


def test_lines_are_written_promptly_in_order_and_whole(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    writer = LogWriter(writing, lost)
    writer.write("first\nwith a second half")
    assert read_until(reading, b"half\n") == b"first\nwith a second half\n"
    lines = [f"line {n} é" for n in range(2000)]
    for line in lines:
        writer.write(line)
    assert read_until(reading, b"line 1999 \xc3\xa9\n").decode().splitlines() == lines
    writer.close()
    assert writer.dropped == 0


def test_a_pipe_that_nobody_reads_costs_lines_and_no_time(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    writer = LogWriter(writing, lost)
    line = "x" * 999
    count = 3 * ROOM // len(line)
    for _ in range(count):
        writer.write(line)
    said = ""
    while sum(map(worth, said.splitlines())) < count or not said.endswith("\n"):
        said += os.read(reading, 1 << 20).decode()
    gaps = [word for word in said.splitlines() if word != line]
    assert sum(map(worth, gaps)) == writer.dropped == count - said.count(line) > 0
    writer.write("well again")
    assert read_until(reading, b"\n") == b"well again\n"
    writer.close()


def worth(line: str) -> int:
    """How many lines it stands for."""
    return int(line[1:-6]) if re.fullmatch(r"\(\d+ lost\)", line) else bool(line)


def test_the_end_does_not_wait_for_a_reader_that_is_not_there(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    writer = LogWriter(writing, lost)
    for _ in range(200):
        writer.write("x" * 999)  # more than a pipe holds
    began = time.monotonic()
    writer.close()
    assert time.monotonic() - began < LONG
    writer.write("too late")  # and does not wait either
    os.close(reading)
    until(lambda: not writer._thread.is_alive())  # before its descriptor is another test's


def test_the_end_waits_for_a_reader_that_is_slow(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    found: list[bytes] = []

    def read() -> None:
        while part := os.read(reading, 1 << 16):
            found.append(part)
            time.sleep(0.02)

    reader = threading.Thread(target=read)
    reader.start()
    writer = LogWriter(writing, lost)
    for _ in range(600):
        writer.write("x" * 999)
    writer.close()
    os.close(writing)
    reader.join(LONG)
    assert b"".join(found) == (b"x" * 999 + b"\n") * 600


def test_a_reader_that_has_gone(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.close(reading)
    writer = LogWriter(writing, lost)
    for count in (1, 2, 3):
        writer.write("x")
        until(lambda count=count: writer.dropped == count)  # type: ignore[misc]
    writer.close()


class _Unsayable:
    def __len__(self) -> int:
        return 1

    def __str__(self) -> str:
        raise ValueError("no line comes of this")


def test_a_line_that_cannot_be_put_together_costs_itself_alone(
    pipe: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    reading, writing = pipe
    writer = LogWriter(writing, lost)
    writer.write(_Unsayable())
    until(lambda: writer.dropped == 1)
    writer.write("after it")
    assert read_until(reading, b"after it\n") == b"(1 lost)\nafter it\n"
    writer.close()
    assert "no line comes of this" in caplog.text


def test_a_disk_that_is_full_and_then_is_not(tmp_path: Path) -> None:
    """Room for a part of what is written: one line is torn, the next one begins anew."""
    target = tmp_path / "log"
    code = (
        "import os, resource, signal, sys, time\n"
        "from proxy.watching.log_writer import LogWriter\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "limit = lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))\n"
        "limit(25)\n"
        "writer = LogWriter(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND), '({} lost)'.format)\n"
        "for line in ('whole', 'x' * 40, 'y' * 40):\n"
        "    before = writer.dropped, os.path.getsize(sys.argv[1])\n"
        "    writer.write(line)\n"
        "    while before[0] == writer.dropped and (before[1] or not os.path.getsize(sys.argv[1])): time.sleep(0.005)\n"
        "limit(resource.RLIM_INFINITY)\n"
        "writer.write('well again')\n"
        "writer.close()\n"
        "print(writer.dropped)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, target], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "2\n"
    assert target.read_text() == "whole\n" + "x" * 19 + "\n(2 lost)\nwell again\n"


def test_what_is_said_at_the_very_end_is_written(tmp_path: Path) -> None:
    code = (
        "import atexit, sys\n"
        "from proxy.watching.log_writer import LogWriter\n"
        "late = []\n"
        "atexit.register(lambda: late[0].write('last'))  # runs after the writer's own end\n"
        "late.append(LogWriter(2, str))\n"
        "late[0].write('first')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == "first\nlast\n"


# For a process without a thread


def test_what_can_be_written_at_once_is_written_and_nobody_waits_for_the_rest() -> None:
    reading, writing = os.pipe()
    try:
        writer = HurriedWriter(writing)
        writer.write("first ü \ud800")
        writer.write("x" * 100_000)
        assert os.read(reading, 1 << 20).decode() == "first ü \\ud800\n" + "x" * (select.PIPE_BUF - 1) + "\n"
        os.set_blocking(writing, False)
        with suppress(BlockingIOError):
            while True:
                os.write(writing, bytes(4096))
        os.set_blocking(writing, True)
        writer.write("lost")
        assert writer.dropped == 1
    finally:
        os.close(reading)
        os.close(writing)


def test_where_nobody_reads_any_more_it_is_counted() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    writer = HurriedWriter(writing)
    writer.write("lost")
    os.close(writing)
    assert writer.dropped == 1
