"""What the loads and the soak stand on: a Groundwire on a core of its own, the fake model behind it, the load generator
before it, and somebody who asks on new connections how it is. Handed the console script and a folder for configs and
logs.
"""

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from measure import CORES, HERE, LOAD_CORE, TARGET_CORE, get, spawn, usage
from redis import Redis
from run import await_health, free_port, stop

KEY, OTHER_KEY = ("sk-" + secrets.token_hex(24) for _ in range(2))
PATH = "/v1/chat/completions"
PLAIN, STREAM = HERE / "bodies" / "plain.json", HERE / "bodies" / "stream.json"


class Listening(Protocol):
    """Where load goes."""

    @property
    def port(self) -> int: ...


class Server:
    """One `groundwire serve`, on a core of its own, with two keys, the first of them an admin's."""

    def __init__(self, script: str, folder: Path, *, everywhere: bool = False, **config: Any) -> None:
        """`everywhere`: on all cores, with whoever else is there."""
        self._core = None if everywhere else TARGET_CORE
        self._script = script
        self._folder = folder
        self.port = free_port()
        self.root = f"http://127.0.0.1:{self.port}"
        keys = [{"name": "one", "key": KEY, "admin": True}, {"name": "two", "key": OTHER_KEY}]
        said = {"port": self.port, "keys": keys, **config.pop("server", {})}
        self._config = {**config, "server": said}

    def start(self) -> None:
        file = self._folder / f"{self.port}.yaml"
        file.write_text(json.dumps(self._config))
        command = [self._script, "serve", "--config", str(file)]
        self.process = spawn(command, self._core, self._folder / f"{self.port}.log", dict(os.environ))
        if not await_health(self.root + "/healthz", self.process):
            sys.exit(f"it did not start: {(self._folder / f'{self.port}.log').read_text()}")

    def stop(self) -> None:
        stop(self.process)

    @property
    def rss(self) -> float:
        return usage(self.process.pid).rss

    @property
    def cpu(self) -> float:
        return usage(self.process.pid).cpu

    @property
    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def metric(self, name: str) -> float:
        """The sum of its samples."""
        headers = {"Authorization": f"Bearer {KEY}"}
        with urllib.request.urlopen(
            urllib.request.Request(self.root + "/metrics", headers=headers), timeout=10
        ) as said:
            lines = said.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)

    @property
    def state(self) -> str:
        return f"{self.rss:.0f} MiB, {self.descriptors} descriptors, {self.metric('groundwire_streams'):.0f} streams"


class Upstream(NamedTuple):
    """The fake model itself."""

    port: int


class Bench:
    """The fake model with one Groundwire before it."""

    def __init__(self, script: str, folder: Path, short: bool) -> None:
        self._script, self._folder = script, folder
        self.short = short
        self._port = free_port()
        self.upstream = f"http://127.0.0.1:{self._port}"
        self.direct: Listening = Upstream(self._port)

    def seconds(self, wanted: float) -> float:
        return min(wanted, 6.0) if self.short else wanted

    def configure(self, **settings: int) -> None:
        usual = {"chunks": 200, "delay_us": 0, "rounds": 0, "search_us": 0, "batch": 1, "ttft_us": 0}
        get(f"{self.upstream}/config?" + "&".join(f"{name}={value}" for name, value in {**usual, **settings}.items()))

    def stats(self) -> dict[str, int]:
        return json.loads(get(f"{self.upstream}/stats"))  # type: ignore[no-any-return]

    def queues(self) -> tuple[int, int]:
        """Bytes in the kernel between the model's server and who asks it: not yet read, and not yet sent."""
        unread = unsent = 0
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, ours, theirs, _, queues, *_ = line.split()
            to_send, to_read = (int(size, 16) for size in queues.split(":"))
            if theirs.endswith(f":{self._port:04X}"):
                unread += to_read
            elif ours.endswith(f":{self._port:04X}"):
                unsent += to_send
        return unread, unsent

    @contextmanager
    def server(self, *, everywhere: bool = False, **config: Any) -> Iterator[Server]:
        core = None if everywhere else LOAD_CORE
        fake = spawn([str(HERE / "fake"), str(self._port)], core, self._folder / "fake.log")
        assert await_health(f"{self.upstream}/health", fake)
        server = Server(
            self._script,
            self._folder,
            everywhere=everywhere,
            **{
                "upstreams": [{"name": "fake", "base_url": f"{self.upstream}/v1"}],
                "providers": [{"name": "engine", "type": "searxng", "base_url": self.upstream}],
                **config,
            },
        )
        try:
            server.start()
            yield server
        finally:
            server.stop()
            stop(fake)


def load(
    server: Listening,
    connections: int,
    seconds: float,
    *,
    key: str = KEY,
    body: Path = PLAIN,
    warm: float = 1.0,
    heed: bool = True,
    expected: int = 0,
    arriving: float = 0.0,
    everywhere: bool = False,
) -> dict[str, Any]:
    """What bench/load saw after the first seconds. Who heeds stays away as long as it is told, as the SDKs do.
    `expected`: how many pieces of content a whole answer has; `arriving`: in how many seconds all connections come."""
    wanted = (server.port, PATH, connections, seconds + warm, body, expected)
    command = [str(HERE / "load"), *map(str, wanted)]
    environment = {**os.environ, "LOAD_HEED": str(int(heed)), "LOAD_WARM": str(warm)}
    if arriving:
        environment["LOAD_STAGGER_US"] = str(int(arriving / connections * 1e6))
    said = subprocess.run(
        [*command, f"Authorization: Bearer {key}"],
        capture_output=True,
        text=True,
        timeout=seconds + warm + 90,
        env=environment,
        preexec_fn=lambda: os.sched_setaffinity(0, CORES if everywhere else {LOAD_CORE}),
    )
    return json.loads(said.stdout)  # type: ignore[no-any-return]


@contextmanager
def redis_server() -> Iterator[str]:
    """The address of a Redis that has been in use: processes look more often at a secret that one of them just made."""
    port = free_port()
    command = ["redis-server", "--port", str(port), "--save", ""]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        time.sleep(1)
        Redis(port=port).set("gw:1:secret", secrets.token_bytes(32))
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait()


class NewConnections:
    """Asks /healthz now and then, each time on a new connection, and keeps the longest wait."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._ended = threading.Event()
        self.worst = 0.0
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> "NewConnections":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._ended.wait(0.1):
            began = time.perf_counter()
            with socket.create_connection(("127.0.0.1", self._server.port), 30) as line:
                line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                while line.recv(1000):
                    pass
            self.worst = max(self.worst, time.perf_counter() - began)
