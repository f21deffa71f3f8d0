"""A real Groundwire for a test: the console script in a process of its own, a server on a free port or one command.
A server that writes a traceback or the like into its log fails the test, whatever it had answered: at the test's end
where several tests share the server (see e2e/conftest.py), and once more when it is closed.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import yaml

SCRIPT = Path(sys.executable).with_name("groundwire")
# What a defect of ours leaves in the log even where the client got its answer: a traceback, the stack of a provider
# that raised, and what asyncio and aiohttp say of things that nobody looked after.
FAULTS = re.compile(r'Traceback|^  File "|was never (?:awaited|retrieved)|destroyed but it is pending|Unclosed ', re.M)


def environment(env: Mapping[str, str] | None) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONUTF8": "1", **(env or {})}


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


class Groundwire:
    """`with Groundwire(config) as proxy: proxy.url …`. `config` is what config.yaml would hold. `faulty` says that the
    test provokes a traceback; then one must be there."""

    running: ClassVar[list[Groundwire]] = []

    def __init__(
        self, config: Mapping[str, Any], env: Mapping[str, str] | None = None, *, faulty: bool = False
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="groundwire-test-")
        path = Path(self._folder.name) / "config.yaml"
        path.write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
        self._command = [str(SCRIPT), "serve", "--config", str(path), "--port", "0"]
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "TMPDIR")}
        self._env = {**kept, **(env or {})}
        self.url = ""
        self.process: subprocess.Popen[str] | None = None
        self.log = Path(self._folder.name) / "log"
        self._faulty = faulty
        self._checked = 0  # as far as this, the log was looked through

    def __enter__(self) -> Self:
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, env=self._env, text=True, cwd=self._folder.name
            )
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            if "listening on" in line:
                self.url = line.split()[-1] + "/v1"
                self.running.append(self)
                return self
        raise AssertionError(f"groundwire did not start: {said} {self.log.read_text()}")

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
