"""A real Groundwire for a test: the console script in a process of its own, a server on a free port or one command."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import yaml

SCRIPT = Path(sys.executable).with_name("groundwire")


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
    """`with Groundwire(config) as proxy: proxy.url …`. `config` is what config.yaml would hold."""

    def __init__(self, config: Mapping[str, Any], env: Mapping[str, str] | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="groundwire-test-")
        path = Path(self._folder.name) / "config.yaml"
        path.write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
        self._command = [str(SCRIPT), "serve", "--config", str(path), "--port", "0"]
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "TMPDIR")}
        self._env = {**kept, **(env or {})}
        self.url = ""
        self.process: subprocess.Popen[str] | None = None
        self.log = Path(self._folder.name) / "log"

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
                return self
        raise AssertionError(f"groundwire did not start: {said} {self.log.read_text()}")

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)
        self.process.stdout.close()
        self._folder.cleanup()

    def ended_log(self) -> str:
        """What it wrote, all of it: it is told to stop, and has."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(20)
        return self.log.read_text(encoding="utf-8")

    @property
    def root(self) -> str:
        return self.url.removesuffix("/v1")
