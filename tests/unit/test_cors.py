"""Which origins may read an answer, and what their browsers are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.config.settings import ConfigError, load
from proxy.serving.cors import ListedOrigins, is_preflight, preflight, shared_with

APP = b"https://app.example"


@pytest.mark.parametrize(
    ("listed", "sent", "found"),
    [
        (["https://app.example"], [APP], APP),
        (["https://app.example"], [b"https://app.example:443"], b""),
        (["https://app.example"], [b"https://app.example.evil"], b""),
        (["https://app.example"], [b"http://app.example"], b""),
        (["https://app.example"], [b"null"], b""),
        (["https://app.example"], [], b""),
        (["https://app.example"], [APP, APP], b""),
        (["*"], [b"https://anyone.example"], b"https://anyone.example"),
    ],
)
def test_who_is_listed(listed: list[str], sent: list[bytes], found: bytes) -> None:
    assert ListedOrigins(listed).of([(b"host", b"x"), *((b"origin", value) for value in sent)]) == found


def test_what_is_readable() -> None:
    headers = [
        (b"content-type", b"x"),
        (b"x-request-id", b"r"),
        (b"x-groundwire-search", b"off"),
        (b"retry-after", b"1"),
    ]
    marked = shared_with(APP, headers)
    assert marked[:4] == headers
    assert dict(marked[4:]) == {
        b"access-control-allow-origin": APP,
        b"vary": b"Origin",
        b"access-control-expose-headers": b"x-request-id, x-groundwire-search, retry-after",
    }
    assert len(shared_with(APP, [(b"content-type", b"x")])) == 3
    assert shared_with(b"", headers) == [*headers, (b"vary", b"Origin")]


def test_a_question_beforehand() -> None:
    asked = {
        b"access-control-request-method": [b"POST"],
        b"access-control-request-headers": [b"authorization,x-api-key"],
    }
    assert is_preflight("OPTIONS", asked)
    assert not is_preflight("OPTIONS", {})
    assert not is_preflight("POST", asked)
    allowed = dict(preflight(asked))
    assert allowed[b"access-control-allow-headers"] == b"authorization,x-api-key"
    assert allowed[b"access-control-allow-methods"] == b"GET, POST, DELETE"
    assert b"access-control-allow-private-network" not in allowed
    near = preflight({**asked, b"access-control-request-private-network": [b"true"]})
    assert (b"access-control-allow-private-network", b"true") in near
    assert not any(name.endswith(b"credentials") for name, _ in near)


def test_names_that_are_none_are_not_repeated() -> None:
    odd = {b"access-control-request-headers": [b"x\x00y: z"]}
    assert b"access-control-allow-headers" not in dict(preflight(odd))


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("[https://app.example/]", "must be an origin"),
        ("[app.example]", "must be an origin"),
        ("[https://App.example]", "must be an origin"),
        ("['null']", "must be an origin"),
        ("['https://app.example:0443']", "must be an origin"),
        ("['*']", "must not be * while there are no client keys"),
    ],
)
def test_what_cannot_be_listed(tmp_path: Path, written: str, problem: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"server: {{cors: {written}}}")
    with pytest.raises(ConfigError, match=problem.replace("*", r"\*")):
        load(file, {})


def test_with_keys_everybody_may_be_listed(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("server: {cors: ['*'], keys: [abc-key]}")
    assert load(file, {}).server.cors == ["*"]
    file.write_text("server: {cors: ['http://localhost:3000', 'tauri://localhost', 'http://[::1]:80']}")
    assert len(load(file, {}).server.cors) == 3


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("https://a.example:443", "https://a.example"),
        ("http://a.example:80", "http://a.example"),
        ("http://[::80]:80", "http://[::80]"),
        ("http://[::80]", "http://[::80]"),
        ("https://a.example:80", "https://a.example:80"),
        ("http://a.example:443", "http://a.example:443"),
        ("http://a.example:8080", "http://a.example:8080"),
        ("tauri://localhost:443", "tauri://localhost:443"),
    ],
)
def test_an_origin_is_known_as_the_browser_sends_it(tmp_path: Path, written: str, sent: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"server: {{cors: ['{written}']}}")
    listed = ListedOrigins(load(file, {}).server.cors)
    assert listed.of([(b"origin", sent.encode())]) == sent.encode()
