"""The door of a running Groundwire, over bare sockets where a well-behaved client could not knock: who may enter, what
is refused before any route sees it, and what never crosses from one side to the other.
"""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.fakes.bad_heads import CHUNKED
from tests.fakes.groundwire import SCRIPT, Groundwire
from tests.fakes.model import ModelServer, Turn, text
from tests.fakes.raw_client import connect, error_in, read_to_end, status_of

# One client, because reading the certificates anew for each request would take longer than the request.
CLIENT = httpx.Client(timeout=20, limits=httpx.Limits(max_keepalive_connections=0))
QUESTION = {"role": "user", "content": "Why is the sky blue?"}
CHAT = {"model": "m", "messages": [QUESTION]}
MAX_BODY = 64 * 1024
KEY, NAMED_KEY, OTHER_KEY, LAST_KEY = (f"gw-canary-{name}" for name in ("file", "named", "environment", "last"))
UPSTREAM_KEY = "sk-canary-upstream"


@pytest.fixture(scope="module")
def proxy(config: dict[str, Any]) -> Iterator[Groundwire]:
    """Without keys, and with a short patience."""
    server = {"max_body": MAX_BODY, "body_timeout": 0.5, "allowed_hosts": ["search.example"]}
    with Groundwire({**config, "server": server}) as running:
        yield running


@pytest.fixture(scope="module")
def locked(config: dict[str, Any]) -> Iterator[Groundwire]:
    changed = {
        **config,
        "server": {"keys": [KEY, {"key": NAMED_KEY, "name": "the office"}]},
        "upstreams": [{**config["upstreams"][0], "api_key": UPSTREAM_KEY}],
    }
    with Groundwire(changed, {"GROUNDWIRE_KEYS": f"{OTHER_KEY}, {LAST_KEY}"}) as running:
        yield running


def post(proxy: Groundwire, headers: Any = None, **fields: Any) -> httpx.Response:
    return CLIENT.post(f"{proxy.url}/chat/completions", json={**CHAT, **fields}, headers=headers)


def exchange(proxy: Groundwire, *lines: str, body: bytes = b"") -> tuple[int, bytes]:
    """Sends the lines as they are and reads until the server hangs up, or until it has been silent for long."""
    host, port = proxy.root.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        parts = []
        with suppress(ConnectionResetError):  # it hung up on what we were still sending
            while part := connection.recv(65536):
                parts.append(part)
    answer = b"".join(parts)
    return int(answer.split(b" ", 2)[1]), answer


def code_of(answer: httpx.Response | bytes) -> str:
    body = answer.partition(b"\r\n\r\n")[2] if isinstance(answer, bytes) else answer.content
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return str(error["code"])


# Keys


@pytest.mark.parametrize("key", [KEY, NAMED_KEY, OTHER_KEY, LAST_KEY])
@pytest.mark.parametrize(
    ("header", "form"),
    [
        ("Authorization", "Bearer {}"),
        ("authorization", "bearer {}"),
        ("x-api-key", "{}"),
        ("X-Groundwire-Key", "{}"),
    ],
)
def test_a_key_opens_by_any_of_its_headers(
    locked: Groundwire, model: ModelServer, key: str, header: str, form: str
) -> None:
    model.script(text("Hello."))
    assert post(locked, {header: form.format(key)}).status_code == 200
    assert CLIENT.get(f"{locked.url}/models", headers={header: form.format(key)}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer"},
        {"authorization": f"Bearer {KEY}x"},
        {"authorization": f"Bearer {KEY[:-1]}"},
        {"authorization": f"Basic {KEY}"},
        {"authorization": f"Bearer {UPSTREAM_KEY}"},
        {"x-api-key": "the office"},
        {"x-api-key": "\u00e9".encode("latin-1")},
        {"cookie": f"key={KEY}"},
    ],
)
def test_without_a_valid_key_nothing_opens(locked: Groundwire, model: ModelServer, headers: Any) -> None:
    model.script(text("Hello."))
    for answer in (
        post(locked, headers),
        CLIENT.get(f"{locked.url}/models", headers=headers),
        CLIENT.post(f"{locked.url}/embeddings", json={"model": "m"}, headers=headers),
        CLIENT.get(f"{locked.root}/elsewhere", headers=headers),
    ):
        assert answer.status_code == 401
        assert code_of(answer) == "invalid_api_key"
        assert answer.json()["error"]["type"] == "authentication_error"
        assert answer.headers["x-should-retry"] == "false"
    assert model.requests == []


