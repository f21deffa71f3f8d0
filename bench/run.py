"""The measuring bench: one fake upstream, every target started afresh in every round, all figures in one report.

Handed the number of rounds and, for a comparison, the path of LiteLLM's console script; writes rows and the report
to bench/out/, and a dated copy to bench/results/ if it is told to. Linux only: it reads /proc and pins the target to
one core and everything else to another.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import targets
import wanted
from measure import HERE, LOAD_CORE, SCENARIOS, TARGET_CORE, Row, get, measure, spawn, usage
from report import report
from targets import KEY, OUT, Target, free_port

START_LIMIT = 180.0


def await_health(url: str, process: subprocess.Popen[bytes]) -> bool:
    limit = time.perf_counter() + START_LIMIT
    while time.perf_counter() < limit and process.poll() is None:
        with suppress(OSError):
            get(url)
            return True
        time.sleep(0.01)
    return False


def stop(process: subprocess.Popen[bytes]) -> None:
    for request in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, request)
        with suppress(subprocess.TimeoutExpired):
            process.wait(8)
            return


def environment() -> dict[str, str]:
    """No setting of the person who measures reaches a target, and no target leaves the machine."""
    private = ("GROUNDWIRE_", "WEB_SEARCH_PROVIDER", "LITELLM_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(private)}
    keys = {"GROUNDWIRE_KEYS": KEY, "LITELLM_MASTER_KEY": KEY}
    offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False", "NO_PROXY": "127.0.0.1"}
    return kept | keys | offline


@contextmanager
def running(command: list[str], health: str, core: int, log: Path) -> Iterator[tuple[int, float]]:
    """(process id, seconds from start to the first healthy answer)"""
    began = time.perf_counter()
    process = spawn(command, core, log, environment())
    try:
        if not await_health(health, process):
            sys.exit(f"{command[0]} did not start; its output is in {log}")
        yield process.pid, time.perf_counter() - began
    finally:
        stop(process)


def rounds_of(target: Target, wanted: list[str], upstream: str, seconds: float) -> Iterator[Row]:
    scenarios = [SCENARIOS[name] for name in target.scenarios if name in wanted]
    if not target.command:
        for scenario in scenarios:
            yield measure(scenario, upstream, target.port, None, target.body(scenario), KEY, seconds)
        return
    if not scenarios:
        return
    health = f"http://127.0.0.1:{target.port}{target.health}"
    with running(target.command, health, TARGET_CORE, OUT / f"{target.name}.log") as (pid, start):
        time.sleep(0.5)
        idle = usage(pid)
        yield {"scenario": "startup", "start": start, "start_cpu": idle.cpu, "rss": idle.rss}
        for scenario in scenarios:
            yield measure(scenario, upstream, target.port, pid, target.body(scenario), KEY, seconds)


def show(row: Row) -> None:
    shown = ("ok", "bad", "rps", "lat_p50", "ttft_p50", "cpu_1k", "cpu_100k", "rss", "start")
    figures = "  ".join(f"{key} {row[key]:.4g}" for key in shown if row.get(key) is not None)
    print(f"{row['round']}  {row['target']:<15}{row['scenario']:<10} {figures}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groundwire", metavar="SCRIPT", help="Groundwire's console script")
    parser.add_argument("--litellm", metavar="SCRIPT", help="LiteLLM's console script, for a comparison")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each run; of `paced` three times that")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help="comma-separated (default: %(default)s)")
    parser.add_argument("--floors", action="store_true", help="nginx and a bare relay too")
    parser.add_argument("--keep", action="store_true", help="a dated copy of rows and report in bench/results/")
    arguments = parser.parse_args()
    names = arguments.scenarios.split(",")
    if unknown := set(names) - set(SCENARIOS):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")

    OUT.mkdir(exist_ok=True)
    os.sched_setaffinity(0, {LOAD_CORE})
    port = free_port()
    chosen = [targets.direct(port)]
    if arguments.floors:
        chosen += targets.floors(port)
    if arguments.groundwire:
        chosen += targets.groundwire(arguments.groundwire, port)
    if arguments.litellm:
        chosen += targets.litellm(arguments.litellm, port)
    rows = run(chosen, names, port, arguments.rounds, arguments.seconds)
    text = report(rows)
    (OUT / "report.md").write_text(text + "\n")
    print(f"\n{text}\n\n{wanted.table(rows)}\n\n(rows and report: {_shown(OUT)})")
    if arguments.keep:
        print(f"(kept: {_shown(wanted.keep(rows, wanted.versions(arguments.litellm), text))})")


def run(chosen: list[Target], names: list[str], port: int, rounds: int, seconds: float) -> list[Row]:
    """Round after round over all targets, so that what else the machine does meets all of them."""
    upstream = f"http://127.0.0.1:{port}"
    rows: list[Row] = []
    with (
        running([str(HERE / "fake"), str(port)], f"{upstream}/health", LOAD_CORE, OUT / "fake.log"),
        (OUT / "rows.jsonl").open("w") as store,
    ):
        for number in range(rounds):
            for target in chosen:
                for row in rounds_of(target, names, upstream, seconds):
                    row |= {"target": target.name, "round": number}
                    rows.append(row)
                    store.write(json.dumps(row) + "\n")
                    store.flush()
                    show(row)
    return rows


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


if __name__ == "__main__":
    main()
