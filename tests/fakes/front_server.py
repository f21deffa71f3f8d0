"""A web server in front of Groundwire: nginx or Caddy, in a process of its own. Handed a command, a folder and the port
that it will listen on; hands on when it takes connections.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

PATIENCE = 20.0


class FrontServer:
    """`with FrontServer(["nginx", …], folder, port): …`. What it says goes to `folder/front.log`."""

    def __init__(self, command: Sequence[str], folder: Path, port: int) -> None:
        self._command = list(command)
        self._log = folder / "front.log"
        self._home = folder
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        env = {"PATH": "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin", "HOME": str(self._home)}
        with self._log.open("w") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=env, cwd=self._home)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
                return self
            except OSError:
                time.sleep(0.02)
        self.__exit__()
        raise AssertionError(f"{self._command[0]} did not start:\n{self._log.read_text()}")

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(20)