def test_two_different_keys_are_refused_and_two_equal_ones_are_not(locked: Groundwire, model: ModelServer) -> None:
    model.script(text("Hello."))
    answer = post(locked, {"authorization": f"Bearer {KEY}", "x-api-key": OTHER_KEY})
    assert (answer.status_code, code_of(answer)) == (400, "ambiguous_key")
    wrong = post(
        locked, {"authorization": f"Bearer {KEY}", "x-groundwire-key": "wrong"}
    )  # where that is, it counts alone
    assert (wrong.status_code, code_of(wrong)) == (401, "invalid_api_key")
    twice = post(locked, [("x-api-key", KEY), ("x-api-key", "wrong")])
    assert (twice.status_code, code_of(twice)) == (400, "ambiguous_key")
    assert model.requests == []
    assert post(locked, {"authorization": f"Bearer {KEY}", "x-api-key": KEY}).status_code == 200


def test_health_needs_no_key(locked: Groundwire) -> None:
    for path in ("healthz", "readyz"):
        assert CLIENT.get(f"{locked.root}/{path}").json() == {"status": "ok"}


# Host


@pytest.mark.parametrize("host", ["localhost", "LocalHost.", "localhost:1", "127.0.0.1", "[::1]:80", "search.example"])
def test_hosts_that_are_served(proxy: Groundwire, host: str) -> None:
    assert CLIENT.get(f"{proxy.root}/healthz", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "xsearch.example", "a.search.example", "127.0.0.2", "localhost_x"],
)
def test_hosts_that_are_not(proxy: Groundwire, model: ModelServer, host: str) -> None:
    """A page of evil.example may point that name at 127.0.0.1; its browser still says whom it means."""
    model.script(text("Hello."))
    for answer in (CLIENT.get(f"{proxy.root}/healthz", headers={"host": host}), post(proxy, {"host": host})):
        assert answer.status_code == 403
        assert code_of(answer) == "host_not_allowed"
    assert model.requests == []


# Framing and form


