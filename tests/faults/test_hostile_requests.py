"""Clients that send what programs stumble over when they read JSON, and headers that are not theirs to send: rows 69
and 71 of the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, text
from tests.faults.asking import error_of, road_headers
from tests.faults.table import BOTH, fault

# One client, because reading the certificates anew for each request would take longer than the request.
CLIENT = httpx.Client(timeout=60)
KEY, UPSTREAM_KEY = "gw-key-of-a-client-1", "sk-key-of-the-operator-1"
QUESTION = '{"role": "user", "content": "Why is the sky blue?"}'
CHAT = f'{{"model": "m", "messages": [{QUESTION}]%s}}'
DEPTH = 100_000

# Each is a request but for one thing; `%s` is where it stands.
HOSTILE = {
    "a list as deep as it gets": ', "x": ' + "[" * DEPTH + "]" * DEPTH,
    "an object as deep as it gets": ', "x": ' + '{"a":' * DEPTH + "1" + "}" * DEPTH,
    "a list that never closes": ', "x": ' + "[" * DEPTH,
    "a number of 5,000 digits": ', "seed": ' + "9" * 5000,
    "a number beyond all floats": ', "temperature": 1e999',
    "NaN": ', "temperature": NaN',
    "Infinity": ', "temperature": -Infinity',
    "half a character": ', "user": "\\ud800"',
    "two halves in the wrong order": ', "user": "\\udc00\\ud800"',
    "an escape that is none": ', "user": "\\x41"',
    "a control character": ', "user": "\x00"',
    "a comma too many": ",",
    "a comment": ', "x": 1 /* one */',
    "something behind it": '}, "y": {',
}
BYTES = {
    "bytes that are no UTF-8": (CHAT % ', "user": "XX"').encode().replace(b"XX", b"\xff\xfe"),
    "a character written too long": (CHAT % ', "user": "XX"').encode().replace(b"XX", b"\xc0\xaf"),
    "half a character as bytes": (CHAT % ', "user": "XX"').encode().replace(b"XX", b"\xed\xa0\x80"),
    "another encoding": (CHAT % "").encode("utf-16"),
    "a mark before it": b"\xef\xbb\xbf" + (CHAT % "").encode(),
    "nothing": b"",
    "blanks": b" \n ",
    "a list": b"[]",
    "null": b"null",
    "a string": b'"model"',
    "a number": b"1",
}
BODIES = {**{name: (CHAT % put).encode() for name, put in HOSTILE.items()}, **BYTES}


@pytest.fixture(scope="module")
def proxy(config: dict[str, Any]) -> Iterator[Groundwire]:
    server = {"keys": [{"key": KEY, "name": "client"}]}
    upstream = {**config["upstreams"][0], "api_key": UPSTREAM_KEY}
    with Groundwire({**config, "server": server, "upstreams": [upstream]}) as running:
        yield running


def post(proxy: Groundwire, path: str, body: bytes, headers: dict[str, str] | None = None) -> httpx.Response:
    said = {"content-type": "application/json", "authorization": f"Bearer {KEY}", **(headers or {})}
    return CLIENT.post(f"{proxy.url}/{path}", content=body, headers=said)


def refused(proxy: Groundwire, model: ModelServer, answer: httpx.Response) -> None:
    """400 in the shape of every error, one line in the log that says so, and nobody else was troubled."""
    assert answer.status_code == 400
    error = error_of(answer)
    assert error["type"] == "invalid_request_error"
    assert error["code"] in ("invalid_json", "invalid_type")
    line = proxy.logged(answer.headers["x-request-id"])
    assert " 400 " in line
    assert f"outcome={error['code']}" in line
    assert proxy.log.read_text(errors="replace").count(answer.headers["x-request-id"]) == 1
    assert model.requests == []


@fault(69, *BOTH)
@pytest.mark.parametrize("name", BODIES)
def test_json_that_is_none_or_too_much(proxy: Groundwire, model: ModelServer, name: str, road: str) -> None:
    model.script(text("Hello."))
    refused(proxy, model, post(proxy, "chat/completions", BODIES[name], road_headers(road)))
    assert CLIENT.get(f"{proxy.root}/healthz").status_code == 200


@fault(69)
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize(
    ("path", "ours"),
    [("responses", b'"input": "Why?"'), ("search", b'"query": "sky"'), ("open", b'"url": "http://a.example"')],
)
def test_the_same_on_the_other_paths_that_are_read(
    proxy: Groundwire, model: ModelServer, path: str, ours: bytes, name: str
) -> None:
    model.script(text("Hello."))
    body = BODIES[name].replace(f'"messages": [{QUESTION}]'.encode(), ours)
    if path != "responses":
        body = body.replace(b'"model": "m", ', b"")
    refused(proxy, model, post(proxy, path, body))


@fault(69, *BOTH)
def test_of_two_equal_keys_the_last_counts_for_everybody(proxy: Groundwire, model: ModelServer, road: str) -> None:
    model.script(text("Hello."))
    answer = post(proxy, "chat/completions", (CHAT % ', "model": "vendor/m"').encode(), road_headers(road))
    assert answer.status_code == 200
    assert model.requests[-1]["model"] == "vendor/m"
    assert " model=vendor/m " in proxy.logged(answer.headers["x-request-id"])


@fault(69, *BOTH)
def test_numbers_and_characters_at_the_edge_pass_as_they_are(proxy: Groundwire, model: ModelServer, road: str) -> None:
    model.script(text("Hello."))
    odd = f', "seed": {2**64 - 1}, "user": "\\ud83d\\ude00 \\u0000 ￾ \\u2028"'
    assert post(proxy, "chat/completions", (CHAT % odd).encode(), road_headers(road)).status_code == 200
    sent = json.loads(CHAT % odd)
    assert {name: model.requests[-1][name] for name in ("seed", "user")} == {"seed": 2**64 - 1, "user": sent["user"]}


# Headers

FORGED = {
    "X-Groundwire-Key": KEY,
    "Cookie": "session=1",
    "X-Forwarded-For": "10.0.0.1",
    "X-Forwarded-Host": "evil.example",
    "X-Forwarded-Proto": "https",
    "X-Real-IP": "10.0.0.1",
    "Forwarded": "for=10.0.0.1",
    "Via": "1.1 evil",
    "Origin": "https://a.example",
    "Referer": "https://a.example/secret",
    "OpenAI-Organization": "org-theirs",
    "X-Stainless-Lang": "python",
    "X-Listed": "by Connection",
}
HOP_BY_HOP = {
    "Connection": "close, X-Listed, Content-Type, Authorization",
    "Proxy-Authorization": "Basic x",
    "Proxy-Connection": "keep-alive",
    "Keep-Alive": "timeout=9",
    "TE": "trailers",
    "Trailer": "X-Later",
    "Upgrade": "h2c",
    "Expect": "100-continue",
}
THEIRS = {
    "Set-Cookie": "a=1",
    "Server": "vendor",
    "OpenAI-Organization": "org-ours",
    "X-Request-Id": "theirs",
    "Access-Control-Allow-Origin": "*",
    "Proxy-Authenticate": "Basic",
    "Keep-Alive": "timeout=9",
    "Trailer": "X-Later",
    "Via": "1.1 vendor",
    "Alt-Svc": 'h3=":443"',
}
ANSWER = b'{"choices":[{"message":{"content":"Hello."},"finish_reason":"stop"}]}'


def nothing_goes_up(proxy: Groundwire, model: ModelServer, path: str, headers: dict[str, str]) -> None:
    model.script(Turn(body=ANSWER))
    sent = {**FORGED, **HOP_BY_HOP, **headers}
    assert post(proxy, path, (CHAT % "").encode(), sent).status_code == 200
    (head,) = model.heads
    assert head["authorization"] == f"Bearer {UPSTREAM_KEY}"
    assert head["content-type"] == "application/json"
    assert head["host"] == model.url.removeprefix("http://").removesuffix("/v1")
    assert not {name.lower() for name in {**FORGED, **HOP_BY_HOP, "X-Groundwire-Search": ""}} & head.keys()
    assert KEY not in str(head)


def nothing_comes_down(proxy: Groundwire, model: ModelServer, path: str, headers: dict[str, str]) -> None:
    for status, body in ((200, ANSWER), (400, b'{"error":{"message":"no"}}')):
        model.script(Turn(status=status, body=body, headers=THEIRS))
        answer = post(proxy, path, (CHAT % "").encode(), headers)
        assert answer.status_code == status
        assert not {name.lower() for name in THEIRS} - {"x-request-id"} & answer.headers.keys()
        (own,) = answer.headers.get_list("x-request-id")
        assert own.startswith("req_")


@fault(71, *BOTH)
def test_headers_that_are_not_passed_on(proxy: Groundwire, model: ModelServer, road: str) -> None:
    nothing_goes_up(proxy, model, "chat/completions", road_headers(road))
    nothing_comes_down(proxy, model, "chat/completions", road_headers(road))


@fault(71)
def test_nor_on_other_paths_that_are_forwarded(proxy: Groundwire, model: ModelServer) -> None:
    nothing_goes_up(proxy, model, "embeddings", {})
    nothing_comes_down(proxy, model, "embeddings", {})
