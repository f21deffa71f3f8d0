"""Web pages of listed origins may read every answer, the refusals too; of others nothing is said to any browser
but that answers differ, which caches must know."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.fakes.groundwire import SCRIPT, Groundwire
from tests.fakes.model import ModelServer, text
from tests.fakes.raw_client import exchange

APP, OTHER = "https://app.example", "https://other.example"
KEY = {"authorization": "Bearer key-of-a-client"}
SLOW = {"authorization": "Bearer one-a-minute"}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "Why?"}]}
CLIENT = httpx.Client(timeout=20)


@pytest.fixture(scope="module")
def shared(config: dict[str, Any]) -> Iterator[Groundwire]:
    keys = ["key-of-a-client", {"key": "one-a-minute", "name": "slow", "requests_per_minute": 1}]
    server = {"keys": keys, "cors": [APP], "max_body": 4096}
    with Groundwire({**config, "server": server}) as running:
        yield running


def post(proxy: Groundwire, origin: str, headers: dict[str, str], **fields: Any) -> httpx.Response:
    url = f"{proxy.url}/chat/completions"
    return CLIENT.post(url, json={**CHAT, **fields}, headers={**headers, "origin": origin})


def assert_shared(answer: httpx.Response, *exposed: str) -> None:
    assert answer.headers["access-control-allow-origin"] == APP
    assert answer.headers["vary"] == "Origin"
    readable = answer.headers["access-control-expose-headers"].split(", ")
    assert {"x-request-id", *exposed} <= set(readable)
    assert "access-control-allow-credentials" not in answer.headers


def assert_silent(answer: httpx.Response, *, vary: bool = True) -> None:
    """A cache in between must not hand on to a listed page what another origin, or none, has got."""
    assert answer.headers.get_list("vary") == (["Origin"] if vary else [])
    assert not [name for name in answer.headers if name.startswith("access-control")]


def preflight(proxy: Groundwire, origin: str, **more: str) -> httpx.Response:
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    return CLIENT.options(f"{proxy.url}/chat/completions", headers={**asked, "origin": origin, **more})


def test_a_question_beforehand_needs_no_key(shared: Groundwire) -> None:
    answer = preflight(shared, APP)
    assert (answer.status_code, answer.content) == (204, b"")
    assert_shared(answer)
    assert answer.headers["access-control-allow-headers"] == "authorization,content-type"
    assert "POST" in answer.headers["access-control-allow-methods"]


def test_other_origins_hear_nothing(shared: Groundwire, model: ModelServer) -> None:
    refused = preflight(shared, OTHER)
    assert refused.status_code == 401
    assert_silent(refused)
    model.script(text("Hello."))
    assert_silent(post(shared, OTHER, KEY))
    assert_silent(post(shared, OTHER, {}))
    assert_silent(CLIENT.get(f"{shared.root}/healthz"))


def test_a_foreign_host_is_refused_before_that(shared: Groundwire) -> None:
    assert preflight(shared, APP, host="evil.example").status_code == 403


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("search", ["on", "off"])
def test_answers(shared: Groundwire, model: ModelServer, stream: bool, search: str) -> None:
    model.script(text("Hello."))
    answer = post(shared, APP, {**KEY, "x-groundwire-search": search}, stream=stream)
    assert answer.status_code == 200
    assert_shared(answer, "x-groundwire-search")


def test_refusals(shared: Groundwire, model: ModelServer) -> None:
    assert_shared(post(shared, APP, {}))
    large = post(shared, APP, KEY, user="x" * 5000)
    assert large.status_code == 413
    assert_shared(large)
    model.script(text("Hello."))
    post(shared, APP, SLOW)
    limited = post(shared, APP, SLOW)
    assert limited.status_code == 429
    assert_shared(limited, "retry-after", "x-ratelimit-limit-requests")
    missing = CLIENT.get(f"{shared.root}/nowhere", headers={**KEY, "origin": APP})
    assert missing.status_code == 404
    assert_shared(missing)


@pytest.mark.parametrize(("origin", "told"), [(APP, True), (OTHER, False)])
@pytest.mark.parametrize(
    "wrong", ["Transfer-Encoding: gzip", "\r\n".join(f"X-{n}: 1" for n in range(120)), "Host: second.example"]
)
def test_what_never_becomes_a_request(shared: Groundwire, origin: str, told: bool, wrong: str) -> None:
    sent = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\n{wrong}\r\n\r\n"
    head = exchange(shared, sent.encode()).partition(b"\r\n\r\n")[0].lower()
    assert head.startswith((b"http/1.1 400", b"http/1.1 431"))
    assert (f"access-control-allow-origin: {origin}".encode() in head) is told
    assert b"vary: origin" in head
    assert (b"access-control-expose-headers: " in head) is told


def test_without_it_there_is_nothing_of_it(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Hello."))
    assert_silent(post(proxy, APP, {}), vary=False)
    assert_silent(preflight(proxy, APP), vary=False)


def test_everybody_without_keys_does_not_start(config: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({**config, "server": {"port": 0, "cors": ["*"]}}), encoding="utf-8")
    for command in ("serve", "check"):
        done = subprocess.run([SCRIPT, command, "--config", str(file)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert "server.cors: must not be * while there are no client keys" in done.stdout + done.stderr
    told = subprocess.run(
        [SCRIPT, "check", "--json", "--config", str(file)], capture_output=True, text=True, timeout=60
    )
    assert "server.cors" in (json.dumps(json.loads(told.stdout)) if told.stdout else told.stderr)
