"""The measuring bench: one fake upstream, every target started afresh in every round, all figures in one report.

Handed the number of rounds and, for a comparison, the path of LiteLLM's console script; writes rows and the report
to bench/out/. Linux only: it reads /proc and pins the target to one core and everything else to another.
"""

import argparse
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from measure import HERE, LOAD_CORE, SCENARIOS, TARGET_CORE, Row, Scenario, get, measure, spawn, usage
from report import DIRECT, OURS, report

OUT = HERE / "out"
START_LIMIT = 180.0
KEY = "sk-" + secrets.token_hex(32)  # every proxy checks a key, as it would in use; LiteLLM does not start without
SEARCHED = [name for name, scenario in SCENARIOS.items() if scenario.searched]
PLAIN = [name for name in SCENARIOS if name not in SEARCHED]


@dataclass(frozen=True)
class Target:
    """Something that answers chat completions; without a command it is the upstream itself."""

    name: str
    port: int
    command: list[str] = field(default_factory=list)
    health: str = ""
    scenarios: list[str] = field(default_factory=lambda: list(SCENARIOS))
    tool_body: str = ""

    def body(self, scenario: Scenario) -> Path:
        prefix = self.tool_body if scenario.searched else ""
        if prefix:
            return HERE / "bodies" / (f"{prefix}_stream.json" if scenario.streamed else f"{prefix}.json")
        return HERE / "bodies" / ("stream.json" if scenario.streamed else "plain.json")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def write(name: str, settings: object) -> str:
    """JSON is YAML too."""
    path = OUT / name
    path.write_text(json.dumps(settings, indent=2))
    return str(path)


def groundwire(script: str, upstream: str) -> Target:
    settings = {
        "upstreams": [{"name": "fake", "type": "openai", "base_url": f"{upstream}/v1", "models": ["*"]}],
        "providers": [{"name": "fake", "type": "searxng", "base_url": upstream}],
        "tools": {"search": ["fake"]},
    }
    port = free_port()
    command = [script, "serve", "--config", write("groundwire.yaml", settings), "--port", str(port)]
    return Target(OURS, port, command, "/healthz")


def litellm(script: str, upstream: str) -> list[Target]:
    """Twice: as a plain proxy, and with its own search interception, which makes every request dearer."""
    parameters = {"model": "openai/fake-model", "api_base": f"{upstream}/v1", "api_key": "sk-fake"}
    plain = {
        "model_list": [{"model_name": "fake-model", "litellm_params": parameters}],
        "litellm_settings": {"telemetry": False, "num_retries": 0},
    }
    search = {"search_provider": "searxng", "api_base": upstream}
    searching = {
        **plain,
        "search_tools": [{"search_tool_name": "fake", "litellm_params": search}],
        "litellm_settings": {
            **plain["litellm_settings"],  # type: ignore[dict-item]
            "callbacks": ["websearch_interception"],
            "websearch_interception_params": {"enabled_providers": ["openai"], "search_tool_name": "fake"},
        },
    }
    targets = []
    for name, settings, scenarios in (("litellm", plain, PLAIN), ("litellm-search", searching, SEARCHED)):
        port = free_port()
        command = [script, "--config", write(f"{name}.yaml", settings), "--port", str(port), "--host", "127.0.0.1"]
        targets.append(Target(name, port, command, "/health/liveliness", scenarios, "litellm_tool"))
    return targets


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
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each run")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help="comma-separated (default: %(default)s)")
    arguments = parser.parse_args()
    wanted = arguments.scenarios.split(",")
    if unknown := set(wanted) - set(SCENARIOS):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")

    OUT.mkdir(exist_ok=True)
    os.sched_setaffinity(0, {LOAD_CORE})
    port = free_port()
    upstream = f"http://127.0.0.1:{port}"
    targets = [Target(DIRECT, port)]
    if arguments.groundwire:
        targets.append(groundwire(arguments.groundwire, upstream))
    if arguments.litellm:
        targets += litellm(arguments.litellm, upstream)

    rows: list[Row] = []
    with (
        running([str(HERE / "fake"), str(port)], f"{upstream}/health", LOAD_CORE, OUT / "fake.log"),
        (OUT / "rows.jsonl").open("w") as store,
    ):
        for number in range(arguments.rounds):
            for target in targets:
                for row in rounds_of(target, wanted, upstream, arguments.seconds):
                    row |= {"target": target.name, "round": number}
                    rows.append(row)
                    store.write(json.dumps(row) + "\n")
                    store.flush()
                    show(row)
    text = report(rows)
    (OUT / "report.md").write_text(text + "\n")
    print(f"\n{text}\n\n(rows and report: {OUT.relative_to(Path.cwd()) if OUT.is_relative_to(Path.cwd()) else OUT})")


if __name__ == "__main__":
    main()
