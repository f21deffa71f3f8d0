"""A real Groundwire for a test, in a process of its own: a server on a free port, or one command of the console script.
A server that writes a traceback or the like into its log, or a key of its config, fails the test, whatever it had
answered: at the test's end where several tests share the server (see e2e/conftest.py), and once more when it is closed.
So that nothing is missed it logs at the level `debug`, unless the test says otherwise.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, ClassVar, Self
from urllib.parse import urlsplit

import yaml

from tests.fakes.preloaded import PRELOADED, ServerProcess

SCRIPT = Path(sys.executable).with_name("groundwire")
# What a defect of ours leaves in the log even where the client got its answer: a traceback, the stack of a provider
# that raised, and what asyncio and aiohttp say of things that nobody looked after.
FAULTS = re.compile(r'Traceback|^  File "|was never (?:awaited|retrieved)|destroyed but it is pending|Unclosed ', re.M)

# What is left open at the end is an error: uvloop then waits for it for ever, and the test sees a process that hangs.
STRICT = {"PYTHONWARNINGS": "error::ResourceWarning"}

SECRET = re.compile(r"key|keys|hash|.*password|.*token|.*secret", re.I)
SHORTEST_SECRET = 8


def environment(env: Mapping[str, str] | None) -> dict[str, str]:
    kept = os.environ["XDG_CACHE_HOME"]  # the tests' own: see conftest.py
    return {"PATH": os.environ["PATH"], "PYTHONUTF8": "1", "XDG_CACHE_HOME": kept, **(env or {})}


def groundwire(
    folder: Path, *arguments: str, code: int = 0, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """One command, run in `folder`, with nothing of the environment but what the test says."""
    command = [str(SCRIPT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=folder, env=environment(env))
    assert "Traceback" not in done.stderr
    assert done.returncode == code, done.stdout + done.stderr
    return done


def config_file(folder: Path, config: Mapping[str, Any] | str) -> str:
    path = folder / "config.yaml"
    path.write_text(config if isinstance(config, str) else yaml.safe_dump(dict(config)))
    return str(path)


def gone() -> dict[str, Any]:
    """An upstream at an address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return {"name": "gone", "base_url": f"http://127.0.0.1:{unused.getsockname()[1]}/v1"}


def secrets_in(config: Any, named: bool = False) -> Iterator[str]:
    """The texts under names that say so, and passwords inside URLs; told without the code that is under test."""
    if isinstance(config, Mapping):
        for name, value in config.items():
            yield from secrets_in(value, bool(SECRET.fullmatch(str(name))) or str(name).endswith("api_key"))
    elif isinstance(config, list):
        for item in config:
            yield from secrets_in(item, named)
    elif isinstance(config, str):
        if named and config != "passthrough":
            yield config
        if "://" in config and (password := urlsplit(config).password):
            yield password


class Groundwire:
    """`with Groundwire(config) as proxy: proxy.url …`. `config` is what config.yaml would hold. `faulty` says that the
    test provokes a traceback; then one must be there. `script` starts the console script, where a process that has
    everything imported will not do (see preloaded.py)."""

    running: ClassVar[list[Groundwire]] = []

    def __init__(
        self,
        config: Mapping[str, Any],
        env: Mapping[str, str] | None = None,
        *,
        faulty: bool = False,
        script: bool = False,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="groundwire-test-")
        path = Path(self._folder.name) / "config.yaml"
        log = {"level": "debug", **config.get("log", {})}
        path.write_text(yaml.safe_dump({**config, "log": log}), encoding="utf-8")
        self._secrets = {*secrets_in(config), *(env or {}).get("GROUNDWIRE_KEYS", "").split(",")}
        self._command = [str(SCRIPT), "serve", "--config", str(path), "--port", "0"]
        self._script = script
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "TMPDIR", "XDG_CACHE_HOME")}
        self._env = {**kept, **(env or {})}
        self.url = ""
        self.process: subprocess.Popen[str] | ServerProcess | None = None
        self.log = Path(self._folder.name) / "log"
        self._faulty = faulty
        self._checked = 0  # as far as this, the log was looked through

    def __enter__(self) -> Self:
        with self.log.open("w") as log:
            self.process = self._start(log)
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            if "listening on" in line:
                self.url = line.split()[-1] + "/v1"
                self.running.append(self)
                return self
        raise AssertionError(f"groundwire did not start: {said} {self.log.read_text()}")

    def _start(self, log: IO[str]) -> subprocess.Popen[str] | ServerProcess:
        folder = self._folder.name
        if not self._script:
            return PRELOADED.start(self._command[1:], self._env, folder, log)
        return subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log, env=self._env, text=True, cwd=folder)

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        self.running.remove(self)
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)
        self.process.stdout.close()
        try:
            self.check_log()
            log = self.log.read_text(errors="replace")
            assert not self._faulty or FAULTS.search(log), f"a traceback was expected in the log:\n{log}"
        finally:
            self._folder.cleanup()

    def check_log(self) -> None:
        """What was written since the last time holds no fault, unless the test provokes one."""
        log = self.log.read_text(errors="replace")
        new, self._checked = log[self._checked :], len(log)
        assert self._faulty or not FAULTS.search(new), f"groundwire wrote into its log:\n{new}"
        shown = [secret for secret in self._secrets if len(secret) >= SHORTEST_SECRET and secret.strip() in new]
        assert not shown, f"groundwire wrote {shown} into its log:\n{new}"

    def logged(self, words: str) -> str:
        """The first line of the log that holds these words. It may be written a moment after the answer is sent."""
        end = time.monotonic() + 10
        while time.monotonic() < end:
            for line in self.log.read_text(errors="replace").splitlines():
                if words in line:
                    return line
            time.sleep(0.02)
        raise AssertionError(f"not in the log: {words}\n{self.log.read_text(errors='replace')}")

    def ended_log(self) -> str:
        """What it wrote, all of it: it is told to stop, and has."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(20)
        return self.log.read_text(encoding="utf-8")

    @property
    def root(self) -> str:
        return self.url.removesuffix("/v1")
