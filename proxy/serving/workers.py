"""The parent of several processes that serve on one socket. Handed the config, the socket and what a worker does;
starts the workers, starts another one where one has ended, passes signals on to them, and ends when all have.

It serves nobody itself, and has neither an event loop nor a thread: so it can be copied at any moment, and a worker is
a copy of it that has everything imported already. What it wants of a worker goes over a channel and not by signals,
which could come before they are understood; a worker whose channel is closed knows that its parent is gone.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import field
from enum import Enum
from typing import NamedTuple, NoReturn

from providers.records import dataclass

from ..config.settings import Config, ConfigError
from .reloading import Reread, is_terminal_closed, taken
from .worker_board import Board, BoardRow

log = logging.getLogger("groundwire")

READY = b"r"
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0  # seconds before one that has ended is replaced, doubled each time in a row
_LIVED = 30.0  # seconds after which its end is no longer one of a row
_GRACE = 10.0  # more than workers give themselves for ending
_HEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


class Order(Enum):
    """What a worker is told to do."""

    LEAVE = b"t"  # as by SIGTERM
    STOP = b"i"  # as by Ctrl-C
    RELOAD = b"h"


class Post(NamedTuple):
    """What a worker has besides what any server has: its channel to the parent, and its row of the board."""

    channel: socket.socket
    row: BoardRow


Work = Callable[[Config, Post], None]


@dataclass(slots=True)
class _Worker:
    pid: int
    channel: socket.socket
    began: float = field(default_factory=time.monotonic)
    starting: bool = True
    ready: bool = False

    def tell(self, order: Order) -> None:
        with suppress(OSError):  # it has ended, which we hear of elsewhere
            self.channel.send(order.value)


class Workers:
    """`run` returns the exit code in the parent; a worker leaves it by `SystemExit`, or by what went wrong."""

    def __init__(
        self, config: Config, number: int, listening: socket.socket, started: Callable[[], None], reread: Reread
    ) -> None:
        self._config = config
        self._number = number
        self._listening = listening
        self._started = started
        self._reread = reread
        self._board = Board(number)
        self._workers: dict[int, _Worker] = {}
        self._due: dict[int, float] = {}  # which are to be started, and when
        self._in_a_row = [0] * number
        self._first_alone = True  # until it serves: what is wrong with the config is said once
        self._leaving = self._has_started = False
        self._kill_at = float("inf")
        self._in_terminal = os.isatty(0)

    def run(self, work: Work) -> int:
        self._work = work
        self._signals, self._wake = socket.socketpair()
        with self._signals, self._wake:
            for end in (self._signals, self._wake):
                end.setblocking(False)
            signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
            for number in _HEARD:
                signal.signal(number, lambda *_: None)  # it is heard at the wakeup descriptor
            try:
                return self._run()
            finally:
                signal.set_wakeup_fd(-1)

    def _run(self) -> int:
        gc.collect()
        gc.freeze()  # no collection of a worker touches what it shares with us
        self._start(0)
        while self._workers or self._due:
            self._wait()
            for at in [number for number, due in self._due.items() if due <= time.monotonic()]:
                del self._due[at]
                self._start(at)
            code = self._bury()
            if code is not None:
                return code
            if time.monotonic() >= self._kill_at:
                self._kill()
        return 0

    # Waiting

    def _wait(self) -> None:
        wanted = min([self._kill_at, *self._due.values()], default=float("inf"))
        patience = None if wanted == float("inf") else max(0.0, wanted - time.monotonic())
        starting = {worker.channel: worker for worker in self._workers.values() if worker.starting}
        readable, _, _ = select.select([self._signals, *starting], [], [], patience)
        for channel in readable:
            if channel is self._signals:
                for number in dict.fromkeys(self._signals.recv(4096)):
                    self._hear(number)
            else:
                self._note_ready(starting[channel])

    def _note_ready(self, worker: _Worker) -> None:
        worker.starting = False
        worker.ready = worker.channel.recv(1) == READY  # else it ends, of which we hear by a signal
        if self._leaving or not worker.ready:
            return
        if self._first_alone:
            self._first_alone = False
            self._due = dict.fromkeys(range(1, self._number), 0.0)
        if not self._has_started and sum(other.ready for other in self._workers.values()) == self._number:
            self._has_started = True
            self._started()

    def _hear(self, number: int) -> None:
        if number == signal.SIGHUP and not (self._in_terminal and is_terminal_closed()):
            self._reload()
        elif number == signal.SIGINT:
            self._leave(Order.STOP, 0.0)
        elif number in (signal.SIGTERM, signal.SIGHUP):
            server = self._config.server
            self._leave(Order.LEAVE, server.drain_timeout + (server.lame_duck or 1.0))

    def _leave(self, order: Order, patience: float) -> None:
        if not self._leaving:
            self._leaving = True
            self._due.clear()
            self._listening.close()  # the workers still have it, for as long as they want
        self._kill_at = time.monotonic() + patience + _GRACE
        self._tell(order)

    def _reload(self) -> None:
        """Each worker reads it for itself, and says what it found. Those that come later begin with what we found."""
        with suppress(ConfigError):
            given = self._reread()
            if given is not None and (config := taken(self._config, given)) is not None:
                self._config = config
        self._tell(Order.RELOAD)

    def _tell(self, order: Order) -> None:
        for worker in self._workers.values():
            worker.tell(order)

    # Beginning and end of workers

    def _start(self, number: int) -> None:
        ours, theirs = socket.socketpair()
        signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)  # what comes for us must not be heard by the copy, nor lost
        pid = self._fork(number)
        if pid == 0:
            ours.close()
            self._become_worker(number, theirs)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
        theirs.close()
        if pid is None:
            ours.close()
        else:
            self._workers[number] = _Worker(pid, ours)

    def _fork(self, number: int) -> int | None:
        try:
            return os.fork()
        except OSError as error:
            if self._first_alone:
                raise
            log.error("worker %d cannot be started (%s); tried again in %g s", number + 1, error, LONGEST_PAUSE)
            self._due[number] = time.monotonic() + LONGEST_PAUSE
            return None

    def _become_worker(self, number: int, channel: socket.socket) -> NoReturn:
        signal.set_wakeup_fd(-1)
        for end in (self._signals, self._wake, *(worker.channel for worker in self._workers.values())):
            end.close()  # else nobody would hear of the parent's end
        for heard in _HEARD:
            signal.signal(heard, signal.SIG_DFL)
        for passed_on in (signal.SIGINT, signal.SIGHUP):  # a terminal sends them to all; we hear of them by our channel
            signal.signal(passed_on, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
        self._workers.clear()
        self._work(self._config, Post(channel, self._board.row(number)))
        raise SystemExit(0)

    def _bury(self) -> int | None:
        """Takes leave of those that have ended. An exit code, if all is over with that."""
        for number, worker in list(self._workers.items()):
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if not pid:
                continue
            del self._workers[number]
            worker.channel.close()
            self._board.clear(number)
            if self._leaving:
                continue
            code = os.waitstatus_to_exitcode(status)
            if not worker.ready and not any(other.ready for other in self._workers.values()):
                self._leave(Order.STOP, 0.0)  # it cannot be started, and nobody serves
                self._await_all()
                return code if code > 0 else 1
            self._replace(number, worker, code)
        return None

    def _replace(self, number: int, worker: _Worker, code: int) -> None:
        lived = time.monotonic() - worker.began
        self._in_a_row[number] = 0 if lived >= _LIVED else self._in_a_row[number] + 1
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** max(0, self._in_a_row[number] - 1))
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        log.warning("worker %d (process %d) %s; another one starts in %g s", number + 1, worker.pid, how, pause)
        self._due[number] = time.monotonic() + pause
        self._board.note_restart(number)

    def _kill(self) -> None:
        for number, worker in self._workers.items():
            log.error("worker %d (process %d) did not end in time and is killed", number + 1, worker.pid)
            os.kill(worker.pid, signal.SIGKILL)
        self._kill_at = float("inf")

    def _await_all(self) -> None:
        while self._workers:
            self._wait()
            self._bury()
            if time.monotonic() >= self._kill_at:
                self._kill()
