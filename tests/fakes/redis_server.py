"""A real Redis for a test: the server in a process of its own on a free port, to be killed, frozen, started again."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from typing import Self

PROGRAM = shutil.which("redis-server")
MISSING = "no redis-server here; .ci/run installs Debian's"
PATIENCE = 10.0  # seconds that stores of tests wait: on a busy machine Redis may not answer within its usual one


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return int(unused.getsockname()[1])


class RedisServer:
    """`with RedisServer() as redis: redis.url …`. It keeps nothing on disk: who kills it empties it."""

    def __init__(self, *settings: str, password: str = "") -> None:
        self.port = free_port()
        self.url = f"redis://{f':{password}@' if password else ''}127.0.0.1:{self.port}/0"
        self._password = password
        self._settings = [*settings, *(("--requirepass", password) if password else ())]
        self._folder = tempfile.TemporaryDirectory(prefix="groundwire-redis-")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._folder.cleanup()

    def start(self) -> None:
        assert PROGRAM is not None
        command = [PROGRAM, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        command += ["--dir", self._folder.name, *self._settings]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(500):
            try:
                if self.ask("PING") == b"+PONG":
                    return
            except OSError:
                time.sleep(0.01)
        raise AssertionError("redis-server did not start")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None

    def freeze(self) -> None:
        """It takes connections and commands, and says nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def ask(self, *command: str | bytes) -> bytes:
        """The first line of the answer to a command, without the library that is under test."""
        with socket.create_connection(("127.0.0.1", self.port), 5) as connection, connection.makefile("rwb") as wire:
            if self._password:
                wire.write(f"AUTH {self._password}\r\n".encode())
            wire.write(f"*{len(command)}\r\n".encode())
            for part in command:
                data = part if isinstance(part, bytes) else part.encode()
                wire.write(b"$%d\r\n%s\r\n" % (len(data), data))
            wire.flush()
            if self._password:
                wire.readline()
            return bytes(wire.readline().rstrip())

    def names(self) -> list[str]:
        """All names that something is kept under."""
        with socket.create_connection(("127.0.0.1", self.port), 5) as connection, connection.makefile("rwb") as wire:
            wire.write(b"KEYS *\r\n")
            wire.flush()
            lines = [wire.readline().strip().decode() for _ in range(2 * int(wire.readline()[1:]))]
            return sorted(lines[1::2])  # each after its length

    def statistics(self, section: str) -> dict[str, str]:
        """What the server has counted since it began: `stats`, or `commandstats`."""
        with socket.create_connection(("127.0.0.1", self.port), 5) as connection, connection.makefile("rwb") as wire:
            wire.write(f"INFO {section}\r\n".encode())
            wire.flush()
            lines = wire.read(int(wire.readline()[1:])).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)
