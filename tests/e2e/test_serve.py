"""How a running Groundwire leaves, and what it leaves behind: signals with answers under way, clients that hang up, and
the key that it makes for itself.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import yaml

from tests.fakes.egress import Authority
from tests.fakes.groundwire import SCRIPT, STRICT, Groundwire
from tests.fakes.model import ModelServer, Turn, call, text
from tests.fakes.tls_peer import Behaviour, TlsPeer
from tests.unit.test_supply_chain import health_check, option

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Why is the sky blue?"}]}
AT_ONCE = 5.0  # seconds; a process that waits for its streams would take the 30 of the drain
ENDLESS = text("word ", "word ", end="hang", finish=None, usage=None)
LANES = pytest.mark.parametrize("search", ["on", "off"])


@pytest.fixture
def proxy(config: dict[str, Any]) -> Iterator[Groundwire]:
    """Each test ends its own."""
    with Groundwire(config, script=True) as running:
        yield running


@contextmanager
def streaming(proxy: Groundwire, search: str = "on") -> Iterator[Iterator[str]]:
    """The lines of a streamed answer, of which the first word has come."""
    sent = {**CHAT, "stream": True}
    headers = {"x-groundwire-search": search}
    with httpx.stream("POST", f"{proxy.url}/chat/completions", json=sent, headers=headers, timeout=30) as answer:
        lines = answer.iter_lines()
        for line in lines:
            if "word" in line:
                break
        yield lines


def send(proxy: Groundwire, signum: int) -> None:
    assert proxy.process is not None
    proxy.process.send_signal(signum)


def exit_code(proxy: Groundwire, timeout: float = AT_ONCE) -> int:
    assert proxy.process is not None
    return proxy.process.wait(timeout)


def errors_in(lines: list[str]) -> list[dict[str, Any]]:
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    return [event["error"] for event in events if "error" in event]


def wait_until_refused(proxy: Groundwire) -> None:
    end = time.monotonic() + AT_ONCE
    while time.monotonic() < end:
        try:
            httpx.get(f"{proxy.root}/readyz", timeout=5)
        except httpx.ConnectError:
            return
        except httpx.TransportError:  # it was in the queue as the listener closed
            continue
        time.sleep(0.02)
    raise AssertionError("the listener is still open")


def assert_clean(proxy: Groundwire) -> None:
    log = proxy.log.read_text()
    assert "Traceback" not in log
    assert "Exception" not in log


# Ctrl-C


@LANES
def test_ctrl_c_ends_a_stream_with_a_word(proxy: Groundwire, model: ModelServer, search: str) -> None:
    model.script(ENDLESS)
    with streaming(proxy, search) as lines:
        send(proxy, signal.SIGINT)
        rest = list(lines)
    (error,) = errors_in(rest)
    assert error["code"] == "shutting_down"
    assert not any("[DONE]" in line for line in rest)
    assert exit_code(proxy) == 0
    assert model.left.wait(AT_ONCE)
    assert_clean(proxy)


@LANES
def test_ctrl_c_before_anything_was_sent(proxy: Groundwire, model: ModelServer, search: str) -> None:
    model.script(text("late", delay=30.0))
    with ThreadPoolExecutor(1) as thread:
        headers = {"x-groundwire-search": search}
        waiting = thread.submit(httpx.post, f"{proxy.url}/chat/completions", json=CHAT, headers=headers, timeout=30)
        while not model.requests:
            time.sleep(0.02)
        send(proxy, signal.SIGINT)
        answer = waiting.result(AT_ONCE)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "shutting_down"
    assert exit_code(proxy) == 0
    assert_clean(proxy)


@LANES
def test_ctrl_c_is_not_held_up_by_a_client_that_does_not_read(
    proxy: Groundwire, model: ModelServer, search: str
) -> None:
    model.script(text("word ", *["x" * 100_000] * 300))
    with streaming(proxy, search):
        sent = -1
        while sent != model.sent_pieces:
            sent = model.sent_pieces
            time.sleep(0.2)
        assert sent < 300, "the stream is stuck, because nobody takes it"
        send(proxy, signal.SIGINT)
        assert exit_code(proxy) == 0
    assert_clean(proxy)


def test_ctrl_c_when_nothing_is_under_way(proxy: Groundwire) -> None:
    assert httpx.get(f"{proxy.root}/readyz").status_code == 200
    send(proxy, signal.SIGINT)
    assert exit_code(proxy) == 0
    assert_clean(proxy)


# SIGTERM


@LANES
def test_sigterm_lets_a_stream_finish(proxy: Groundwire, model: ModelServer, search: str) -> None:
    model.script(text(*["word "] * 60, delay=0.1))
    with streaming(proxy, search) as lines:
        send(proxy, signal.SIGTERM)
        wait_until_refused(proxy)
        assert proxy.process is not None
        assert proxy.process.poll() is None
        rest = list(lines)
    assert sum("word" in line for line in rest) == 59
    assert rest[-2:] == ["data: [DONE]", ""]
    assert exit_code(proxy) == 0
    assert_clean(proxy)


def test_sigterm_lets_the_rounds_run_to_their_end(proxy: Groundwire, model: ModelServer) -> None:
    searching = Turn(text=["word "], calls=[("c1", "web_search", {"query": "sky"})], delay=0.3)
    model.script(searching, call("web_search", {"query": "sea"}), text("The end [1].", delay=0.3))
    with streaming(proxy) as lines:
        send(proxy, signal.SIGTERM)
        rest = list(lines)
    assert any("The end [[1]]" in line for line in rest)
    assert rest[-2] == "data: [DONE]"
    assert exit_code(proxy) == 0
    assert_clean(proxy)


def test_sigterm_waits_as_long_as_it_was_told_to_whoever_is_there(config: dict[str, Any]) -> None:
    with Groundwire({**config, "server": {"lame_duck": 60}}) as proxy:
        send(proxy, signal.SIGTERM)
        end = time.monotonic() + AT_ONCE
        while httpx.get(f"{proxy.root}/readyz").status_code != 503:
            assert time.monotonic() < end
        answer = httpx.get(f"{proxy.root}/healthz")
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        send(proxy, signal.SIGTERM)
        assert exit_code(proxy) == 0
        assert_clean(proxy)


def test_sigterm_with_nobody_there_ends_at_once(config: dict[str, Any]) -> None:
    with Groundwire(config, script=True) as proxy:
        assert httpx.get(f"{proxy.root}/readyz").status_code == 200
        send(proxy, signal.SIGTERM)
        assert exit_code(proxy) == 0


# Clients that hang up


def sockets(proxy: Groundwire) -> int:
    assert proxy.process is not None
    folder = Path(f"/proc/{proxy.process.pid}/fd")
    return sum(os.readlink(link).startswith("socket:") for link in folder.iterdir())


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open sockets in /proc")
def test_clients_that_hang_up_leave_no_connection_behind(proxy: Groundwire, model: ModelServer) -> None:
    before = sockets(proxy)
    for search in ("on", "off") * 5:
        model.script(ENDLESS)
        with streaming(proxy, search):
            assert sockets(proxy) == before + 2, "the client's and the upstream's"
        assert model.left.wait(AT_ONCE)
        end = time.monotonic() + AT_ONCE
        while sockets(proxy) != before and time.monotonic() < end:
            time.sleep(0.02)
        assert sockets(proxy) == before
    assert_clean(proxy)


# A peer behind TLS that takes no part any more


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"))


BEHAVIOURS = pytest.mark.parametrize("behaviour", ["no handshake", "reads nothing", "floods"])


@BEHAVIOURS
@LANES
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_though_its_model_reads_nothing(
    authority: Authority, behaviour: Behaviour, search: str, signum: int
) -> None:
    with TlsPeer(authority.server("127.0.0.1"), behaviour) as peer:
        config = {
            "upstreams": [{"name": "model", "base_url": f"{peer.url}/v1", "models": ["m"]}],
            "network": {"ca_file": str(authority.file)},
            "server": {"drain_timeout": 0.3, "lame_duck": 0},
        }
        with Groundwire(config, STRICT, script=True) as proxy:
            with unread_answer(proxy, search):
                assert peer.reached.wait(20)
                send(proxy, signum)
                assert exit_code(proxy) == 0
            assert_clean(proxy)


@contextmanager
def unread_answer(proxy: Groundwire, search: str) -> Iterator[None]:
    """A large question is asked, and nothing is read of its answer."""
    message = {"role": "user", "content": "word " * 1_500_000}
    body = json.dumps({"model": "m", "messages": [message], "stream": True}).encode()
    parts = urlsplit(proxy.url)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {parts.netloc}\r\nX-Groundwire-Search: {search}\r\n"
    with socket.create_connection((parts.hostname, parts.port)) as client:
        client.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        yield


# The image's health check


def test_the_images_health_check_tells_a_server_that_answers_from_one_that_does_not(config: dict[str, Any]) -> None:
    def healthy(port: str) -> bool:
        program, *arguments = (word.replace(option("--port"), port) for word in health_check())
        here = Path(sys.executable).with_name(program)  # python or groundwire, as in the image
        return subprocess.run([here, *arguments], capture_output=True, timeout=60).returncode == 0

    with Groundwire(config, script=True) as proxy:
        port = proxy.root.rpartition(":")[2]
        assert healthy(port)
    assert not healthy(port)


# A key of its own


def launched(config: dict[str, Any], folder: Path, stack: ExitStack, **env: str) -> subprocess.Popen[str]:
    """A server that ends with the stack."""
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [str(SCRIPT), "serve", "--config", str(path), "--port", "0"]
    environ = {"PATH": os.environ["PATH"], **env}
    running = stack.enter_context(
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ)
    )
    stack.callback(running.terminate)
    return running


def until_listening(running: subprocess.Popen[str]) -> list[str]:
    assert running.stdout is not None
    said = []
    for line in running.stdout:
        said.append(line.strip())
        if "listening" in line:
            break
    return said


@contextmanager
def started(config: dict[str, Any], folder: Path, **env: str) -> Iterator[list[str]]:
    """What a Groundwire says until it listens."""
    with ExitStack() as stack:
        yield until_listening(launched(config, folder, stack, **env))


def refused(config: dict[str, Any], folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [str(SCRIPT), "serve", "--config", str(path), "--port", "0"]
    environ = {"PATH": os.environ["PATH"], **env}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_the_key_that_the_first_start_makes_is_kept(config: dict[str, Any], tmp_path: Path) -> None:
    """Printed once, and its path at every start."""
    file = tmp_path / "volume" / "client-key"
    file.parent.mkdir()
    with started(config, tmp_path, GROUNDWIRE_KEY_FILE=str(file)) as said:
        key, url = said[0].split()[-1], said[-1].split()[-1]
        assert len(key) >= 32
        assert said[1] == f"The client key is kept in {file}"
        assert httpx.get(f"{url}/v1/models").status_code == 401
        assert httpx.get(f"{url}/v1/models", headers={"authorization": f"Bearer {key}"}).status_code == 200
        assert httpx.get(f"{url}/healthz").status_code == 200
    assert file.read_text() == f"{key}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]
    file.chmod(0o640)  # as some orchestrators do when they mount a volume
    with started(config, tmp_path, GROUNDWIRE_KEY_FILE=str(file)) as said:
        path, listening = said
        assert path == f"The client key is kept in {file}"
        answer = httpx.get(f"{listening.split()[-1]}/v1/models", headers={"authorization": f"Bearer {key}"})
        assert answer.status_code == 200, "the same one at every start"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_servers_that_start_at_once_have_one_key(config: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "client-key"
    folders = [tmp_path / str(number) for number in range(6)]
    for folder in folders:
        folder.mkdir()
    with ExitStack() as stack:
        running = [launched(config, folder, stack, GROUNDWIRE_KEY_FILE=str(file)) for folder in folders]
        said = [until_listening(process) for process in running]
        made = [line.split()[-1] for lines in said for line in lines if "Clients need this one" in line]
        assert made == [file.read_text().strip()], "one of them made it"
        for lines in said:
            url = lines[-1].split()[-1]
            answer = httpx.get(f"{url}/v1/models", headers={"authorization": f"Bearer {made[0]}"})
            assert answer.status_code == 200
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["client-key"]


def _symlink(file: Path) -> None:
    target = file.with_name("elsewhere")
    target.write_text("gw-a-key-that-is-long-enough\n")
    file.symlink_to(target)


BAD_KEY_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda file: file.write_text(" \n"), "it is empty. Delete it"),
    "short": (lambda file: file.write_text("gw-short\n"), "it must hold one key of 16 to 512 printable characters"),
    "two": (lambda file: file.write_text("gw-one-of-them,gw-another\n"), "without spaces and commas"),
    "large": (lambda file: file.write_text("k" * 5000), "it must hold one key of 16 to 512"),
    "symbolic link": (_symlink, "it is a symbolic link"),
    "broken link": (lambda file: file.symlink_to(file.with_name("nowhere")), "it is a symbolic link"),
    "folder": (lambda file: file.mkdir(), "it is not a plain file"),
    "pipe": (lambda file: os.mkfifo(file), "it is not a plain file"),
    "no folder": (lambda file: file.parent.rmdir(), "it cannot be written (No such file or directory). Mount a volume"),
    "file as folder": (lambda file: (file.parent.rmdir(), file.parent.touch()), "it cannot be read (Not a directory)"),
}


@pytest.mark.parametrize("case", BAD_KEY_FILES)
def test_a_key_file_that_cannot_be_used_stops_the_start(config: dict[str, Any], tmp_path: Path, case: str) -> None:
    file = tmp_path / "volume" / "client-key"
    file.parent.mkdir()
    spoil, said = BAD_KEY_FILES[case]
    spoil(file)
    done = refused(config, tmp_path, GROUNDWIRE_KEY_FILE=str(file))
    assert f"The client key cannot be kept in {file}, which GROUNDWIRE_KEY_FILE names: " in done.stderr
    assert said in done.stderr


@pytest.mark.parametrize(("mode", "said"), [(0o000, "it cannot be read"), (None, "it cannot be written")])
def test_a_key_file_that_this_user_may_not_use(
    config: dict[str, Any], tmp_path: Path, mode: int | None, said: str
) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read and write everything")
    file = tmp_path / "volume" / "client-key"
    file.parent.mkdir()
    if mode is None:
        file.parent.chmod(0o500)
    else:
        file.write_text("gw-a-key-that-is-long-enough\n")
        file.chmod(mode)
    done = refused(config, tmp_path, GROUNDWIRE_KEY_FILE=str(file))
    assert f"{said} (Permission denied)" in done.stderr
    assert f"the user {os.geteuid()}" in done.stderr


def test_no_key_is_made_where_there_is_one(config: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "client-key"
    for server, env in (({"keys": ["gw-own"]}, {}), ({}, {"GROUNDWIRE_KEYS": "gw-own"})):
        with started({**config, "server": server}, tmp_path, GROUNDWIRE_KEY_FILE=str(file), **env) as said:
            (line,) = said
            assert not file.exists()
            url = line.split()[-1]
            assert httpx.get(f"{url}/v1/models", headers={"x-api-key": "gw-own"}).status_code == 200
