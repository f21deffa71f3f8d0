"""The door of a running Groundwire, over bare sockets where a well-behaved client could not knock: who may enter, what
is refused before any route sees it, and what never crosses from one side to the other.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.fakes.groundwire import SCRIPT, Groundwire
from tests.fakes.model import ModelServer, Turn, call, text

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
    return httpx.post(f"{proxy.url}/chat/completions", json={**CHAT, **fields}, headers=headers, timeout=20)


def exchange(proxy: Groundwire, *lines: str, body: bytes = b"") -> tuple[int, bytes]:
    """Sends the lines as they are and reads until the server hangs up, or until it has been silent for long."""
    host, port = proxy.root.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        parts = []
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
    assert httpx.get(f"{locked.url}/models", headers={header: form.format(key)}).status_code == 200


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
        httpx.get(f"{locked.url}/models", headers=headers),
        httpx.post(f"{locked.url}/embeddings", json={"model": "m"}, headers=headers),
        httpx.get(f"{locked.root}/elsewhere", headers=headers),
    ):
        assert answer.status_code == 401
        assert code_of(answer) == "invalid_api_key"
        assert answer.json()["error"]["type"] == "authentication_error"
    assert model.requests == []


def test_two_different_keys_are_refused_and_two_equal_ones_are_not(locked: Groundwire, model: ModelServer) -> None:
    model.script(text("Hello."))
    for other in ({"x-api-key": OTHER_KEY}, {"x-groundwire-key": "wrong"}):
        answer = post(locked, {"authorization": f"Bearer {KEY}", **other})
        assert answer.status_code == 400
        assert code_of(answer) == "ambiguous_key"
    twice = post(locked, [("x-api-key", KEY), ("x-api-key", "wrong")])
    assert (twice.status_code, code_of(twice)) == (400, "ambiguous_key")
    assert model.requests == []
    assert post(locked, {"authorization": f"Bearer {KEY}", "x-api-key": KEY}).status_code == 200


def test_health_needs_no_key(locked: Groundwire) -> None:
    for path in ("healthz", "readyz"):
        assert httpx.get(f"{locked.root}/{path}").json() == {"status": "ok"}


# Host


@pytest.mark.parametrize("host", ["localhost", "LocalHost.", "localhost:1", "127.0.0.1", "[::1]:80", "search.example"])
def test_hosts_that_are_served(proxy: Groundwire, host: str) -> None:
    assert httpx.get(f"{proxy.root}/healthz", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "xsearch.example", "a.search.example", "127.0.0.2", "localhost@x"],
)
def test_hosts_that_are_not(proxy: Groundwire, model: ModelServer, host: str) -> None:
    """A page of evil.example may point that name at 127.0.0.1; its browser still says whom it means."""
    model.script(text("Hello."))
    for answer in (httpx.get(f"{proxy.root}/healthz", headers={"host": host}), post(proxy, {"host": host})):
        assert answer.status_code == 403
        assert code_of(answer) == "host_not_allowed"
    assert model.requests == []


def test_no_host_and_two_hosts(proxy: Groundwire) -> None:
    for hosts in ((), ("Host: localhost", "Host: localhost"), ("Host: localhost", "Host: evil.example")):
        status, answer = exchange(proxy, "GET /healthz HTTP/1.1", *hosts, "Connection: close")
        assert status == 400
        assert code_of(answer) == "bad_host"


# Framing and form


def test_two_lengths_of_one_body(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Hello."))
    head = ("POST /v1/chat/completions HTTP/1.1", "Host: localhost", "Content-Type: application/json")
    for framing in (
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 5"),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: 5, 5",),
        ("Content-Length: -1",),
        ("Content-Length: +5",),
    ):
        status, answer = exchange(proxy, *head, *framing, "Connection: close", body=b"0\r\n\r\n")
        assert status == 400, framing
        assert answer.count(b"HTTP/1.1") == 1, "what was smuggled behind it is not answered"
    assert model.requests == []


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
    answer = httpx.post(f"{proxy.url}/{path}", content=json.dumps(CHAT).encode(), headers=headers)
    assert answer.status_code == 415
    assert code_of(answer) == "unsupported_media_type"
    assert model.requests == []


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/vnd.api+json"])
def test_json_by_its_other_names(proxy: Groundwire, model: ModelServer, kind: str) -> None:
    model.script(text("Hello."))
    sent = json.dumps(CHAT).encode()
    assert httpx.post(f"{proxy.url}/chat/completions", content=sent, headers={"content-type": kind}).status_code == 200


# Bodies


def pieces(size: int) -> Iterator[bytes]:
    for _ in range(0, size, 8192):
        yield b" " * 8192


@pytest.mark.parametrize("path", ["chat/completions", "embeddings"])
def test_a_body_that_is_too_large(proxy: Groundwire, model: ModelServer, path: str) -> None:
    model.script(text("Hello."))
    for content in (b" " * (MAX_BODY + 1), pieces(MAX_BODY * 2)):
        headers = {"content-type": "application/json"}
        answer = httpx.post(f"{proxy.url}/{path}", content=content, headers=headers, timeout=20)
        assert answer.status_code == 413
        assert code_of(answer) == "request_too_large"
    assert model.requests == []


def test_the_largest_body_is_served(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Hello."))
    padded = json.dumps(CHAT).encode().ljust(MAX_BODY)
    answer = httpx.post(f"{proxy.url}/chat/completions", content=padded, headers={"content-type": "application/json"})
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


def chat_with(value: bytes) -> bytes:
    return b'{"model":"m","messages":[{"role":"user","content":"Hi"}],"x":' + value + b"}"


NOT_JSON = {
    "empty": b"",
    "text": b"Why is the sky blue?",
    "NaN": chat_with(b"NaN"),
    "Infinity": chat_with(b"-Infinity"),
    "a number out of range": chat_with(b"1e999"),
    "an endless number": chat_with(b"9" * 5000),
    "a lone surrogate": chat_with(b'"\\ud800"'),
    "a lone surrogate as bytes": chat_with(b'"\xed\xa0\x80"'),
    "no UTF-8": chat_with(b'"\xff"'),
    "a control character": chat_with(b'"\n"'),
    "a byte order mark": b"\xef\xbb\xbf" + chat_with(b"1"),
    "brackets": b"[" * 60_000,
    "braces": b'{"a":' * 10_000,
    "300 deep": chat_with(b"[" * 300 + b"]" * 300),
    "1000 deep": chat_with(b'{"a":' * 1000 + b"1" + b"}" * 1000),
    "a deep message": b'{"model":"m","messages":[{"role":"assistant","content":' + b"[" * 300 + b"]" * 300 + b"}]}",
    "a list": b"[]",
    "null": b"null",
}


@pytest.mark.parametrize("search", ["on", "off"])
@pytest.mark.parametrize("raw", NOT_JSON.values(), ids=NOT_JSON)
def test_bodies_that_are_no_request(proxy: Groundwire, model: ModelServer, raw: bytes, search: str) -> None:
    model.script(text("Hello."))
    headers = {"content-type": "application/json", "x-groundwire-search": search}
    answer = httpx.post(f"{proxy.url}/chat/completions", content=raw, headers=headers, timeout=20)
    assert answer.status_code == 400
    assert code_of(answer) in ("invalid_json", "invalid_type")
    assert model.requests == []


HOSTED: dict[str, Any] = {"type": "web_search"}
OURS = {"type": "function", "function": {"name": "web_search"}}
ODD_FIELDS: dict[str, dict[str, Any]] = {
    "messages of another kind": {"messages": [{}, {"role": 5, "content": {"a": 1}}, {"role": ["x"], "content": "Hi"}]},
    "an odd earlier answer": {
        "messages": [
            {
                "role": "assistant",
                "content": [5, None, {"type": "text"}, {"type": "text", "text": 5}],
                "annotations": [5, {}, {"type": "url_citation"}, {"type": "url_citation", "url_citation": {"url": 5}}],
                "search_results": 5,
                "tool_calls": 5,
            }
        ]
    },
    "annotations out of range": {
        "messages": [
            {
                "role": "assistant",
                "content": "[[1]](https://a.example/)",
                "annotations": [
                    {
                        "type": "url_citation",
                        "url_citation": {"url": "https://a.example/", "start_index": -5, "end_index": 10**9},
                    }
                ],
            }
        ]
    },
    "tools that are none": {"tools": [5, None, "x", {"type": ["a"]}, {"type": "function", "function": "x"}]},
    "tool names that are none": {"tools": [{"type": "function", "function": {"name": name}} for name in (5, [], None)]},
    "a choice of ours among them": {"tools": [5, "x"], "tool_choice": OURS},
    "hosted parameters that are text": {"tools": [{**HOSTED, "parameters": "x"}]},
    "hosted parameters that are a list": {"tools": [{**HOSTED, "parameters": [1]}]},
    "hosted filters": {"tools": [{**HOSTED, "filters": {"allowed_domains": [1, None, ":::"]}, "user_location": []}]},
    "hosted options": {"web_search_options": {"search_context_size": [], "user_location": {"approximate": 5}}},
    "allowed tools that are a number": {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": 5}}},
    "allowed tools that are none": {"tool_choice": {"type": "allowed_tools", "allowed_tools": 5}},
    "a mixed list of allowed tools": {
        "tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": [HOSTED, 5]}}
    },
    "a choice without a name": {"tool_choice": {"type": "function", "function": {"name": []}}},
    "a choice of a list": {"tool_choice": [1]},
    "fields of another kind": {
        "n": [1],
        "functions": 5,
        "logprobs": "x",
        "modalities": 5,
        "response_format": {"type": []},
    },
    "stream options of another kind": {"stream_options": [5], "response_format": 5, "audio": "x"},
}


@pytest.mark.parametrize("search", ["on", "off"])
@pytest.mark.parametrize("fields", ODD_FIELDS.values(), ids=ODD_FIELDS)
def test_odd_fields_are_refused_or_left_to_the_upstream(
    proxy: Groundwire, model: ModelServer, fields: dict[str, Any], search: str
) -> None:
    model.script(call("web_search", {"query": "sky"}), text("Hello."))
    assert post(proxy, {"x-groundwire-search": search}, **fields).status_code in (200, 400)


# What crosses, and what does not

NOT_OURS_TO_PASS_ON = {
    "Authorization": f"Bearer {KEY}",
    "X-Groundwire-Key": KEY,
    "Cookie": "session=1",
    "X-Forwarded-For": "10.0.0.1",
    "X-Forwarded-Host": "evil.example",
    "X-Real-IP": "10.0.0.1",
    "Forwarded": "for=10.0.0.1",
    "Proxy-Authorization": "Basic x",
    "TE": "trailers",
    "Keep-Alive": "timeout=9",
    "Origin": "https://a.example",
    "OpenAI-Organization": "org-theirs",
    "X-Stainless-Lang": "python",
    "X-Groundwire-Search": "off",
}


@pytest.mark.parametrize("search", ["on", "off"])
@pytest.mark.parametrize("path", ["chat/completions", "embeddings"])
def test_headers_that_do_not_go_up(locked: Groundwire, model: ModelServer, path: str, search: str) -> None:
    model.script(Turn(body=b'{"choices":[{"message":{"content":"Hello."},"finish_reason":"stop"}]}'))
    sent = {**NOT_OURS_TO_PASS_ON, "X-Groundwire-Search": search, "Connection": "Content-Type, Authorization"}
    assert httpx.post(f"{locked.url}/{path}", json=CHAT, headers=sent).status_code == 200
    (head,) = model.heads
    assert head["authorization"] == f"Bearer {UPSTREAM_KEY}"
    assert head["content-type"] == "application/json"
    assert head["host"] == model.url.removeprefix("http://").removesuffix("/v1")
    assert not {name.lower() for name in NOT_OURS_TO_PASS_ON} - {"authorization"} & head.keys()
    assert KEY not in str(head)


@pytest.mark.parametrize("search", ["on", "off"])
@pytest.mark.parametrize("path", ["chat/completions", "embeddings"])
@pytest.mark.parametrize("status", [200, 400])
def test_headers_that_do_not_come_down(
    proxy: Groundwire, model: ModelServer, path: str, search: str, status: int
) -> None:
    theirs = {"Set-Cookie": "a=1", "Server": "vendor", "OpenAI-Organization": "org-ours", "X-Request-Id": "theirs"}
    body = b'{"choices":[{"message":{"content":"Hello."},"finish_reason":"stop"}]}'
    body = body if status == 200 else b'{"error":{"message":"no"}}'
    model.script(Turn(status=status, body=body, headers={**theirs, "Access-Control-Allow-Origin": "*"}))
    answer = httpx.post(f"{proxy.url}/{path}", json=CHAT, headers={"x-groundwire-search": search})
    assert answer.status_code == status
    assert not {"set-cookie", "server", "openai-organization", "access-control-allow-origin"} & answer.headers.keys()
    assert answer.headers.get_list("x-request-id")[0].startswith("req_")
    assert len(answer.headers.get_list("x-request-id")) == 1


def test_every_answer_has_an_id_of_its_own(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Hello."))
    answers = [
        post(proxy),
        post(proxy, stream=True),
        post(proxy, {"x-groundwire-search": "off"}),
        post(proxy, messages=[]),
        post(proxy, {"host": "evil.example"}),
        post(proxy, {"content-type": "text/plain"}),
        httpx.get(f"{proxy.root}/healthz", headers={"x-request-id": "mine"}),
        httpx.get(f"{proxy.url}/models"),
        httpx.get(f"{proxy.root}/elsewhere"),
        httpx.delete(f"{proxy.root}/healthz"),
    ]
    ids = {answer.headers["x-request-id"] for answer in answers}
    assert len(ids) == len(answers)
    assert all(found.startswith("req_") for found in ids)
    log = proxy.log.read_text()
    assert all(found in log for found in ids), "and the log tells of each"


def test_a_path_cannot_write_lines_into_the_log(proxy: Groundwire) -> None:
    exchange(proxy, "GET /a%0a23:59:59%20FORGED HTTP/1.1", "Host: localhost", "Connection: close")
    assert not any(line.startswith("23:59:59") for line in proxy.log.read_text().splitlines())


def test_keys_show_up_nowhere(locked: Groundwire, model: ModelServer) -> None:
    """The upstream repeats its key wherever it can; the client tries its own where it does not belong."""
    told = f"key {UPSTREAM_KEY}"
    error = json.dumps({"error": {"message": told, "code": told, "param": told, "type": told}}).encode()
    turns = [
        Turn(status=401, body=error),
        Turn(status=403, body=told.encode()),
        Turn(status=302, body=b"", headers={"Location": f"http://127.0.0.1:1/{UPSTREAM_KEY}"}),
        Turn(status=500, body=told.encode(), content_type="text/plain"),
        Turn(body=f"<html>{told}</html>".encode(), content_type="text/html"),
        text("Half", end="reset", finish=None),
    ]
    answers = [httpx.get(f"{locked.root}/{KEY}"), post(locked, {"authorization": f"Bearer {KEY}{KEY}"})]
    for turn in turns:
        for stream in (True, False):
            model.script(turn)
            answers.append(post(locked, {"authorization": f"Bearer {KEY}"}, stream=stream))
    for answer in answers:
        assert UPSTREAM_KEY not in answer.text + str(answer.headers)
    log = locked.log.read_text()
    assert "POST /v1/chat/completions" in log
    assert UPSTREAM_KEY not in log
    assert not any(key in line for key in (OTHER_KEY, LAST_KEY, NAMED_KEY) for line in log.splitlines())


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
