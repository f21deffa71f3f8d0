"""Bodies that are no request, or only nearly one: each is refused with a reason or left to the upstream, and none of
them makes Groundwire fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, call, text

# One client, because reading the certificates anew for each request would take longer than the request.
CLIENT = httpx.Client(timeout=20, limits=httpx.Limits(max_keepalive_connections=0))


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
    answer = CLIENT.post(f"{proxy.url}/chat/completions", content=raw, headers=headers)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] in ("invalid_json", "invalid_type")
    assert error["message"].endswith(".")
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
    "a result of a list": {
        "messages": [{"role": "user", "content": "Hi"}, {"role": "tool", "tool_call_id": ["x"], "content": "y"}]
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
    sent = {"model": "m", "messages": [{"role": "user", "content": "Why is the sky blue?"}], **fields}
    headers = {"x-groundwire-search": search}
    answer = CLIENT.post(f"{proxy.url}/chat/completions", json=sent, headers=headers)
    assert answer.status_code in (200, 400), answer.text


def test_arguments_that_no_json_can_hold_reach_the_client(proxy: Groundwire, model: ModelServer) -> None:
    weather = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    model.script(call("weather", '{"city": "\\ud83d"}'))
    sent = {"model": "m", "messages": [{"role": "user", "content": "Weather?"}], "tools": [weather]}
    answer = CLIENT.post(f"{proxy.url}/chat/completions", json=sent)
    assert answer.status_code == 200, answer.text
    (called,) = answer.json()["choices"][0]["message"]["tool_calls"]
    assert called["function"]["name"] == "weather"


PROFILES = ("openai", "groq", "mistral", "deepseek", "gemini", "ollama", "anthropic", "bedrock", "cohere")


@pytest.fixture(scope="module")
def profiled(model: ModelServer, config: dict[str, Any]) -> Iterator[Groundwire]:
    """A model for each profile, by its name."""
    usual = {"type": "openai", "base_url": model.url, "api_key": "sk-upstream"}
    ways = [{**usual, "name": profile, "profile": profile, "models": [profile]} for profile in PROFILES]
    ways += [{**usual, "name": mode, "tool_calls": mode, "models": [mode]} for mode in ("prompted", "none")]
    with Groundwire({**config, "upstreams": ways}) as running:
        yield running


@pytest.mark.parametrize("calls", [True, 5, 1.5, "x", {"a": 1}, [5], [None, {"id": 5}]], ids=repr)
@pytest.mark.parametrize("profile", PROFILES)
def test_calls_of_another_kind_are_left_to_the_upstream(
    profiled: Groundwire, model: ModelServer, profile: str, calls: object
) -> None:
    """Whatever a profile changes in the messages."""
    model.script(text("Hello."))
    said = {"role": "assistant", "content": "Hm.", "tool_calls": calls}
    sent = {"model": profile, "messages": [said, {"role": "user", "content": "And?"}]}
    for search in ("on", "off"):
        headers = {"x-groundwire-search": search}
        answer = CLIENT.post(f"{profiled.url}/chat/completions", json=sent, headers=headers)
        assert answer.status_code == 200, answer.text
        assert model.requests[-1]["messages"][0]["tool_calls"] == calls


@pytest.mark.parametrize("calls", [True, 5, "x", {"a": 1}, [5]], ids=repr)
@pytest.mark.parametrize("mode", ["prompted", "none"])
def test_calls_of_another_kind_are_nothing_to_put_in_words(
    profiled: Groundwire, model: ModelServer, mode: str, calls: object
) -> None:
    model.script(text("Hello."))
    said = {"role": "assistant", "content": "Hm.", "tool_calls": calls}
    items = [said, {"role": "user", "content": "And?"}]
    tool = {"type": "function", "function": {"name": "f"}}
    answer = CLIENT.post(f"{profiled.url}/chat/completions", json={"model": mode, "messages": items, "tools": [tool]})
    assert answer.status_code == 200, answer.text
    assert all("tool_calls" not in message for message in model.requests[-1]["messages"])


@pytest.mark.parametrize(
    "raw", [b"", b"5", b"[1]", b"words", b"[" * 100_000, b'{"a":' * 70_000], ids=lambda raw: raw[:9]
)
def test_a_forwarded_body_that_names_no_model_stays_as_it_is(model: ModelServer, raw: bytes) -> None:
    """Under an alias for whatever model is named, too."""
    upstream = {"name": "scripted", "type": "openai", "base_url": model.url}
    model.script(text("Hello."))
    with Groundwire({"upstreams": [upstream], "providers": [], "aliases": {"*": "scripted/m"}}) as proxy:
        answer = CLIENT.post(f"{proxy.url}/embeddings", content=raw, headers={"content-type": "application/json"})
        assert answer.status_code != 500, answer.text
        assert raw in model.raw or answer.status_code == 502  # the scripted model reads no bodies that are too deep
