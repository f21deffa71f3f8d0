"""The door: the listening socket, and everybody who comes through it. Handed the socket; hands each new connection to
`opened`, or turns it away with a word where there is no place or no descriptor left.

Accepting is done here and not by the event loop: libuv accepts one connection per turn, and under load a turn takes
long. New clients would wait for as many turns as there are clients before them.

Where several workers have the same socket, a connection is for the one that holds the fewest: whoever holds more lets
the others go first for a moment. Without that one of them would take whole batches, and keep them for as long as
clients keep their connections.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from .heads import too_many_connections
from .open_connections import OpenConnections, Place, address_of
from .refusal import plain_refusal

log = logging.getLogger("groundwire")

AT_ONCE = 64  # connections that are accepted before everybody else has a turn
_FIRST_READ = 16 * 1024
_BACKLOG = 2048
_MOST_DESCRIPTORS = 65_536  # more than one process can serve; some systems allow a billion
_SAY_EVERY = 10.0
_ASIDE = 0.005  # for how long another worker is let go first
_REST = 0.1  # how long nobody is accepted where not even a reserve is left
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_UNSENT_IN_KERNEL = 64 * 1024

Opened = Callable[[socket.socket, str, bytes, bool], None]


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    listener.setblocking(False)
    with suppress(AttributeError, OSError):  # connections inherit it: the kernel takes no megabytes for a slow reader
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_IN_KERNEL)
    return listener


def take_descriptors() -> int:
    """As many as the system lets us have, like other servers do: what a shell sets is for small programs."""
    given, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if most == resource.RLIM_INFINITY else min(most, _MOST_DESCRIPTORS)
    if given != resource.RLIM_INFINITY and given < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
            return wanted
    return wanted if given == resource.RLIM_INFINITY else given


class Listener:
    """`opened` is handed a socket, whom it counts for, what it has sent so far, and whether it is a spare one."""

    def __init__(
        self,
        listening: socket.socket,
        connections: OpenConnections,
        opened: Opened,
        *,
        is_next: Callable[[], bool] | None = None,
    ) -> None:
        """`is_next`: of several workers, whether the next connection is for this one."""
        self._is_next = is_next
        self._socket = listening
        self._connections = connections
        self._opened = opened
        self._reserve = _spare_descriptor()
        self._refusal = plain_refusal(too_many_connections())
        self._loop = asyncio.get_running_loop()
        self._open = False
        self._said, self._said_at = 0, float("-inf")

    def open(self) -> None:
        self._open = True
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            if self._reserve is not None:
                os.close(self._reserve)

    def _accept(self, *, whoever_is_next: bool = False) -> None:
        for _ in range(AT_ONCE):
            if self._is_next is not None and not whoever_is_next and not self._is_next():
                self._step_aside()
                return
            try:
                client, (peer, *_) = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _SHORTAGES:
                    continue  # it was gone before we came
                if not self._accept_with_reserve():
                    return
            else:
                self._let_in(client, address_of(peer))

    def _step_aside(self) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self._loop.call_later(_ASIDE, self._come_back)

    def _come_back(self) -> None:
        """Those that still wait are taken: whose they are is busy, or gone."""
        if self._open:
            self.open()
            self._accept(whoever_is_next=True)

    def _let_in(self, client: socket.socket, address: str) -> None:
        place = self._connections.place_for(address)
        if place is Place.NO:
            self._turn_away(client, "no place was left; see server.max_connections and max_pending_per_address")
            return
        client.setblocking(False)
        try:
            first = client.recv(_FIRST_READ)
        except BlockingIOError:
            first = b""
        except OSError:
            client.close()
            return
        else:
            if not first:  # it only looked whether somebody is here
                client.close()
                return
        self._opened(client, address, first, place is Place.SPARE)

    def _accept_with_reserve(self) -> bool:
        """No descriptor is left for a client. The reserve is enough to tell one so; without it the kernel would report
        the same client again and again."""
        if self._reserve is not None:
            os.close(self._reserve)
        with suppress(OSError):
            self._turn_away(self._socket.accept()[0], "no file descriptors are left; raise `ulimit -n`")
        self._reserve = _spare_descriptor()
        if self._reserve is None:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.call_later(_REST, self._again)
        return self._reserve is not None

    def _again(self) -> None:
        if self._open:
            self._reserve = _spare_descriptor()
            self.open()

    def _turn_away(self, client: socket.socket, reason: str) -> None:
        with client, suppress(OSError):
            client.setblocking(False)
            client.send(self._refusal)
            client.shutdown(socket.SHUT_WR)
            client.recv(_FIRST_READ)  # what is left unread would reset the connection, and take our words with it
        self._connections.turned_away += 1
        now = time.monotonic()
        if now - self._said_at >= _SAY_EVERY:
            log.warning("turned away %d connections: %s", self._connections.turned_away - self._said, reason)
            self._said, self._said_at = self._connections.turned_away, now


def _spare_descriptor() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return None
