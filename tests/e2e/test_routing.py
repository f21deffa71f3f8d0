"""Which upstream serves a model, under which name and with whose key; and who serves when that one fails."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire, gone
from tests.fakes.model import ModelServer, Turn, call, text

QUESTION = [{"role": "user", "content": "Why is the sky blue?"}]
SEARCH = call("web_search", {"query": "sky blue"})
ANSWER = text("Scattering [1].")
CITED = f"Scattering [[1]]({SITE}sky.md)."
BROKEN = Turn(status=503, body=b'{"error":{"message":"overloaded"}}')
OUR_KEY, THEIR_KEY = "gw-key-of-this-server", "sk-the-clients-own-key"


@pytest.fixture(scope="module")
def second() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture(scope="module")
def proxy(model: ModelServer, second: ModelServer, config: dict[str, Any]) -> Iterator[Groundwire]:
    upstreams = [
        {
            "name": "first",
            "base_url": model.url,
            "api_key": "sk-first-key-of-ours",
            "models": ["m", "a-*"],
            "fallback": ["second/n"],
        },
        {"name": "second", "base_url": second.url, "api_key": "sk-second-key-of-ours", "models": ["n", "vendor/*"]},
        {**gone(), "models": ["gone", "gone-*"], "fallback": ["first/m", "second"]},
        {"name": "own", "base_url": model.url, "api_key": "passthrough", "models": ["own"], "fallback": ["second/n"]},
        {
            "name": "careful",
            "base_url": model.url,
            "models": ["careful-*", "exactly-this"],
            "mode": "on_request",
            "drop": ["store"],
            "overrides": [
                {"match": "careful-off", "mode": "off"},
                {"match": "careful-auto", "mode": "auto", "drop": []},
            ],
        },
    ]
    aliases = {"fast": "second/qwen3", "smart": "a-large"}
    with Groundwire({**config, "upstreams": upstreams, "aliases": aliases}) as running:
        yield running


def ask(proxy: Groundwire, model: str, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    body = {"model": model, "messages": QUESTION, **fields}
    return httpx.post(f"{proxy.url}/chat/completions", json=body, headers=headers, timeout=20)


def said(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


# Names


def test_an_alias_leads_to_an_upstream_or_to_a_model(
    proxy: Groundwire, model: ModelServer, second: ModelServer
) -> None:
    second.script(SEARCH, ANSWER)
    assert said(ask(proxy, "fast")) == CITED
    assert [request["model"] for request in second.requests] == ["qwen3", "qwen3"]
    model.script(text("Hello."))
    assert said(ask(proxy, "smart:online")) == "Hello."
    assert model.requests[0]["model"] == "a-large"


def test_an_alias_is_all_that_changes_in_a_request_without_search(proxy: Groundwire, second: ModelServer) -> None:
    second.script(text("Hello."))
    ask(proxy, "fast", {"x-groundwire-search": "off"}, unknown=[1.50, "é"])
    assert second.requests == [{"model": "qwen3", "messages": QUESTION, "unknown": [1.5, "é"]}]


def test_an_alias_works_on_forwarded_paths_too(proxy: Groundwire, second: ModelServer) -> None:
    second.script(Turn(body=b"{}"))
    httpx.post(f"{proxy.url}/embeddings", json={"model": "fast", "input": "x"}, timeout=20)
    assert second.requests == [{"model": "qwen3", "input": "x"}]
    form = {"files": {"file": ("a.wav", b"model")}, "data": {"model": "fast"}}
    httpx.post(f"{proxy.url}/audio/transcriptions", timeout=20, **form)
    assert b'name="model"\r\n\r\nqwen3\r\n' in second.raw[-1]


@pytest.mark.parametrize("search", ["on", "off"])
def test_a_name_without_end_is_nobodys(proxy: Groundwire, search: str) -> None:
    answer = ask(proxy, "a-" + "x" * 100_000, {"x-groundwire-search": search})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    assert len(answer.content) < 1000


def test_all_models_are_listed(proxy: Groundwire) -> None:
    listed = {entry["id"]: entry for entry in httpx.get(f"{proxy.url}/models", timeout=20).json()["data"]}
    assert set(listed) == {"m", "vendor/m", "n", "gone", "own", "exactly-this", "fast", "smart"}
    assert listed["m"]["owned_by"] == "test"
    assert listed["fast"]["owned_by"] == "second"
    assert httpx.get(f"{proxy.url}/models/fast", timeout=20).json() == listed["fast"]
    assert httpx.get(f"{proxy.url}/models/other", timeout=20).status_code == 404


def test_a_model_is_as_old_a_second_later(proxy: Groundwire) -> None:
    first, now = httpx.get(f"{proxy.url}/models", timeout=20).json(), int(time.time())
    while int(time.time()) == now:
        time.sleep(0.02)
    assert httpx.get(f"{proxy.url}/models", timeout=20).json() == first


def test_what_holds_for_one_model(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Hello."))
    for name, decided in (
        ("careful-x", "off; reason=not_requested"),
        ("careful-off", "off; reason=mode_off"),
        ("careful-auto", "offered; reason=auto"),
    ):
        assert ask(proxy, name, store=True).headers["x-groundwire-search"] == decided
    ask(proxy, "careful-x", {"x-groundwire-search": "on"}, store=True)
    assert ["store" in request for request in model.requests] == [True, True, True, False], (
        "bytes that pass are not touched"
    )


# Fail-over


@pytest.mark.parametrize(
    "trouble",
    [BROKEN, Turn(status=429, body=b"{}"), Turn(status=401, body=b"{}"), Turn(end="reset", finish=None, usage=None)],
)
@pytest.mark.parametrize("stream", [False, True])
def test_another_upstream_serves(
    proxy: Groundwire, model: ModelServer, second: ModelServer, trouble: Turn, stream: bool
) -> None:
    model.script(trouble)
    second.script(SEARCH, ANSWER)
    answer = ask(proxy, "m", stream=stream)
    assert answer.status_code == 200
    assert CITED in (answer.text if stream else said(answer))
    assert len(model.requests) == 1, "the request stays where it was served"
    assert [request["model"] for request in second.requests] == ["n", "n"]
    assert {head["authorization"] for head in second.heads} == {"Bearer sk-second-key-of-ours"}


@pytest.mark.parametrize("stream", [False, True])
def test_also_without_search(proxy: Groundwire, model: ModelServer, second: ModelServer, stream: bool) -> None:
    model.script(BROKEN)
    second.script(text("Hello."))
    answer = ask(proxy, "m", {"x-groundwire-search": "off"}, stream=stream)
    assert answer.status_code == 200
    assert "Hello." in answer.text
    assert second.requests[0]["model"] == "n"


def test_one_after_the_other(proxy: Groundwire, model: ModelServer, second: ModelServer) -> None:
    model.script(BROKEN)
    second.script(text("Hello."))
    assert said(ask(proxy, "gone")) == "Hello."
    assert (model.requests[0]["model"], second.requests[0]["model"]) == ("m", "gone")


def test_a_failure_right_behind_the_first_chunk(proxy: Groundwire, model: ModelServer, second: ModelServer) -> None:
    chunk = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
    body = chunk + b'data: {"error":{"message":"overloaded","code":503}}\n\n'
    model.script(Turn(body=body, content_type="text/event-stream"))
    second.script(text("Hello."))
    assert "Hello." in ask(proxy, "m", stream=True).text


def test_a_refusal_of_tools_and_then_trouble(proxy: Groundwire, model: ModelServer, second: ModelServer) -> None:
    model.script(Turn(status=400, body=b'{"error":{"message":"a-1 does not support tools"}}'), BROKEN)
    second.script(text("Hello."))
    assert said(ask(proxy, "a-1")) == "Hello."


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["m", "gemma:2b"], ids=["asked in words", "searched for first"])
def test_who_takes_over_after_a_refusal_is_asked_in_its_own_way(
    config: dict[str, Any], model: ModelServer, second: ModelServer, name: str, stream: bool
) -> None:
    upstreams = [
        {"name": "a", "base_url": model.url, "models": [name], "fallback": ["b"], "rewrite_query": False},
        {"name": "b", "base_url": second.url, "models": ["b"], "tool_calls": "none", "rewrite_query": False},
    ]
    model.script(Turn(status=400, body=b'{"error":{"message":"it does not support tools"}}'), BROKEN)
    second.script(ANSWER)
    with Groundwire({**config, "upstreams": upstreams}) as proxy:
        answer = ask(proxy, name, stream=stream)
    assert answer.status_code == 200, answer.text
    assert CITED in _text(answer)
    assert len(model.requests) == 2
    (request,) = second.requests
    assert "tools" not in request
    assert "Rayleigh" in request["messages"][0]["content"]


def _text(answer: httpx.Response) -> str:
    """What an answer says, streamed or whole."""
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return said(answer)
    chunks = [json.loads(line) for line in answer.text.split("data: ")[1:] if not line.startswith("[DONE]")]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


def test_who_takes_over_is_asked_in_its_own_way(config: dict[str, Any], second: ModelServer) -> None:
    upstreams = [
        {**gone(), "models": ["m"], "fallback": ["off", "small"]},
        {"name": "off", "base_url": second.url, "models": ["x"], "mode": "off"},
        {"name": "small", "base_url": second.url, "models": ["y"], "tool_calls": "none", "rewrite_query": False},
    ]
    second.script(ANSWER)
    with Groundwire({**config, "upstreams": upstreams}) as proxy:
        answer = ask(proxy, "m")
    assert said(answer) == CITED
    assert answer.headers["x-groundwire-search"] == "offered; reason=auto; searched=first"
    (request,) = second.requests
    assert "tools" not in request
    assert "Rayleigh" in request["messages"][0]["content"]


def test_a_query_in_the_models_own_words_settles_nothing(
    config: dict[str, Any], model: ModelServer, second: ModelServer
) -> None:
    upstreams = [
        {"name": "a", "base_url": model.url, "models": ["m"], "tool_calls": "none", "fallback": ["b"]},
        {"name": "b", "base_url": second.url, "models": ["b"], "tool_calls": "none", "rewrite_query": False},
    ]
    model.script(text("sky blue"), BROKEN)
    second.script(ANSWER)
    with Groundwire({**config, "upstreams": upstreams}) as proxy:
        assert said(ask(proxy, "m")) == CITED


def test_the_last_one_may_fail(proxy: Groundwire, model: ModelServer, second: ModelServer) -> None:
    model.script(BROKEN)
    second.script(Turn(status=500, body=b'{"error":{"message":"the last word"}}'))
    answer = ask(proxy, "m")
    assert (answer.status_code, answer.json()["error"]["message"]) == (500, "the last word")


@pytest.mark.parametrize("status", [400, 404, 413])
def test_a_request_that_is_at_fault_goes_nowhere_else(
    proxy: Groundwire, model: ModelServer, second: ModelServer, status: int
) -> None:
    model.script(Turn(status=status, body=b'{"error":{"message":"no"}}'))
    second.script(text("Hello."))
    assert ask(proxy, "m").status_code == status
    assert not second.requests


def test_after_the_first_words_nobody_else_is_asked(proxy: Groundwire, model: ModelServer, second: ModelServer) -> None:
    model.script(text("Half an ", "answer", end="reset", finish=None, usage=None))
    second.script(text("Hello."))
    answer = ask(proxy, "m", stream=True)
    assert "Half an " in answer.text
    assert json.loads(answer.text.strip().split("data: ")[-1])["error"]["code"] == "upstream_truncated"
    assert not second.requests


def test_nor_in_a_later_round(proxy: Groundwire, model: ModelServer, second: ModelServer) -> None:
    model.script(SEARCH, BROKEN)
    second.script(text("Hello."))
    answer = ask(proxy, "m")
    assert answer.status_code == 503
    assert not second.requests


# Keys


@pytest.fixture(scope="module")
def keyed(proxy: Groundwire, model: ModelServer, second: ModelServer, config: dict[str, Any]) -> Iterator[Groundwire]:
    upstreams = [
        {"name": "own", "base_url": model.url, "api_key": "passthrough", "models": ["own"], "fallback": ["ours"]},
        {"name": "ours", "base_url": second.url, "api_key": "sk-second-key-of-ours"},
    ]
    with Groundwire({**config, "upstreams": upstreams, "server": {"keys": [OUR_KEY]}}) as running:
        yield running


BOTH = {"authorization": f"Bearer {THEIR_KEY}", "x-groundwire-key": OUR_KEY}


@pytest.mark.parametrize("search", ["on", "off"])
def test_a_clients_own_key_is_passed_on(proxy: Groundwire, model: ModelServer, search: str) -> None:
    model.script(text("Hello."))
    ask(proxy, "own", {"authorization": f"Bearer {THEIR_KEY}", "x-groundwire-search": search})
    assert model.heads[0]["authorization"] == f"Bearer {THEIR_KEY}"
    ask(proxy, "m", {"authorization": f"Bearer {THEIR_KEY}", "x-groundwire-search": search})
    assert model.heads[1]["authorization"] == "Bearer sk-first-key-of-ours", "only where the operator says so"


@pytest.mark.parametrize("search", ["on", "off"])
def test_ours_comes_in_its_own_header_and_goes_nowhere(
    keyed: Groundwire, model: ModelServer, second: ModelServer, search: str
) -> None:
    model.script(text("Hello."))
    assert ask(keyed, "own", {**BOTH, "x-groundwire-search": search}).status_code == 200
    assert model.heads[0]["authorization"] == f"Bearer {THEIR_KEY}"
    assert OUR_KEY not in str(model.heads)
    model.script(BROKEN)
    second.script(text("Hello."))
    assert said(ask(keyed, "own", {**BOTH, "x-groundwire-search": search})) == "Hello."
    assert second.heads[0]["authorization"] == "Bearer sk-second-key-of-ours", "a passed key never follows a fail-over"
    assert THEIR_KEY not in str(second.heads)


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {OUR_KEY}"},
        {"x-api-key": OUR_KEY, "authorization": f"Bearer {OUR_KEY}"},
        {"authorization": f"Bearer {OUR_KEY}", "x-groundwire-key": OUR_KEY},
    ],
)
def test_our_key_is_not_passed_on(keyed: Groundwire, model: ModelServer, headers: dict[str, str]) -> None:
    model.script(text("Hello."))
    for path, body in (("chat/completions", {"messages": QUESTION}), ("embeddings", {"input": "x"})):
        answer = httpx.post(f"{keyed.url}/{path}", json={"model": "own", **body}, headers=headers, timeout=20)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "upstream_key_missing"
        assert "X-Groundwire-Key" in answer.json()["error"]["message"]
    assert not model.requests
    assert ask(keyed, "own", {"authorization": f"Bearer {THEIR_KEY}"}).status_code == 401


@pytest.mark.parametrize("search", ["on", "off"])
@pytest.mark.parametrize("status", [401, 403])
def test_a_passed_key_that_is_refused_keeps_its_status(
    proxy: Groundwire, model: ModelServer, second: ModelServer, search: str, status: int
) -> None:
    model.script(Turn(status=status, body=b'{"error":{"message":"bad key","code":"invalid_api_key"}}'))
    second.script(text("Hello."))
    answer = ask(proxy, "own", {"authorization": f"Bearer {THEIR_KEY}", "x-groundwire-search": search})
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, "invalid_api_key")
    assert not second.requests


def test_a_passed_key_does_not_leave_in_a_query(proxy: Groundwire, model: ModelServer) -> None:
    model.script(call("web_search", {"query": f"who has {THEIR_KEY}"}), text("Nobody."))
    assert said(ask(proxy, "own", {"authorization": f"Bearer {THEIR_KEY}"})) == "Nobody."
    assert "must not leave" in model.requests[1]["messages"][-1]["content"]


@pytest.mark.parametrize("path", ["chat/completions", "embeddings"])
def test_without_a_key_of_its_own_nobody_is_let_through(
    proxy: Groundwire, model: ModelServer, second: ModelServer, path: str
) -> None:
    model.script(text("Hello."))
    second.script(text("Hello."))
    body = {"model": "own", "messages": QUESTION}
    answer = httpx.post(f"{proxy.url}/{path}", json=body, timeout=20)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "upstream_key_missing")
    assert not model.requests
    assert not second.requests


def test_keys_stay_out_of_the_log(keyed: Groundwire, model: ModelServer) -> None:
    model.script(Turn(status=401, body=THEIR_KEY.encode()))
    ask(keyed, "own", {**BOTH, "authorization": f"bearer {THEIR_KEY}"})
    assert "/v1/chat/completions 401" in keyed.log.read_text()
    assert not any(key in keyed.log.read_text() for key in (OUR_KEY, THEIR_KEY))
