"""`make recording`: runs `groundwire ask` on embedded parts in a terminal of its own, and draws what a person sees of
it as docs/terminal.svg: a short film in CSS, its last picture where films are not wanted, in light and dark colours.

Handed nothing, or another name for the file; writes it and prints its size. Needs the workshop's environment (pyte).
"""
# ruff: noqa: S603, T201 - it starts our own console script, and printing is what it is for

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pyte

PROJECT = Path(__file__).resolve().parent.parent
SCRIPT = Path(sys.executable).parent / "groundwire"
COMMAND = ["ask", "How does Groundwire check citations?", "-v"]
TYPED = 'groundwire ask "How does Groundwire check citations?" -v'
COLUMNS, LINES = 78, 18
MOST_FRAMES = 16
LONGEST_WAIT = 0.8  # seconds
LAST_SECONDS = 5.0  # that the end stands
CELL, LEADING, MARGIN, BAR = 8.0, 18, 16, 34
STYLE = """\
svg{font:13.3px ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace}
text{white-space:pre;fill:#1f2328}.c{fill:#0969da}.b{font-weight:600}.i{font-style:italic}
.u{text-decoration:underline}
#w{fill:#f6f8fa;stroke:#d0d7de}.o{fill:#d0d7de}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.c{fill:#58a6ff}
#w{fill:#0d1117;stroke:#30363d}.o{fill:#30363d}}
"""


class Frame(NamedTuple):
    at: float  # seconds since the first one
    lines: tuple[str, ...]  # as SVG


def main() -> None:
    with tempfile.TemporaryDirectory() as cache:
        frames = chosen(list(recorded(cache)))
    drawing = svg(frames)
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PROJECT / "docs" / "terminal.svg"
    path.write_text(drawing, encoding="utf-8")
    print(f"{path.name}: {len(frames)} pictures, {len(drawing.encode()):,} bytes")


def recorded(cache: str) -> Iterator[Frame]:
    """Every picture of the run, each a moment after the program wrote."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8", "XDG_CACHE_HOME": cache}
    command = [str(SCRIPT), *COMMAND, "--config", "docs/demo.yaml"]
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    stream.feed(f"\x1b[1m$\x1b[0m {TYPED}\r\n".encode())
    running = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=PROJECT, env=environment)
    os.close(theirs)
    began = time.monotonic()
    yield Frame(0.0, picture(screen))
    while written := _read(ours):
        stream.feed(written)
        yield Frame(time.monotonic() - began, picture(screen))
    os.close(ours)
    if running.wait(30):
        sys.exit(f"groundwire ask ended with {running.returncode}")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # so Linux says that nobody writes any more
        return b""


def picture(screen: pyte.Screen) -> tuple[str, ...]:
    return tuple(_line(screen.buffer[row]) for row in range(LINES))


def _line(row: object) -> str:
    """Runs of characters that look the same."""
    cells = [row[column] for column in range(COLUMNS)]  # type: ignore[index]
    runs: list[tuple[str, str]] = []
    for cell in cells:
        look = _look(cell)
        if runs and runs[-1][0] == look:
            runs[-1] = (look, runs[-1][1] + cell.data)
        else:
            runs.append((look, cell.data))
    while runs and not runs[-1][1].strip():
        runs.pop()
    if runs:
        runs[-1] = (runs[-1][0], runs[-1][1].rstrip())
    return "".join(
        f'<tspan class="{look}">{escape(text, False)}</tspan>' if look else escape(text, False) for look, text in runs
    )


def _look(cell: pyte.screens.Char) -> str:
    looks = [("b", cell.bold), ("i", cell.italics), ("u", cell.underscore), ("c", cell.fg == "cyan")]
    return " ".join(name for name, wears in looks if wears)


def chosen(frames: Sequence[Frame]) -> list[Frame]:
    """Few enough for a small file: those that differ, spread over the time, the last among them."""
    changed = [
        frame
        for before, frame in zip([None, *frames], frames, strict=False)
        if not before or before.lines != frame.lines
    ]
    step = max(1.0, (len(changed) - 1) / (MOST_FRAMES - 1))
    places = sorted({round(number * step) for number in range(MOST_FRAMES) if round(number * step) < len(changed)})
    picked = [changed[place] for place in places]
    return in_a_hurry(picked if picked[-1] is changed[-1] else [*picked, changed[-1]])


def in_a_hurry(frames: Sequence[Frame]) -> list[Frame]:
    """Nobody wants to see how long this machine takes to start a program."""
    hurried, at = [frames[0]], 0.0
    for before, frame in pairwise(frames):
        at += min(frame.at - before.at, LONGEST_WAIT)
        hurried.append(Frame(at, frame.lines))
    return hurried


def svg(frames: Sequence[Frame]) -> str:
    width, height = int(COLUMNS * CELL + 2 * MARGIN), BAR + LINES * LEADING + MARGIN
    length = frames[-1].at + LAST_SECONDS
    ends = [*(frame.at for frame in frames[1:]), length]
    style = [
        STYLE,
        f"@media(prefers-reduced-motion:no-preference){{.f{{opacity:0;animation:{length:.2f}s step-end infinite}}",
    ]
    groups = []
    for number, (frame, end) in enumerate(zip(frames, ends, strict=True)):
        on, off = 100 * frame.at / length, 100 * end / length
        shows = f"0%{{opacity:{int(not number)}}}{on:.2f}%{{opacity:1}}"
        style.append(f"@keyframes k{number}{{{shows}{off:.2f}%{{opacity:{int(off >= 100)}}}}}")
        style.append(f"#f{number}{{animation-name:k{number}}}")
        still = "" if number == len(frames) - 1 else ' opacity="0"'
        groups.append(f'<g id="f{number}" class="f"{still}>{"".join(_texts(frame.lines))}</g>')
    style.append("}")
    dots = "".join(f'<circle class="o" cx="{MARGIN + 18 * n + 4}" cy="17" r="5.5"/>' for n in range(3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="groundwire ask in a terminal: the search, the streamed answer, its source">'
        f"<style>{''.join(style)}</style>"
        f'<rect id="w" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8"/>{dots}{"".join(groups)}</svg>\n'
    )


def _texts(lines: Sequence[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        if line:
            yield f'<text x="{MARGIN}" y="{BAR + LEADING * number + 13}" xml:space="preserve">{line}</text>'


if __name__ == "__main__":
    main()
