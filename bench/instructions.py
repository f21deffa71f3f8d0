"""What a request and a chunk cost in instructions and system calls, beside the relay. Seconds depend on who else uses
the machine; these counts hardly do, so a change can be judged on a busy one.

    .venv/bin/python bench/instructions.py --groundwire .venv/bin/groundwire [--only json16,burst] [--targets relay]

Every target runs under valgrind (callgrind), which counts what it does between two moments when nothing is under way:
warm, with its connections open. System calls are counted in a run of their own, under strace. It needs both programs,
`make bench/fake`, and nothing beyond loopback. `--keep` leaves callgrind's files in bench/out/ for callgrind_annotate.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from measure import CHUNKS, HERE, get, spawn
from run import await_health, environment, stop
from targets import KEY, OUT, free_port

_TOTALS = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)
_CALLS = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", re.MULTILINE)
_VALGRIND = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--trace-children=no"]


@dataclass(frozen=True)
class Work:
    """`rounds` questions over each of `connections`; a chunk every `delay_us`, all that are ready together if 0. What a
    first token costs is seen in a stream of one chunk (`word`)."""

    connections: int
    rounds: int
    streamed: bool = False
    delay_us: int = 0
    searched: bool = False
    chunks: int = CHUNKS

    @property
    def settings(self) -> str:
        return f"chunks={self.chunks}&delay_us={self.delay_us}&rounds={int(self.searched)}&search_us=0&batch=1"

    @property
    def units(self) -> int:
        return self.connections * self.rounds * (self.chunks if self.streamed else 1)


WORK = {
    "json1": Work(1, 40),
    "json16": Work(16, 6),
    "burst": Work(8, 3, streamed=True),
    "paced": Work(4, 1, streamed=True, delay_us=50_000),
    "tooljson": Work(4, 4, searched=True),
    "word": Work(1, 40, streamed=True, delay_us=50_000, chunks=1),
}


@dataclass(frozen=True)
class Target:
    name: str
    port: int
    command: list[str]


def targets_of(script: str, upstream: str) -> list[Target]:
    settings = {
        "upstreams": [{"name": "fake", "type": "openai", "base_url": f"{upstream}/v1", "models": ["*"]}],
        "providers": [{"name": "fake", "type": "searxng", "base_url": upstream}],
        "server": {"queue": 120},  # under valgrind it is overloaded, and would shed
    }
    python = str(Path(script).with_name("python"))
    port = free_port()
    targets = [Target("relay", port, [python, str(HERE / "relay.py"), upstream, str(port)])]
    for name, mode in (("forwarded", "off"), ("groundwire", "auto")):
        config = OUT / f"counted-{name}.yaml"
        config.write_text(json.dumps({**settings, "tools": {"search": ["fake"], "mode": mode}}))  # JSON is YAML too
        port = free_port()
        targets.append(Target(name, port, [python, script, "serve", "--config", str(config), "--port", str(port)]))
    return targets


async def ask(port: int, work: Work, rounds: int, meanwhile: "Moments") -> None:
    """Opens the connections, warms them up, and then does the work while it is counted."""
    body = (HERE / "bodies" / ("stream.json" if work.streamed else "plain.json")).read_bytes()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {KEY}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    request = head.encode() + body
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(work.connections)]

    async def one(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], times: int) -> None:
        reader, writer = connection
        for _ in range(times):
            writer.write(request)
            await read_answer(reader)

    async with asyncio.timeout(600):
        await asyncio.gather(*(one(connection, 2) for connection in opened))
        await asyncio.sleep(0.5)
        meanwhile.begin()
        await asyncio.gather(*(one(connection, rounds) for connection in opened))
        meanwhile.end()
    for _, writer in opened:
        writer.close()


async def read_answer(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if not head.startswith(b"http/1.1 200"):
        sys.exit(f"refused: {head!r}")
    if found := re.search(rb"content-length: (\d+)", head):
        await reader.readexactly(int(found[1]))
        return
    while size := int(await reader.readline(), 16):
        await reader.readexactly(size + 2)
    await reader.readexactly(2)


class Moments:
    """Counting is on between `begin` and `end`."""

    def begin(self) -> None: ...

    def end(self) -> None: ...


class Instructions(Moments):
    def __init__(self, pid: int, file: Path) -> None:
        self._pid, self._file = pid, file
        self.count = 0

    def begin(self) -> None:
        self._control("--instr=on")

    def end(self) -> None:
        self._control("--dump")
        self._control("--instr=off")
        dumped = max(self._file.parent.glob(self._file.name + ".*"), key=lambda path: path.stat().st_mtime)
        self.count = int(_TOTALS.findall(dumped.read_text())[-1])

    def _control(self, word: str) -> None:
        subprocess.run(["callgrind_control", word, str(self._pid)], check=True, capture_output=True)


class SystemCalls(Moments):
    def __init__(self, pid: int, file: Path) -> None:
        self._pid, self._file = pid, file
        self._strace: subprocess.Popen[bytes] | None = None
        self.count: dict[str, int] = {}

    def begin(self) -> None:
        command = ["strace", "-f", "-c", "-o", str(self._file), "-p", str(self._pid)]
        self._strace = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert self._strace.stderr
        self._strace.stderr.readline()  # it says that it is attached

    def end(self) -> None:
        assert self._strace
        self._strace.send_signal(signal.SIGINT)
        self._strace.wait()
        found = _CALLS.findall(self._file.read_text())
        self.count = {name: int(number) for number, name in found if name != "total"}


@contextmanager
def started(target: Target, command: list[str]) -> Iterator[int]:
    env = {**environment(), "PYTHONHASHSEED": "0"}
    process = spawn(command, max(os.sched_getaffinity(0)), OUT / f"{target.name}.log", env)
    try:
        if not await_health(f"http://127.0.0.1:{target.port}/healthz", process):
            sys.exit(f"{target.name} did not start; its output is in {OUT / target.name}.log")
        time.sleep(1)
        yield process.pid
    finally:
        stop(process)


def count(target: Target, names: list[str], upstream: str, keep: bool) -> Iterator[dict[str, object]]:
    for name in names:
        work = WORK[name]
        if work.searched and target.name != "groundwire":
            continue
        get(f"{upstream}/config?{work.settings}")
        file = OUT / f"callgrind.{target.name}.{name}"
        for old in OUT.glob(file.name + "*"):
            old.unlink()
        with started(target, [*_VALGRIND, f"--callgrind-out-file={file}", *target.command]) as pid:
            instructions = Instructions(pid, file)
            asyncio.run(ask(target.port, work, work.rounds, instructions))
        with started(target, target.command) as pid:
            calls = SystemCalls(pid, OUT / "strace.txt")
            asyncio.run(ask(target.port, work, work.rounds, calls))
        for path in () if keep else OUT.glob(file.name + "*"):
            path.unlink()
        per = {call: round(number / work.units, 3) for call, number in calls.count.items() if number > work.units / 50}
        yield {"target": target.name, "work": name, "instructions": instructions.count / work.units, "calls": per}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groundwire", metavar="SCRIPT", required=True, help="Groundwire's console script")
    parser.add_argument("--only", default="json16,burst,paced", help=f"of {', '.join(WORK)} (default: %(default)s)")
    parser.add_argument("--targets", default="relay,forwarded,groundwire", help="(default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave callgrind's files in bench/out/")
    arguments = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    port = free_port()
    upstream = f"http://127.0.0.1:{port}"
    fake = spawn([str(HERE / "fake"), str(port)], min(os.sched_getaffinity(0)), OUT / "fake.log")
    await_health(f"{upstream}/health", fake)
    floor: dict[str, float] = {}
    try:
        for target in targets_of(arguments.groundwire, upstream):
            if target.name not in arguments.targets.split(","):
                continue
            for row in count(target, arguments.only.split(","), upstream, arguments.keep):
                cost = float(str(row["instructions"]))
                floor.setdefault(str(row["work"]), cost)
                times = cost / floor[str(row["work"])]
                print(
                    f"{row['target']:<11}{row['work']:<9}{cost:>12,.0f} instructions  {times:5.2f} of the first", end=""
                )
                print("  calls", json.dumps(row["calls"]), flush=True)
    finally:
        stop(fake)


if __name__ == "__main__":
    main()
