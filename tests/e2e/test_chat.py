"""Chat Completions through the whole house, over real sockets: what the client sees and what the model is asked."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, call, text

QUESTION = {"role": "user", "content": "Why is the sky blue?"}


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [QUESTION], **fields}


def post(proxy: Groundwire, **fields: Any) -> httpx.Response:
    headers = fields.pop("headers", {})
    return httpx.post(f"{proxy.url}/chat/completions", json=body(**fields), headers=headers, timeout=20)


def stream(proxy: Groundwire, **fields: Any) -> list[Any]:
    """The data of every event; `[DONE]` as text."""
    answer = post(proxy, stream=True, **fields)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    found = [line.removeprefix("data: ") for line in answer.text.split("\n") if line.startswith("data:")]
    return [item if item == "[DONE]" else json.loads(item) for item in found]


def content(chunks: list[Any]) -> str:
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c != "[DONE]" and c["choices"])


TWO_ROUNDS = (
    Turn(text=["Let me look. "], calls=[("c1", "web_search", {"query": "sky blue"})], reasoning=["hm"]),
    call("open_page", {"url": SITE + "sky.md"}, id="c2"),
    text("😀 空は青い", " because of ", "scattering [", "1", "].", " Unknown [77]."),
)


def test_two_rounds_streamed(proxy: Groundwire, model: ModelServer) -> None:
    model.script(*TWO_ROUNDS)
    chunks = stream(proxy, stream_options={"include_usage": True}, temperature=0.2, chat_template_kwargs={"a": 1})
    marker = f"[[1]]({SITE}sky.md)"
    assert content(chunks) == f"Let me look. 😀 空は青い because of scattering {marker}. Unknown [77]."
    assert chunks[-1] == "[DONE]"
    assert {c["id"] for c in chunks[:-1]} == {chunks[0]["id"]}
    finishing, usage = chunks[-3], chunks[-2]
    assert finishing["choices"][0]["finish_reason"] == "stop"
    (citation,) = finishing["choices"][0]["delta"]["annotations"]
    place = citation["url_citation"]
    assert content(chunks)[place["start_index"] : place["end_index"]] == marker
    assert (place["url"], place["title"]) == (SITE + "sky.md", "Why the sky is blue")
    assert finishing["search_results"][0]["url"] == SITE + "sky.md"
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == 45
    assert usage["usage"]["server_tool_use"] == {"web_search_requests": 1, "web_fetch_requests": 1}

    first, second, third = model.requests
    assert first["temperature"] == 0.2
    assert first["chat_template_kwargs"] == {"a": 1}
    assert first["messages"] == [QUESTION]
    assert [t["function"]["name"] for t in first["tools"]] == ["web_search", "open_page"]
    assert first["tools"] == second["tools"] == third["tools"]
    assert third["messages"][:3] == second["messages"], "the prefix stays the same, for prompt caches"
    assistant, result = second["messages"][1:]
    assert assistant["reasoning_content"] == "hm"
    assert result["tool_call_id"] == "c1"
    assert f"URL: {SITE}sky.md" in result["content"]
    assert "Rayleigh" in third["messages"][-1]["content"]
    assert model.heads[0]["authorization"] == "Bearer sk-upstream"


def test_the_same_not_streamed(proxy: Groundwire, model: ModelServer) -> None:
    model.script(*TWO_ROUNDS)
    answer = post(proxy)
    assert answer.headers["x-groundwire-search"] == "offered; reason=auto"
    assert answer.headers["x-request-id"].startswith("req_")
    found = answer.json()
    message = found["choices"][0]["message"]
    model.script(*TWO_ROUNDS)
    chunks = stream(proxy)
    assert message["content"] == content(chunks)
    assert message["annotations"] == chunks[-2]["choices"][0]["delta"]["annotations"]
    assert found["search_results"] == chunks[-2]["search_results"]
    assert found["usage"]["total_tokens"] == 45
    assert "web_search" not in json.dumps(found["choices"])


def test_tokens_arrive_while_the_model_still_writes(proxy: Groundwire, model: ModelServer) -> None:
    model.script(call("web_search", {"query": "sky"}), text(*(f"word{i} " for i in range(20)), delay=0.05))
    with httpx.stream("POST", f"{proxy.url}/chat/completions", json=body(stream=True), timeout=20) as answer:
        for line in answer.iter_lines():
            if "word0" in line:
                assert model.sent_pieces < 15, "the first token came before the second half was written"
                break
        else:
            raise AssertionError("no token came")


def test_many_events_in_one_network_read(proxy: Groundwire, model: ModelServer) -> None:
    model.script(call("web_search", {"query": "sky"}, glued=True), text("a", "b", "[1]", ". c", glued=True))
    chunks = stream(proxy)
    assert content(chunks) == f"ab[[1]]({SITE}sky.md). c"


def test_one_character_chunks(proxy: Groundwire, model: ModelServer) -> None:
    model.script(call("web_search", {"query": "sky sea"}), text(*"Blue [1], 青 [1][2]. `a[1]` x[1]"))
    chunks = stream(proxy)
    first, second = chunks[-2]["search_results"][:2]
    one, two = f"[[1]]({first['url']})", f"[[2]]({second['url']})"
    assert content(chunks) == f"Blue {one}, 青 {one}{two}. `a[1]` x[1]"
    places = [a["url_citation"] for a in chunks[-2]["choices"][0]["delta"]["annotations"]]
    assert [content(chunks)[p["start_index"] : p["end_index"]] for p in places] == [one, one, two]
    for chunk in chunks[:-1]:
        piece = chunk["choices"][0]["delta"].get("content") or ""
        assert piece.count("[[") == piece.count("]]("), "a marker is never split"


def test_parallel_and_equal_calls(proxy: Groundwire, model: ModelServer) -> None:
    calls = [
        ("a", "web_search", {"query": "sky"}),
        ("b", "web_search", {"query": "sea"}),
        ("c", "web_search", {"query": "sky"}),
        ("d", "web_search", "not json"),
        ("e", "frobnicate", {}),
    ]
    model.script(Turn(calls=calls), text("Done."))
    usage = post(proxy).json()["usage"]
    results = model.requests[1]["messages"][2:]
    assert [r["tool_call_id"] for r in results] == ["a", "b", "c", "d", "e"]
    assert "sky.md" in results[0]["content"]
    assert "sea.md" in results[1]["content"]
    assert results[0]["content"] == results[2]["content"]
    assert "was not run" in results[3]["content"]
    assert "web_search, open_page" in results[4]["content"]
    assert usage["server_tool_use"]["web_search_requests"] == 2


def test_an_endless_caller_gets_an_answer(proxy: Groundwire, model: ModelServer) -> None:
    searches = [call("web_search", {"query": f"sky {i}"}, id=f"c{i}") for i in range(6)]
    model.script(*searches, text("At last."))
    chunks = stream(proxy)
    assert content(chunks) == "At last."
    assert len(model.requests) == 7
    assert model.requests[6]["tool_choice"] == "none"


def test_client_calls_come_through_and_ours_do_not(proxy: Groundwire, model: ModelServer) -> None:
    weather = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    model.script(Turn(calls=[("a", "web_search", {"query": "sky"}), ("b", "weather", {"city": "Bern"})]))
    chunks = stream(proxy, tools=[weather])
    parts = [p for c in chunks[:-1] for p in c["choices"][0]["delta"].get("tool_calls") or ()]
    assert {p["index"] for p in parts} == {0}
    assert parts[0]["function"]["name"] == "weather"
    assert json.loads("".join(p["function"]["arguments"] for p in parts)) == {"city": "Bern"}
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert "web_search" not in json.dumps(chunks)


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("web_search", "off; reason=client_search"),
        ("brave_web_search", "off; reason=client_search"),
        ("searchTheWeb", "off; reason=client_search"),
        ("deep_research_web", "offered; reason=auto"),
        ("search_website", "offered; reason=auto"),
        ("search_google_drive", "offered; reason=auto"),
    ],
)
def test_search_steps_aside_for_a_function_that_is_one(
    proxy: Groundwire, model: ModelServer, name: str, header: str
) -> None:
    model.script(text("Hello."))
    function = {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    assert post(proxy, tools=[function]).headers["x-groundwire-search"] == header


def test_a_clients_own_number_is_not_ours(proxy: Groundwire, model: ModelServer) -> None:
    model.script(call("web_search", {"query": "sky"}), text("Old [1], new [4]."))
    asked = [{"role": "user", "content": "My list says [1] and [3]. Why is the sky blue?"}]
    chunks = stream(proxy, messages=asked)
    assert content(chunks) == f"Old [1], new [[1]]({SITE}sky.md)."
    assert "[4] Why the sky is blue" in model.requests[1]["messages"][-1]["content"]


def test_the_next_turn_keeps_numbers_and_loses_decoration(proxy: Groundwire, model: ModelServer) -> None:
    model.script(call("web_search", {"query": "sea"}), text("As said [1], and [2]."))
    earlier = {
        "role": "assistant",
        "content": f"Blue [[1]]({SITE}sky.md).",
        "annotations": [{"type": "url_citation", "url_citation": {"url": SITE + "sky.md", "title": "T"}}],
    }
    chunks = stream(proxy, messages=[QUESTION, earlier, {"role": "user", "content": "And the sea?"}])
    assert model.requests[0]["messages"][1] == {"role": "assistant", "content": "Blue [1]."}
    assert content(chunks) == f"As said [[1]]({SITE}sky.md), and [[2]]({SITE}sea.md)."


def test_a_url_is_the_same_in_text_and_annotation(proxy: Groundwire, model: ModelServer) -> None:
    model.script(call("web_search", {"query": "green tea"}), text("At 80 degrees [1]."))
    chunks = stream(proxy)
    place = chunks[-2]["choices"][0]["delta"]["annotations"][0]["url_citation"]
    assert place["url"] == SITE + "tea%20%28green%29.md"
    assert f"[[1]]({place['url']})" in content(chunks)


def test_json_answers_when_asked_with_search(proxy: Groundwire, model: ModelServer) -> None:
    model.script(call("web_search", {"query": "sky"}), text("I know enough."), text('{"why": ["scattering", [1]]}'))
    chunks = stream(proxy, web_search_options={}, response_format={"type": "json_object"})
    assert content(chunks) == '{"why": ["scattering", [1]]}'
    assert [r.get("response_format") for r in model.requests] == [None, None, {"type": "json_object"}]
    assert "web_search_options" not in model.requests[0]


def test_where_the_answer_has_a_format_nobody_is_told_to_cite(proxy: Groundwire, model: ModelServer) -> None:
    calls = call("web_search", {"query": "sky"}), call("open_page", {"url": SITE + "sky.md"}, id="b")
    model.script(*calls, text("I know enough."), text('{"why": "scattering"}'))
    answer = post(proxy, web_search_options={}, response_format={"type": "json_object"}).json()
    assert [r["url"] for r in answer["search_results"]] == [SITE + "sky.md"]
    for request in model.requests:
        assert not re.search("cite|square brackets", json.dumps(request), re.IGNORECASE)
    model.script(*calls, text("x"))
    post(proxy, web_search_options={})
    told = json.dumps(model.requests[2])
    assert (told.count("Cite what you use"), told.count("To cite a source")) == (2, 2)


def test_search_context_size_is_the_number_of_results(proxy: Groundwire, model: ModelServer) -> None:
    model.script(call("web_search", {"query": "sky sea tea why green blue"}), text("x"))
    post(proxy, web_search_options={"search_context_size": "low"})
    assert "\n[3] " in model.requests[1]["messages"][-1]["content"]


def test_online_suffix_asks_and_is_taken_off(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("x"))
    answer = post(proxy, model="m:online")
    assert answer.headers["x-groundwire-search"] == "offered; reason=model_suffix"
    assert model.requests[0]["model"] == "m"


# What gets no tools goes through as it is


def test_a_request_without_our_tools_goes_up_byte_for_byte(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("plain ", "[1]"))
    raw = (
        b'{ "model":"m",  "messages":[{"role":"user","content":"[1] \\u00e9"}], "x_new": {"b":1,"a":2}, "stream":true }'
    )
    headers = {"content-type": "application/json", "x-groundwire-search": "off", "cookie": "secret=1"}
    answer = httpx.post(f"{proxy.url}/chat/completions", content=raw, headers=headers, timeout=10)
    assert model.raw[0] == raw
    assert answer.headers["x-groundwire-search"] == "off; reason=header"
    assert "x-groundwire-search" not in model.heads[0]
    assert "cookie" not in model.heads[0]
    assert answer.text.endswith("data: [DONE]\n\n")
    assert '"plain "' in answer.text


def test_only_what_we_alone_understand_is_changed(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("x"))
    tools = [{"type": "web_search"}, {"type": "function", "function": {"name": "f"}}]
    post(proxy, tools=tools, tool_choice={"type": "function", "function": {"name": "f"}}, x=1)
    assert model.requests[0] == body(tools=tools[1:], tool_choice={"type": "function", "function": {"name": "f"}}, x=1)


@pytest.mark.parametrize(
    "path", ["completions", "embeddings", "rerank", "moderations", "images/generations", "audio/speech"]
)
def test_other_paths_are_forwarded(proxy: Groundwire, model: ModelServer, path: str) -> None:
    model.script(Turn(body=b'{"ok": [1]}'))
    answer = httpx.post(f"{proxy.url}/{path}?a=b", json={"model": "m", "input": "x"}, timeout=10)
    assert (answer.status_code, answer.content) == (200, b'{"ok": [1]}')
    assert model.paths == [f"/v1/{path}?a=b"]
    assert model.heads[0]["authorization"] == "Bearer sk-upstream"


def test_forms_are_forwarded_to_audio(proxy: Groundwire, model: ModelServer) -> None:
    model.script(Turn(body=b'{"text": "hello"}'))
    sent = {"files": {"file": ("a.wav", b"RIFF")}, "data": {"model": "m"}}
    assert httpx.post(f"{proxy.url}/audio/transcriptions", timeout=10, **sent).json() == {"text": "hello"}
    assert b"RIFF" in model.raw[0]
    cross_site = httpx.post(f"{proxy.url}/audio/transcriptions", headers={"origin": "https://evil.example"}, **sent)
    assert cross_site.status_code == 415


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "files"),
        ("GET", "files"),
        ("DELETE", "files/x"),
        ("GET", "embeddings"),
        ("POST", "audio/../files"),
        ("POST", "audio/%2e%2e/files"),
        ("POST", "audio//x"),
        ("POST", "audio/..%2ffiles"),
        ("POST", "images/%252e%252e/files"),
        ("POST", "images/.%09./files"),
        ("POST", "images/x%3Fy"),
        ("POST", "images/x%23y"),
        ("POST", "nothing"),
    ],
)
def test_every_other_path_is_404(proxy: Groundwire, model: ModelServer, method: str, path: str) -> None:
    model.script(Turn(body=b"{}"))
    host, port = proxy.root.removeprefix("http://").split(":")
    lines = [f"{method} /v1/{path} HTTP/1.1", f"Host: {host}:{port}", "Content-Type: application/json"]
    lines += ["Content-Length: 13", "Connection: close", "", '{"model":"m"}']
    answer = raw_exchange(host, int(port), "\r\n".join(lines).encode())
    assert answer.startswith(b"HTTP/1.1 404")
    assert b'"code":"not_found"' in answer
    assert model.paths == []


def raw_exchange(host: str, port: int, data: bytes) -> bytes:
    with socket.create_connection((host, port), timeout=10) as connection:
        connection.sendall(data)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
        return b"".join(parts)


def test_models(proxy: Groundwire) -> None:
    listed = httpx.get(f"{proxy.url}/models").json()
    assert [m["id"] for m in listed["data"]] == ["m", "vendor/m"]
    assert httpx.get(f"{proxy.url}/models/vendor%2Fm").json()["id"] == "vendor/m"
    missing = httpx.get(f"{proxy.url}/models/none")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"


def test_health(proxy: Groundwire) -> None:
    assert httpx.get(f"{proxy.root}/healthz").json() == {"status": "ok"}
    assert httpx.get(f"{proxy.root}/readyz").status_code == 200
    assert httpx.get(f"{proxy.root}/elsewhere").json()["error"]["code"] == "not_found"


@pytest.mark.parametrize("listing", [5, "m", {"id": "m"}, None, True])
def test_a_list_of_models_that_is_none_is_empty(config: dict[str, Any], listing: Any) -> None:
    with ModelServer() as odd:
        odd.listing = listing
        with Groundwire({**config, "upstreams": [{"name": "odd", "base_url": odd.url}]}) as proxy:
            assert httpx.get(f"{proxy.url}/models", timeout=10).json() == {"object": "list", "data": []}


# Modes


def test_a_listed_path_goes_only_to_those_who_list_it(config: dict[str, Any], model: ModelServer) -> None:
    with ModelServer() as other:
        one = {**config["upstreams"][0], "name": "a", "models": ["a-*"]}
        two = {"name": "b", "base_url": other.url, "models": ["b-*"], "forward": ["/v1/files/*"]}
        with Groundwire({**config, "upstreams": [one, two]}) as proxy:
            for server in (model, other):
                server.script(Turn(body=b'{"ok": true}'))
            headers = {"content-type": "application/json", "openai-beta": "x"}
            for content in (b'{"model":"a-1"}', b'{"model":"b-1"}', b""):
                answer = httpx.request("DELETE", f"{proxy.url}/files/f1", content=content, headers=headers)
                assert answer.json() == {"ok": True}
            assert model.paths == []
            assert other.paths == ["/v1/files/f1"] * 3
            assert {head["openai-beta"] for head in other.heads} == {"x"}


def test_repeated_headers_of_an_answer_all_come_down(proxy: Groundwire, model: ModelServer) -> None:
    limits = {"x-ratelimit-policy": "burst;w=1", "X-RateLimit-Policy": "sustained;w=60", "Set-Cookie": "session=theirs"}
    model.script(Turn(body=b'{"data": []}', headers=limits))
    answer = httpx.post(f"{proxy.url}/embeddings", json={"model": "m", "input": "x"}, timeout=10)
    assert answer.headers["x-ratelimit-policy"] == "burst;w=1, sustained;w=60"
    assert "set-cookie" not in answer.headers, "a session of the operator's, and nobody else's"
    model.script(Turn(status=400, body=b'{"error": {"message": "no", "type": "t", "code": "c"}}', headers=limits))
    refused = httpx.post(f"{proxy.url}/embeddings", json={"model": "m", "input": "x"}, timeout=10)
    assert refused.status_code == 400
    assert refused.headers["x-ratelimit-policy"] == "burst;w=1, sustained;w=60"


def test_repeated_headers_of_a_request_all_go_up(proxy: Groundwire, model: ModelServer) -> None:
    model.script(Turn(body=b'{"data": []}'))
    headers = [("content-type", "application/json"), ("openai-beta", "a=v1"), ("openai-beta", "b=v2")]
    httpx.post(f"{proxy.url}/embeddings", content=b'{"model":"m","input":"x"}', headers=headers, timeout=10)
    assert model.heads[0]["openai-beta"] == "a=v1, b=v2"


def test_streams_that_are_not_completions_are_left_alone(proxy: Groundwire, model: ModelServer) -> None:
    events = b'data: {"type":"image_generation.completed"}\n\n'
    model.script(Turn(body=events, content_type="text/event-stream"))
    answer = httpx.post(f"{proxy.url}/images/generations", json={"model": "m", "stream": True}, timeout=10)
    assert answer.content == events


def test_what_spoke_of_tools_goes_with_the_last_of_them(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("x"))
    asked = {"tools": [{"type": "web_search"}], "tool_choice": "auto", "parallel_tool_calls": True}
    post(proxy, **asked, headers={"x-groundwire-search": "off"})
    assert model.requests[0] == body()


def test_custom_tools_go_up_as_they_are_and_search_steps_aside(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("x"))
    custom = {"type": "custom", "custom": {"name": "patch"}}
    answer = post(proxy, tools=[custom, {"type": "web_search"}], web_search_options={})
    assert (answer.status_code, answer.headers["x-groundwire-search"]) == (200, "off; reason=custom_tools")
    assert model.requests[0] == body(tools=[custom])


def test_stream_options_are_dropped_for_a_server_that_refuses_them(config: dict[str, Any], model: ModelServer) -> None:
    refusal = {"error": {"message": "Unrecognized request argument supplied: stream_options", "type": "x"}}
    with Groundwire(config) as proxy:
        model.script(Turn(status=400, body=json.dumps(refusal).encode()), text("Hi."))
        assert content(stream(proxy)) == "Hi."
        model.script(text("Hi again."))
        assert content(stream(proxy)) == "Hi again."
        assert "stream_options" not in model.requests[0], "it is remembered"


def test_one_connection_serves_all_rounds(config: dict[str, Any], model: ModelServer) -> None:
    with Groundwire(config) as proxy:
        for _ in range(3):
            model.script(call("web_search", {"query": "sky"}, late_end=True), text("Blue.", late_end=True))
            before = model.connections
            stream(proxy)
        assert model.connections == before, "the third answer opened no connection of its own"


@pytest.fixture(scope="module")
def quiet(config: dict[str, Any]) -> Iterator[Groundwire]:
    with Groundwire({**config, "tools": {"mode": "off"}}) as running:
        yield running


def test_mode_off_leaves_hosted_fields_alone(quiet: Groundwire, model: ModelServer) -> None:
    model.script(text("x"))
    answer = post(quiet, model="m:online", web_search_options={}, tools=[{"type": "web_search"}])
    assert answer.headers["x-groundwire-search"] == "off; reason=mode_off"
    assert model.requests[0] == body(model="m:online", web_search_options={}, tools=[{"type": "web_search"}])
