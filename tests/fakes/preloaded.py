"""A process that has Groundwire imported and makes servers of itself, each by a fork: importing takes longer than most
tests. Handed the arguments of the console script, an environment, a folder and where to write; hands on a process that
is waited for and signalled like one of `subprocess`. The servers run the very code that the console script runs; tests
of the start itself use that (`Groundwire(..., script=True)`).

Run as a script this file is that process: it reads orders from the socket that it was given as standard input.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait  # select() ends at 1,024 descriptors, which many tests together hold
from pathlib import Path
from typing import IO

_MOST = 1 << 20  # of an order in bytes: a config is handed over as a file


class ServerProcess:
    """What tests use of `subprocess.Popen`."""

    def __init__(self, pid: int, stdout: IO[str], ended: int) -> None:
        self.pid = pid
        self.stdout: IO[str] = stdout
        self.returncode: int | None = None
        self._ended = ended  # a pipe on which the exit code comes

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not wait([self._ended], timeout):
                raise subprocess.TimeoutExpired("groundwire", timeout or 0)
            self.returncode = int(os.read(self._ended, 16) or b"-9")
            os.close(self._ended)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Preloaded:
    """The process, one for each process of pytest, started when it is first needed."""

    def __init__(self) -> None:
        self._orders: socket.socket | None = None

    def start(self, arguments: Sequence[str], env: Mapping[str, str], folder: str, log: IO[str]) -> ServerProcess:
        said, says = os.pipe()
        ended, ends = os.pipe()
        order = json.dumps({"arguments": list(arguments), "env": dict(env), "folder": folder}).encode()
        orders = self._connection()
        socket.send_fds(orders, [order], [says, log.fileno(), ends])
        os.close(says)
        os.close(ends)
        return ServerProcess(int(orders.recv(16)), os.fdopen(said), ended)

    def _connection(self) -> socket.socket:
        if self._orders is None:
            self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._orders.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST)
            kept = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "TMPDIR")}
            # What a server leaves open at its end is an error: see STRICT in groundwire.py.
            command = [sys.executable, "-W", "error::ResourceWarning", str(Path(__file__))]
            process = subprocess.Popen(command, stdin=theirs, env=kept)
            theirs.close()
            atexit.register(self._end, self._orders, process)
        return self._orders

    def _end(self, orders: socket.socket, process: subprocess.Popen[bytes]) -> None:
        orders.close()
        process.wait(10)


PRELOADED = _Preloaded()


def _take_orders(orders: socket.socket) -> Sequence[str]:
    """Returns in a server that is to run, with its arguments; in the process itself, when there is nobody to serve."""
    while True:
        order, given, _, _ = socket.recv_fds(orders, _MOST, 3)
        if not order:
            sys.exit()
        stdout, stderr, ends = given
        pids, tells_pid = os.pipe()
        if os.fork() == 0:  # who waits for the server, as its parent must
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            server = os.fork()
            if server == 0:
                for fd in (pids, tells_pid, ends):
                    os.close(fd)
                orders.close()
                return _become_server(json.loads(order), stdout, stderr)
            os.write(tells_pid, b"%d" % server)
            os.close(tells_pid)
            _, status = os.waitpid(server, 0)
            os.write(ends, b"%d" % os.waitstatus_to_exitcode(status))
            os._exit(0)
        for fd in (tells_pid, stdout, stderr, ends):
            os.close(fd)
        orders.send(os.read(pids, 16))
        os.close(pids)


def _become_server(order: Mapping[str, object], stdout: int, stderr: int) -> Sequence[str]:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for fd, place in ((nothing, 0), (stdout, 1), (stderr, 2)):
        os.dup2(fd, place)
        os.close(fd)
    folder, env, arguments = order["folder"], order["env"], order["arguments"]
    assert isinstance(folder, str)
    assert isinstance(env, dict)
    assert isinstance(arguments, list)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    return arguments


def _main() -> None:
    sys.path.pop(0)  # the folder of this file: nothing of it is Groundwire's
    importlib.import_module("proxy.serving.process")  # and with it all that a server needs
    from proxy.cli.main import main

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody here asks how they ended
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest
    arguments = _take_orders(socket.socket(fileno=0))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["groundwire", *arguments]
    sys.exit(main())


if __name__ == "__main__":
    _main()
