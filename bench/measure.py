"""One measurement: a scenario driven against one target while the target's CPU time is counted.

Handed a scenario, a port and (unless the run is direct) the target's process id; hands on one row of figures.
"""

import contextlib
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CHUNKS = 200
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
CORES = sorted(os.sched_getaffinity(0))
LOAD_CORE, TARGET_CORE = CORES[0], CORES[-1]

Row = dict[str, Any]


@dataclass(frozen=True)
class Scenario:
    """What the upstream does (a chunk every `delay_us`, a search first or not) and how many connections ask it. It runs
    so many times `longer` than others: of the thirty answers that `paced` has in four seconds, p99 is the longest."""

    name: str
    connections: int
    streamed: bool = False
    delay_us: int = 0
    searched: bool = False
    search_us: int = 0
    longer: float = 1.0

    @property
    def settings(self) -> str:
        rounds = int(self.searched)
        return f"chunks={CHUNKS}&delay_us={self.delay_us}&rounds={rounds}&search_us={self.search_us}&batch=1"


SCENARIOS = {
    s.name: s
    for s in (
        Scenario("json1", 1),
        Scenario("json16", 16),
        Scenario("burst", 8, streamed=True),
        Scenario("paced", 10, streamed=True, delay_us=5_000, longer=3.0),
        Scenario("tooljson", 8, searched=True),
        Scenario("toolburst", 8, streamed=True, searched=True),
        Scenario("tool", 4, streamed=True, delay_us=5_000, searched=True, search_us=20_000),
    )
}


@dataclass(frozen=True)
class Usage:
    """CPU seconds and resident memory of a process and all its children."""

    cpu: float = 0.0
    rss: float = 0.0


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read()  # type: ignore[no-any-return]


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command name, which may itself hold blanks and brackets."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return text[text.rindex(")") + 2 :].split()


def _family(pid: int) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):  # it ended while we looked
                children.setdefault(int(_stat(int(entry))[1]), []).append(int(entry))
    waiting = [pid]
    while waiting:
        member = waiting.pop()
        yield member
        waiting += children.get(member, [])


def usage(pid: int) -> Usage:
    cpu = rss = 0.0
    for member in _family(pid):
        with contextlib.suppress(OSError):
            fields = _stat(member)
            coarse = sum(int(x) for x in fields[11:15]) / TICK  # 10 ms grain, ended threads and children included
            tasks = Path(f"/proc/{member}/task").iterdir()
            fine = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9  # live threads only
            cpu += fine if abs(coarse - fine) < 0.03 else coarse
            rss += int(fields[21]) * PAGE / 2**20
    return Usage(cpu, rss)


def spawn(
    command: list[str], core: int | None, log: Path, env: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Starts a process on one core, or on all of them, in a session of its own so that it can be stopped with all its
    children."""
    with log.open("ab") as out:
        return subprocess.Popen(
            command,
            env=env,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, CORES if core is None else {core}),
        )


def measure(scenario: Scenario, upstream: str, port: int, pid: int | None, body: Path, key: str, seconds: float) -> Row:
    """Drives the scenario after a short warm-up; work is counted by the upstream itself, not by the client."""
    get(f"{upstream}/config?{scenario.settings}")
    core = LOAD_CORE if pid else TARGET_CORE
    expected = CHUNKS if scenario.streamed else 1

    def load(duration: float) -> subprocess.CompletedProcess[str]:
        arguments = [port, "/v1/chat/completions", scenario.connections, duration, body, expected]
        return subprocess.run(
            [str(HERE / "load"), *map(str, arguments), f"Authorization: Bearer {key}"],
            capture_output=True,
            text=True,
            timeout=duration + 90,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )

    def counters() -> tuple[Usage, dict[str, int]]:
        return usage(pid) if pid else Usage(), json.loads(get(f"{upstream}/stats"))

    load(0.4)
    time.sleep(0.2)
    before, counted_before = counters()
    run = load(seconds * scenario.longer)
    after, counted_after = counters()

    row: Row = {"scenario": scenario.name}
    if run.returncode != 0:
        return row | {"ok": 0, "bad": 0, "err": (run.stdout + run.stderr).strip()[-300:]}
    row |= json.loads(run.stdout)
    work = {key: counted_after[key] - counted_before[key] for key in counted_after}
    row["upstream"] = work
    if not row["ok"]:  # nothing but failures, or a target so slow that each connection got no further than its warm-up
        row = {key: value for key, value in row.items() if not key.startswith(("lat_", "ttft_", "rps"))}
    if pid and work["finals"] and (row["ok"] or not row["bad"]):
        cpu = after.cpu - before.cpu
        row |= {"rss": after.rss, "cpu": cpu, "cpu_1k": cpu / work["finals"] * 1_000}
        if work["chunks"]:
            row["cpu_100k"] = cpu / work["chunks"] * 100_000
    return row
