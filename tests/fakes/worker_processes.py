"""The workers of a running Groundwire, as the system sees them: their processes, and clients each of whose connections
is held by a worker that the test knows. Linux only, as are the tests that use it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.fakes.groundwire import Groundwire
from tests.fakes.log_lines import eventually
from tests.fakes.samples import Samples

_SOCKET = re.compile(r"socket:\[(\d+)\]")


def workers_of(proxy: Groundwire) -> list[int]:
    """Their process ids."""
    assert proxy.process is not None
    parent = proxy.process.pid
    return sorted(map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split()))


def is_there(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


class Client(httpx.Client):
    """A client with one connection, which it keeps."""

    def __init__(self, proxy: Groundwire, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(base_url=proxy.root, headers=headers, timeout=30)
        self._proxy = proxy
        self.worker = 0

    def find_worker(self) -> int:
        """Which process holds its connection."""
        answer = self.get("/healthz")
        stream = answer.extensions["network_stream"]
        (_, ours), (_, theirs) = stream.get_extra_info("client_addr"), stream.get_extra_info("server_addr")
        inode = _inode(theirs, ours)
        self.worker = next((pid for pid in workers_of(self._proxy) if inode in _sockets(pid)), 0)
        return self.worker

    def chat(self, headers: Mapping[str, str] | None = None, **fields: Any) -> httpx.Response:
        body = {"model": "m", "messages": [{"role": "user", "content": "Why?"}], **fields}
        return self.post("/v1/chat/completions", json=body, headers=headers)

    def samples(self) -> Samples:
        return Samples(self.get("/metrics").content)


@contextmanager
def one_at_each(proxy: Groundwire, headers: Mapping[str, str] | None = None) -> Iterator[list[Client]]:
    """A client at each worker. Connections go to who holds the fewest, but on a busy machine not always at once."""
    with ExitStack() as stack:
        found: dict[int, Client] = {}

        def all_found() -> bool:
            client = stack.enter_context(Client(proxy, headers))
            found.setdefault(client.find_worker(), client)
            return len(found.keys() & set(workers_of(proxy))) == len(workers_of(proxy)) > 1

        eventually(all_found)
        yield [found[pid] for pid in workers_of(proxy)]


_ESTABLISHED = "01"


def _inode(server: int, client: int) -> str:
    """Of the server's end of the connection between these ports. A client's port alone would not do: to another server
    the same one may be in use, or have been a minute ago."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *rest = line.split()
        if local.endswith(f":{server:04X}") and remote.endswith(f":{client:04X}") and state == _ESTABLISHED:
            return rest[5]
    return ""


def _sockets(pid: int) -> set[str]:
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            match = _SOCKET.match(os.readlink(fd))
        except OSError:
            continue
        if match:
            found.add(match[1])
    return found
