"""What a running Groundwire tells of its requests: a line of the log and the metrics for each, whichever way it went,
and neither for eyes that have no right to it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.log_lines import entry, line
from tests.fakes.model import ModelServer, Turn, call, text
from tests.fakes.samples import Samples

CLIENT = httpx.Client(timeout=20, limits=httpx.Limits(max_keepalive_connections=0))
ALICE, ADMIN = {"authorization": "Bearer gw-key-of-alice"}, {"authorization": "Bearer gw-key-of-the-admin"}
KEYS = [{"key": "gw-key-of-alice", "name": "alice"}, {"key": "gw-key-of-the-admin", "name": "chief", "admin": True}]
SEARCH_OFF = {"x-groundwire-search": "off"}
QUESTION = "Why is the sky blue, asks the patient?"
BUSY = Turn(status=503, body=b'{"error":{"message":"busy","code":"overloaded"}}')
MAX_BODY = 64 * 1024


@pytest.fixture(scope="module")
def spare() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture(scope="module")
def watched(config: dict[str, Any], model: ModelServer, spare: ModelServer) -> dict[str, Any]:
    """Three upstreams: one that calls tools, one that stands in for it, one that reads what was found for it."""
    upstreams = [
        {"name": "reader", "base_url": model.url, "models": ["reads-*"], "tool_calls": "none", "rewrite_query": False},
        {"name": "scripted", "base_url": model.url, "models": ["m", "m-*"], "fallback": ["spare"]},
        {"name": "lone", "base_url": model.url, "models": ["lone-*"]},
        {"name": "spare", "base_url": spare.url, "models": ["spare"]},
    ]
    return {
        **config,
        "upstreams": upstreams,
        "server": {"keys": KEYS, "max_body": MAX_BODY, "allowed_hosts": ["localhost"]},
        "log": {"format": "json"},
    }


@pytest.fixture(scope="module")
def proxy(watched: dict[str, Any]) -> Iterator[Groundwire]:
    with Groundwire(watched) as running:
        yield running


def post(proxy: Groundwire, path: str = "chat/completions", headers: Any = None, **fields: Any) -> httpx.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": QUESTION}], **fields}
    if path != "chat/completions":
        body = fields
    return CLIENT.post(f"{proxy.url}/{path}", json=body, headers={**ALICE, **(headers or {})})


def scraped(proxy: Groundwire, headers: Mapping[str, str] = ADMIN) -> Samples:
    answer = CLIENT.get(f"{proxy.root}/metrics", headers=dict(headers))
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return Samples(answer.content)


class Growth:
    """`with Growth(proxy) as grown: …; grown("name", label=…)`: how much a figure has grown."""

    def __init__(self, proxy: Groundwire) -> None:
        self._proxy = proxy
        self._before = scraped(proxy)

    def __call__(self, name: str, **labels: str) -> float:
        return scraped(self._proxy)(name, **labels) - self._before(name, **labels)


# Answers


def test_a_streamed_answer_with_a_search(proxy: Groundwire, model: ModelServer) -> None:
    model.script(call("web_search", {"query": "sky scatters"}), text("Light ", "scatters [1]."))
    grown = Growth(proxy)
    answer = post(proxy, stream=True)
    assert "library.example" in answer.text
    said = entry(proxy, answer)
    (search,) = said.pop("searches")
    assert search.pop("ms") >= 0
    assert search == {"provider": "library", "outcome": "ok", "cached": False}
    for name in ("time", "seconds", "first_content", "request"):
        assert said.pop(name)
    assert said == {
        "level": "info",
        "method": "POST",
        "path": "/v1/chat/completions",
        "status": 200,
        "key": "alice",
        "model": "m",
        "upstream": "scripted",
        "search": "offered",
        "reason": "auto",
        "rounds": 2,
        "citations": 1,
        "input_tokens": 20,
        "output_tokens": 10,
        "outcome": "ok",
    }
    chat, up = {"dialect": "chat"}, {"upstream": "scripted"}
    operation = {"gen_ai_operation_name": "chat", "gen_ai_provider_name": "scripted"}
    assert grown("groundwire_requests_total", **chat, **up, outcome="ok") == 1
    assert grown("groundwire_rounds_total", **up) == 2
    assert grown("groundwire_tool_calls_total", tool="web_search", provider="library", outcome="ok") == 1
    assert grown("groundwire_provider_seconds_count", tool="web_search", provider="library") == 1
    assert grown("groundwire_cache_answers_total", tool="web_search", result="miss") == 1
    assert grown("groundwire_citations_total", **chat) == 1
    assert grown("groundwire_tokens_total", **up, type="input") == 20
    assert grown("groundwire_tokens_total", **up, type="output") == 10
    assert grown("groundwire_first_token_seconds_count", **chat, **up) == 1
    assert grown("groundwire_overhead_seconds_count", **chat) == 1
    assert grown("gen_ai_client_operation_duration_seconds_count", **operation) == 2
    assert grown("gen_ai_client_token_usage_sum", **operation, gen_ai_token_type="input") == 20


def test_what_the_cache_answers(proxy: Groundwire, model: ModelServer) -> None:
    turns = (call("web_search", {"query": "salty sea rivers"}), text("Salt [1]."))
    model.script(*turns)
    post(proxy)
    grown = Growth(proxy)
    model.script(*turns)
    said = entry(proxy, post(proxy))
    assert [(search["provider"], search["cached"]) for search in said["searches"]] == [("library", True)]
    assert grown("groundwire_cache_answers_total", tool="web_search", result="hit") == 1
    assert grown("groundwire_provider_seconds_count", tool="web_search", provider="library") == 0


def overhead_of_a_slow_answer(proxy: Groundwire) -> float:
    """Of a client that takes its time with the body, and a model that takes its time with the answer."""
    grown = Growth(proxy)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": QUESTION}], "stream": True}).encode()

    def hesitating() -> Iterator[bytes]:
        yield body[:10]
        time.sleep(0.6)
        yield body[10:]

    headers = {**ALICE, "content-type": "application/json"}
    said = entry(proxy, CLIENT.post(f"{proxy.url}/chat/completions", content=hesitating(), headers=headers))
    assert grown("groundwire_first_token_seconds_sum", dialect="chat", upstream="scripted") >= 0.6
    overhead = grown("groundwire_overhead_seconds_sum", dialect="chat")
    assert 0 < overhead <= said["first_content"] - 0.6 + 0.01, "it is no time of the model's"
    return overhead


def test_a_call_that_no_provider_hears_of(proxy: Groundwire, model: ModelServer) -> None:
    model.script(call("open_page", {"url": "https://nobody-named.example/"}), call("web_search", {}), text("Blue."))
    said = entry(proxy, post(proxy))
    assert (said["failed_calls"], said["rounds"], said["outcome"]) == (2, 3, "ok")
    assert "searches" not in said
    assert "pages" not in said


def test_overhead_is_neither_the_models_time_nor_the_clients(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Slow.", delay=0.6))
    assert any(overhead_of_a_slow_answer(proxy) < 0.3 for _ in range(5)), "more than once, for a busy machine"


def test_a_whole_answer_has_no_first_content(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    grown = Growth(proxy)
    said = entry(proxy, post(proxy))
    assert (said["outcome"], said["input_tokens"], "first_content" in said) == ("ok", 10, False)
    assert grown("groundwire_first_token_seconds_count", dialect="chat", upstream="scripted") == 0
    assert grown("groundwire_overhead_seconds_count", dialect="chat") == 1


def test_responses_are_a_dialect_of_their_own(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    grown = Growth(proxy)
    said = entry(proxy, post(proxy, "responses", model="m", input=QUESTION, stream=True))
    assert (said["path"], said["upstream"], said["outcome"]) == ("/v1/responses", "scripted", "ok")
    assert grown("groundwire_requests_total", dialect="responses", upstream="scripted", outcome="ok") == 1


def test_a_search_before_the_question(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("It is scattered [1]."))
    said = entry(proxy, post(proxy, model="reads-1", stream=True))
    assert (said["search"], said["reason"], said["rounds"], said["upstream"]) == ("first", "auto", 1, "reader")
    assert [search["provider"] for search in said["searches"]] == ["library"]
    assert {page["provider"] for page in said["pages"]} == {"library"}
    model.script(text("You are welcome."))
    thanks = post(proxy, model="reads-1", messages=[{"role": "user", "content": "Thanks!"}])
    assert thanks.headers["x-groundwire-search"].startswith("off; reason=")
    said = entry(proxy, thanks)
    assert f"off; reason={said['reason']}" == thanks.headers["x-groundwire-search"]
    assert said["search"] == "off"


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("headers", [{}, SEARCH_OFF], ids=["answered", "forwarded"])
def test_after_a_fallback_both_upstreams_are_named(
    proxy: Groundwire, model: ModelServer, spare: ModelServer, headers: dict[str, str], stream: bool
) -> None:
    model.script(BUSY)
    spare.script(text("Blue."))
    grown = Growth(proxy)
    said = entry(proxy, post(proxy, headers=headers, stream=stream))
    assert said["model_failures"] == [{"upstream": "scripted", "status": 503}]
    assert (said["upstream"], said["model"], said["rounds"], said["outcome"]) == ("spare", "m", 2, "ok")
    assert (said["input_tokens"], said["output_tokens"]) == (10, 5)
    assert grown("groundwire_model_failures_total", upstream="scripted", status="5xx") == 1
    assert grown("groundwire_requests_total", dialect="chat", upstream="spare", outcome="ok") == 1
    assert (
        grown("groundwire_rounds_total", upstream="scripted") == grown("groundwire_rounds_total", upstream="spare") == 1
    )


@pytest.mark.parametrize("headers", [{}, SEARCH_OFF], ids=["answered", "forwarded"])
def test_a_model_that_fails_for_good(proxy: Groundwire, model: ModelServer, headers: dict[str, str]) -> None:
    model.script(Turn(status=400, body=json.dumps({"error": {"message": QUESTION, "code": QUESTION}}).encode()))
    grown = Growth(proxy)
    said = entry(proxy, post(proxy, headers=headers, model="lone-1"))
    assert (said["status"], said["upstream"], said["model"]) == (400, "lone", "lone-1")
    assert said["outcome"] == "error", "the code of a server may hold anything"
    assert said["model_failures"] == [{"upstream": "lone", "status": 400}]
    assert grown("groundwire_model_failures_total", upstream="lone", status="4xx") == 1
    assert grown("groundwire_requests_total", dialect="chat", upstream="lone", outcome="refused") == 1


# Forwarded


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_forwarded_answer(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(text("Blue ", "light."))
    grown = Growth(proxy)
    said = entry(proxy, post(proxy, headers=SEARCH_OFF, stream=stream))
    assert ("first_content" in said) == stream
    for name in ("time", "seconds", "first_content", "request"):
        said.pop(name, None)
    assert said == {
        "level": "info",
        "method": "POST",
        "path": "/v1/chat/completions",
        "status": 200,
        "key": "alice",
        "model": "m",
        "upstream": "scripted",
        "search": "off",
        "reason": "header",
        "rounds": 1,
        "input_tokens": 10,
        "output_tokens": 5,
        "outcome": "ok",
    }
    by = {"gen_ai_operation_name": "chat", "gen_ai_provider_name": "scripted"}
    assert grown("groundwire_tokens_total", upstream="scripted", type="output") == 5
    assert grown("groundwire_first_token_seconds_count", dialect="chat", upstream="scripted") == int(stream)
    assert grown("groundwire_overhead_seconds_count", dialect="chat") == 1
    assert grown("gen_ai_client_operation_duration_seconds_count", **by) == 1


def test_the_first_chunk_of_a_forwarded_stream_is_not_its_first_content(proxy: Groundwire, model: ModelServer) -> None:
    """A server says at once that it is the assistant who will speak, and speaks later."""
    model.script(text("Late.", delay=0.5))
    said = entry(proxy, post(proxy, headers=SEARCH_OFF, stream=True))
    assert said["first_content"] >= 0.4
    model.script(call("lookup", {"q": 1}))
    assert "first_content" in entry(proxy, post(proxy, headers=SEARCH_OFF, stream=True))


def test_embeddings(proxy: Groundwire, model: ModelServer) -> None:
    usage = {"prompt_tokens": 8, "total_tokens": 8}
    model.script(Turn(body=json.dumps({"object": "list", "data": [], "usage": usage}).encode()))
    grown = Growth(proxy)
    said = entry(proxy, post(proxy, "embeddings", model="m", input="sky"))
    assert (said["model"], said["upstream"], said["input_tokens"]) == ("m", "scripted", 8)
    by = {"gen_ai_operation_name": "embeddings", "gen_ai_provider_name": "scripted"}
    assert grown("gen_ai_client_token_usage_sum", **by, gen_ai_token_type="input") == 8
    assert grown("groundwire_requests_total", dialect="http", upstream="scripted", outcome="ok") == 1


@pytest.mark.parametrize(
    "usage",
    [
        b'{"prompt_tokens": Infinity, "completion_tokens": NaN}',
        b'{"prompt_tokens": -5, "completion_tokens": 1' + b"0" * 400 + b"}",
        b'{"prompt_tokens": "10", "completion_tokens": {"a": 1}}',
        b"[7]",
        b'{"a": ' + b"[" * 900 + b"]" * 900 + b"}",
    ],
    ids=["endless", "negative", "no numbers", "no object", "deep"],
)
@pytest.mark.parametrize("padding", [0, 100_000], ids=["short", "long"])
def test_odd_counts_of_tokens_do_no_harm(proxy: Groundwire, model: ModelServer, usage: bytes, padding: int) -> None:
    body = b'{"choices": [],' + b" " * padding + b'"usage": ' + usage + b"}"
    model.script(Turn(body=body))
    answer = post(proxy, headers=SEARCH_OFF)
    assert answer.content == body
    said = entry(proxy, answer)
    assert said["outcome"] == "ok"
    assert said["input_tokens"] + said["output_tokens"] < 1_000_000, "by what was asked and what has passed"


def test_an_error_in_a_forwarded_stream_is_the_outcome(proxy: Groundwire, model: ModelServer) -> None:
    events = b'data: {"choices":[{"index":0,"delta":{"content":"Blue"}}]}\n\ndata: {"error":{"message":"broke"}}\n\n'
    model.script(Turn(body=events, content_type="text/event-stream"))
    grown = Growth(proxy)
    said = entry(proxy, post(proxy, headers=SEARCH_OFF, stream=True))
    assert (said["status"], said["outcome"]) == (200, "upstream_error")
    assert grown("groundwire_requests_total", dialect="chat", upstream="scripted", outcome="failed") == 1


def test_a_forwarded_body_that_breaks_off_is_the_upstreams_fault(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Half", end="reset", finish=None, usage=None))
    said = entry(proxy, post(proxy, headers=SEARCH_OFF, stream=True))
    assert said["outcome"] == "upstream_truncated"
    assert said["model_failures"] == [{"upstream": "scripted", "status": 502}]


# Tools without a model


def test_the_tools_alone(proxy: Groundwire) -> None:
    grown = Growth(proxy)
    said = entry(proxy, post(proxy, "search", query="green tea"))
    assert [search["provider"] for search in said["searches"]] == ["library"]
    assert (said["outcome"], "upstream" in said, "rounds" in said) == ("ok", False, False)
    said = entry(proxy, post(proxy, "open", url=f"{SITE}sky.md"))
    assert [(page["provider"], page["outcome"]) for page in said["pages"]] == [("library", "ok")]
    assert grown("groundwire_tool_calls_total", tool="open_page", provider="library", outcome="ok") == 1
    assert grown("groundwire_overhead_seconds_count", dialect="http") == 2
    assert grown("groundwire_requests_total", dialect="http", upstream="", outcome="ok") >= 2


# Refused


def test_refusals(proxy: Groundwire) -> None:
    chat, json_type = f"{proxy.url}/chat/completions", {"content-type": "application/json"}
    cases = [
        (401, "invalid_api_key", None, CLIENT.post(chat, json={})),
        (413, "request_too_large", "alice", CLIENT.post(chat, content=b" " * 99_999, headers={**ALICE, **json_type})),
        (400, "invalid_json", "alice", CLIENT.post(chat, content=b"{", headers={**ALICE, **json_type})),
        (415, "unsupported_media_type", "alice", CLIENT.post(chat, content=b"{}", headers=ALICE)),
        (404, "model_not_found", "alice", post(proxy, model="nobody-serves-this")),
        (404, "not_found", "alice", CLIENT.get(f"{proxy.root}/nowhere", headers=ALICE)),
        (405, "wrong_method", None, CLIENT.delete(f"{proxy.root}/healthz")),
        (403, "admin_only", "alice", CLIENT.get(f"{proxy.root}/metrics", headers=ALICE)),
        (403, "host_not_allowed", None, CLIENT.get(f"{proxy.root}/healthz", headers={"host": "evil.example"})),
    ]
    for status, outcome, key, answer in cases:
        said = entry(proxy, answer)
        assert (answer.status_code, said["status"], said["outcome"]) == (status, status, outcome)
        assert (said.get("key"), "upstream" in said) == (key, False)
    refused = scraped(proxy)("groundwire_requests_total", dialect="http", upstream="", outcome="refused")
    assert refused >= 3


# Who leaves


@pytest.mark.parametrize("headers", [{}, SEARCH_OFF], ids=["answered", "forwarded"])
def test_a_client_that_leaves(proxy: Groundwire, model: ModelServer, headers: dict[str, str]) -> None:
    model.script(text("Blue ", "light", end="hang", finish=None))
    grown = Growth(proxy)
    body = {"model": "m", "messages": [{"role": "user", "content": QUESTION}], "stream": True}
    with CLIENT.stream("POST", f"{proxy.url}/chat/completions", json=body, headers={**ALICE, **headers}) as answer:
        lines = answer.iter_lines()
        assert any("light" in part for part in lines)
        assert grown("groundwire_streams") == 1
    said = entry(proxy, answer)
    assert (said["status"], said["outcome"], said["upstream"], said["model"]) == (200, "client_left", "scripted", "m")
    assert "first_content" in said
    assert grown("groundwire_requests_total", dialect="chat", upstream="scripted", outcome="client_left") == 1
    assert grown("groundwire_streams") == 0


def test_a_client_that_leaves_before_anything_was_said(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("never", delay=30))
    with pytest.raises(httpx.ReadTimeout):
        CLIENT.post(
            f"{proxy.url}/chat/completions",
            json={"model": "m-gone", "messages": [{"role": "user", "content": QUESTION}]},
            headers=ALICE,
            timeout=0.5,
        )
    said = json.loads(line(proxy, '"m-gone"'))
    assert (said["status"], said["outcome"], said["upstream"]) == (0, "client_left", "scripted")