@pytest.mark.parametrize(
    "kind",
    [
        None,
        "",
        "text/plain",
        "text/plain; application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ],
)
@pytest.mark.parametrize("path", ["chat/completions", "embeddings"])
def test_what_a_form_could_send_is_refused(proxy: Groundwire, model: ModelServer, kind: str | None, path: str) -> None:
    model.script(text("Hello."))
    headers = {} if kind is None else {"content-type": kind}
    answer = CLIENT.post(f"{proxy.url}/{path}", content=json.dumps(CHAT).encode(), headers=headers)
    assert answer.status_code == 415
    assert code_of(answer) == "unsupported_media_type"
    assert model.requests == []


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/vnd.api+json"])
def test_json_by_its_other_names(proxy: Groundwire, model: ModelServer, kind: str) -> None:
    model.script(text("Hello."))
    sent = json.dumps(CHAT).encode()
    assert CLIENT.post(f"{proxy.url}/chat/completions", content=sent, headers={"content-type": kind}).status_code == 200


# Bodies


def pieces(size: int) -> Iterator[bytes]:
    for _ in range(0, size, 8192):
        yield b" " * 8192


@pytest.mark.parametrize("path", ["chat/completions", "embeddings"])
def test_a_body_that_is_too_large(proxy: Groundwire, model: ModelServer, path: str) -> None:
    model.script(text("Hello."))
    for content in (b" " * (MAX_BODY + 1), pieces(MAX_BODY * 2)):
        headers = {"content-type": "application/json"}
        answer = CLIENT.post(f"{proxy.url}/{path}", content=content, headers=headers)
        assert answer.status_code == 413
        assert code_of(answer) == "request_too_large"
    assert model.requests == []


def test_the_largest_body_is_served(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Hello."))
    padded = json.dumps(CHAT).encode().ljust(MAX_BODY)
    answer = CLIENT.post(f"{proxy.url}/chat/completions", content=padded, headers={"content-type": "application/json"})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("framing", "body", "status"),
    [
        ("Content-Length: 500", b'{"model":', 408),
        ("Transfer-Encoding: chunked", b"1\r\n{\r\n", 408),
        ("Content-Length: 5000000000", b"{", 413),
        ("Transfer-Encoding: chunked", b"20000\r\n" + b" " * 0x20000, 413),
    ],
)
def test_a_body_that_never_ends_is_answered_and_the_line_is_closed(
    proxy: Groundwire, framing: str, body: bytes, status: int
) -> None:
    head = ("POST /v1/chat/completions HTTP/1.1", "Host: localhost", "Content-Type: application/json")
    found, answer = exchange(proxy, *head, framing, body=body)
    assert found == status
    assert b"connection: close" in answer
    assert code_of(answer) == {408: "request_timeout", 413: "request_too_large"}[status]


ENDLESS = {
    "header lines": (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", b"X: y\r\n" * 2000, 431),
    "one header": (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ", b"y" * 16_000, 431),
    "an address": (b"GET /", b"y" * 16_000, 414),
    "trailers": (CHUNKED + b"2\r\n{}\r\n0\r\n", b"X: y\r\n" * 2000, 431),
    "one trailer": (CHUNKED + b"2\r\n{}\r\n0\r\nX: ", b"y" * 16_000, 431),
    "an extension of a chunk": (CHUNKED + b"2;", b"y" * 16_000, 431),
    "a chunk's size": (CHUNKED, b"0" * 16_000, 431),
    "tiny chunks": (CHUNKED, b"1\r\n \r\n" * 2000, 400),
}


@pytest.mark.parametrize("shape", ENDLESS)
def test_what_has_no_end_costs_no_memory(proxy: Groundwire, model: ModelServer, shape: str) -> None:
    """Seconds of it took gigabytes, before any key was asked for."""
    model.script(text("Hello."))
    start, again, expected = ENDLESS[shape]
    before = memory(proxy)
    with connect(proxy) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(start)
            for _ in range(10_000):
                connection.sendall(again)
            raise AssertionError("all of it was read")
        answer = read_to_end(connection)
    assert status_of(answer) == expected
    error_in(answer)
    assert memory(proxy) - before < 20
    assert model.requests == []


def memory(proxy: Groundwire) -> float:
    """What is resident, in MB."""
    assert proxy.process is not None
    return int(Path(f"/proc/{proxy.process.pid}/statm").read_text().split()[1]) * 4096 / 2**20


# What crosses, and what does not


def test_an_error_event_is_forwarded_alone(proxy: Groundwire, model: ModelServer) -> None:
    told = b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\ndata: {"error":{"message":"overloaded"}}\n\n'
    model.script(Turn(body=told, content_type="text/event-stream"))
    assert post(proxy, {"x-groundwire-search": "off"}, stream=True).content == told


# WebSockets, which nobody speaks here

HANDSHAKE = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)


@pytest.mark.parametrize(
    "path", ["/v1/responses", "/v1/chat/completions", "/v1/realtime?model=m", "/v1/models", "/", "/x"]
)
def test_a_websocket_is_told_to_use_http(proxy: Groundwire, path: str) -> None:
    """Codex tries one first, and asks over HTTP where it gets this status."""
    status, answer = exchange(proxy, f"GET {path} HTTP/1.1", "Host: localhost", *HANDSHAKE)
    assert status == 426
    assert error_in(answer)["code"] == "no_websockets"
    assert b"\r\nupgrade:" not in answer.lower()


def test_a_websocket_needs_a_key_too_and_health_none(locked: Groundwire) -> None:
    assert exchange(locked, "GET /v1/responses HTTP/1.1", "Host: localhost", *HANDSHAKE)[0] == 401
    keyed = ("Host: localhost", f"Authorization: Bearer {KEY}", *HANDSHAKE)
    assert exchange(locked, "GET /v1/responses HTTP/1.1", *keyed)[0] == 426
    assert exchange(locked, "GET /healthz HTTP/1.1", "Host: localhost", *HANDSHAKE)[0] == 200


def test_an_upgrade_of_another_kind_is_passed_over(proxy: Groundwire) -> None:
    assert exchange(proxy, "GET /healthz HTTP/1.1", "Host: localhost", "Connection: Upgrade", "Upgrade: h2c")[0] == 200
    body = json.dumps(CHAT).encode()
    lines = ("Content-Type: application/json", f"Content-Length: {len(body)}", *HANDSHAKE)
    assert exchange(proxy, "POST /v1/nothing HTTP/1.1", "Host: localhost", *lines, body=body)[0] == 404


def test_every_answer_has_an_id_of_its_own(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Hello."))
    answers = [
        post(proxy),
        post(proxy, stream=True),
        post(proxy, {"x-groundwire-search": "off"}),
        post(proxy, messages=[]),
        post(proxy, {"host": "evil.example"}),
        post(proxy, {"content-type": "text/plain"}),
        CLIENT.get(f"{proxy.root}/healthz", headers={"x-request-id": "mine"}),
        CLIENT.get(f"{proxy.url}/models"),
        CLIENT.get(f"{proxy.root}/elsewhere"),
        CLIENT.delete(f"{proxy.root}/healthz"),
    ]
    ids = {answer.headers["x-request-id"] for answer in answers}
    assert len(ids) == len(answers)
    assert all(found.startswith("req_") for found in ids)
    for found in ids:
        assert proxy.logged(found), "and the log tells of each"


def test_a_path_cannot_write_lines_into_the_log(proxy: Groundwire) -> None:
    exchange(proxy, "GET /a%0a23:59:59%20FORGED HTTP/1.1", "Host: localhost", "Connection: close")
    assert " GET /a%0a23:59:59%20FORGED 404 " in proxy.logged("FORGED")


def test_keys_show_up_nowhere(locked: Groundwire, model: ModelServer) -> None:
    """The upstream repeats its key wherever it can; the client tries its own where it does not belong."""
    told = f"key {UPSTREAM_KEY}"
    error = json.dumps({"error": {"message": told, "code": told, "param": told, "type": told}}).encode()
    turns = [
        Turn(status=401, body=error),
        Turn(status=403, body=told.encode()),
        Turn(status=302, body=b"", headers={"Location": f"http://127.0.0.1:1/{UPSTREAM_KEY}"}),
        Turn(status=400, body=error),
        Turn(status=500, body=told.encode(), content_type="text/plain"),
        Turn(body=f"<html>{told}</html>".encode(), content_type="text/html"),
        text("Half", end="reset", finish=None),
    ]
    answers = [
        CLIENT.get(f"{locked.root}/elsewhere", params={"key": KEY}, headers={"authorization": f"Bearer {KEY}"}),
        post(locked, {"authorization": f"Bearer {KEY}{KEY}"}),
        post(locked, {"authorization": f"Bearer {KEY}", "x-api-key": OTHER_KEY}),
    ]
    for turn in turns:
        for stream in (True, False):
            model.script(turn)
            answers.append(post(locked, {"authorization": f"Bearer {KEY}"}, stream=stream))
    log = locked.log.read_text()
    assert "POST /v1/chat/completions" in log
    for key in (KEY, NAMED_KEY, OTHER_KEY, LAST_KEY, UPSTREAM_KEY):
        assert key not in log
        assert not any(key in answer.text + str(answer.headers) for answer in answers)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("secret", ["upstream", "upstream-key-1234", "complete-answer-1", "completions"])
def test_our_own_words_are_not_taken_for_a_key(
    config: dict[str, Any], model: ModelServer, secret: str, stream: bool
) -> None:
    """Whatever of them is a key, or in one: clients read codes, and people read sentences."""
    upstream = {**config["upstreams"][0], "headers": {"X-Team": secret}}
    with Groundwire({**config, "upstreams": [upstream]}) as running:
        model.script(text("Blue.", end="eof", finish=None, usage=None))
        answer = CLIENT.post(f"{running.url}/chat/completions", json={**CHAT, "stream": stream})
        told = answer.json() if not stream else json.loads(answer.text.split("data: ")[-1])
        assert told["error"]["code"] == "upstream_truncated"
        assert told["error"]["message"] == "The model's server ended the answer before it was complete."
        assert "outcome=upstream_truncated" in running.logged("outcome=")
        assert "POST /v1/chat/completions" in running.logged("outcome=")


@pytest.mark.parametrize(("length", "hidden"), [(21, True), (16, True), (15, False)])
def test_a_key_is_hidden_and_a_piece_of_one_from_16_characters(
    config: dict[str, Any], model: ModelServer, length: int, hidden: bool
) -> None:
    key = "sk-Zx81Kq77Lm02Pw45Rt"
    upstream = {**config["upstreams"][0], "api_key": key}
    with Groundwire({**config, "upstreams": [upstream]}) as running:
        body = json.dumps({"error": {"message": f"Bad key {key[:length]}…", "code": "bad_key"}}).encode()
        model.script(Turn(status=400, body=body))
        answer = CLIENT.post(f"{running.url}/chat/completions", json=CHAT)
        assert answer.json()["error"]["message"] == f"Bad key {'***' if hidden else key[:length]}…"


# At the start


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_an_open_address_needs_keys(config: dict[str, Any], tmp_path: Path, host: str) -> None:
    path = tmp_path / "config.yaml"
    for server, arguments in (({"host": host}, []), ({}, ["--host", host])):
        path.write_text(yaml.safe_dump({**config, "server": server}))
        command = [str(SCRIPT), "serve", "--config", str(path), "--port", "0", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, env={"PATH": "/usr/bin:/bin"})
        assert done.returncode == 2
        assert "server.host: must be 127.0.0.1 while there are no client keys" in done.stderr
        assert "GROUNDWIRE_KEYS" in done.stderr
        assert "Traceback" not in done.stderr
        assert "listening" not in done.stdout


WEAK = {
    "password": "documentation",
    "foo": "documentation",
    "change-me": "documentation",
    "change-me-too": "documentation",
    "Change-Me-In-The-Environment": "documentation",
    "a-client-key": "documentation",
    "fifteen-letters": "at least 16 characters",
}


@pytest.mark.parametrize("key", WEAK)
@pytest.mark.parametrize("way", ["file", "hash", "environment"])
def test_a_key_that_others_know_or_guess_is_refused(config: dict[str, Any], tmp_path: Path, way: str, key: str) -> None:
    if way == "hash" and "characters" in WEAK[key]:
        pytest.skip("of a hash nobody can tell how long its key is")
    hashed = "sha256:" + hashlib.sha256(key.lower().encode()).hexdigest()
    keys = {"file": [{"name": "a", "key": key}], "hash": [{"name": "a", "hash": hashed}], "environment": []}[way]
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({**config, "server": {"host": "0.0.0.0", "keys": keys}}))
    env = {"PATH": "/usr/bin:/bin", **({"GROUNDWIRE_KEYS": key} if way == "environment" else {})}
    for command in (["serve", "--port", "0"], ["check"]):
        done = subprocess.run(
            [str(SCRIPT), *command, "--config", str(path)], capture_output=True, text=True, timeout=30, env=env
        )
        assert done.returncode == 2
        assert WEAK[key] in done.stderr
        assert "server.keys[0]: " in done.stderr
        assert "`groundwire key new` makes" in done.stderr
        assert ("GROUNDWIRE_KEYS" in done.stderr) == (way == "environment")
        assert f"'{key}'" not in done.stderr
        assert "listening" not in done.stdout


def test_an_example_is_refused_on_loopback_too_and_a_short_key_is_not(config: dict[str, Any], tmp_path: Path) -> None:
    """A server on loopback may stand behind a proxy that everybody can reach."""
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({**config, "server": {"keys": ["change-me"]}}))
    command = [str(SCRIPT), "serve", "--config", str(path), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, env={"PATH": "/usr/bin:/bin"})
    assert (done.returncode, "documentation" in done.stderr) == (2, True)
    with Groundwire({**config, "server": {"keys": ["short"]}}) as running:
        assert CLIENT.get(f"{running.url}/models", headers={"authorization": "Bearer short"}).status_code == 200
