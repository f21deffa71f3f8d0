"""`/v1/responses` through the whole house: what a client may ask for, what it gets, and what the model reads of it.
What is remembered between requests is in test_responses_memory.py.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.e2e.test_mixed_turns import last_read, read
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, call, text
from tests.unit.responses_scripts import payloads, short, text_of

QUESTION = "Why is the sky blue?"
USER = f"user {QUESTION}"
LINK = f"[[1]]({SITE}sky.md)"
HOSTED = {"type": "web_search"}
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}
SEARCH = Turn(calls=[("a", "web_search", {"query": "sky"})])
BOTH_WAYS = pytest.mark.parametrize("stream", [True, False])


def post(proxy: Groundwire, input_: Any = QUESTION, *, key: str = "", **fields: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    sent = {"model": "m", "input": input_, **fields}
    return httpx.post(f"{proxy.url}/responses", json=sent, headers=headers, timeout=20)


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    sent = payloads(answer.content.replace(b": ping\n\n", b""))
    assert [event["sequence_number"] for event in sent] == list(range(len(sent)))
    return sent


def respond(proxy: Groundwire, input_: Any = QUESTION, *, stream: bool = False, **fields: Any) -> dict[str, Any]:
    """The finished response, of a stream from its last event."""
    answer = post(proxy, input_, stream=stream, **fields)
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = events(answer)[-1]["response"] if stream else answer.json()
    return response


def kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


def error_of(answer: httpx.Response) -> dict[str, Any]:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return dict(error)


# What comes in


@pytest.mark.parametrize(
    ("items", "messages"),
    [
        (QUESTION, [USER]),
        ([{"role": "user", "content": QUESTION}], [USER]),
        ([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": QUESTION}]}], [USER]),
        (
            [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": "Hello."},
                {"role": "assistant", "content": "Hi."},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "You there?"}]},
                {"type": "reasoning", "id": "rs_nobodys", "summary": []},
                {"role": "user", "content": QUESTION},
            ],
            ["developer Be brief.", "user Hello.", "assistant Hi.\n\nYou there?", USER],
        ),
    ],
    ids=["string", "without type", "with type", "conversation"],
)
def test_input_in_all_its_forms(proxy: Groundwire, model: ModelServer, items: Any, messages: list[str]) -> None:
    model.script(text("Blue."))
    assert text_of(respond(proxy, items)) == "Blue."
    assert last_read(model) == messages


def test_an_image_goes_up(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("A sky."))
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}
    respond(proxy, [{"role": "user", "content": [{"type": "input_text", "text": "What is it?"}, image]}])
    assert model.requests[0]["messages"][0]["content"] == [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
    ]


def test_the_clients_own_calls_and_outputs(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("It rains."))
    called = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Bern"}'}
    output = {"type": "function_call_output", "call_id": "c1", "output": "Rain"}
    respond(proxy, [{"role": "user", "content": QUESTION}, called, output], tools=[WEATHER])
    assert last_read(model) == [USER, "assistant - c1=weather", "tool c1 Rain"]
    assert model.requests[0]["tools"][0] == {
        "type": "function",
        "function": {key: value for key, value in WEATHER.items() if key != "type"},
    }
    orphan = post(proxy, [{"role": "user", "content": QUESTION}, output])
    assert (orphan.status_code, error_of(orphan)["param"]) == (400, "input[1].call_id")


def test_fields_go_up_by_their_names_in_chat(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    fields: dict[str, Any] = {"max_output_tokens": 50, "temperature": 0.5, "metadata": {"a": "b"}, "truncation": "auto"}
    response = respond(proxy, reasoning={"effort": "low"}, parallel_tool_calls=False, **fields)
    sent = model.requests[0]
    assert (sent["max_completion_tokens"], sent["temperature"], sent["reasoning_effort"]) == (50, 0.5, "low")
    assert not sent.keys() & {"max_output_tokens", "metadata", "truncation", "input", "reasoning", "store"}
    assert {key: response[key] for key in fields} == fields, "the object repeats them"
    assert (response["status"], response["model"], response["tools"]) == ("completed", "m-1", [])


def test_a_hosted_tool_that_is_not_here(proxy: Groundwire) -> None:
    answer = post(proxy, tools=[HOSTED, {"type": "file_search"}], tool_choice={"type": "file_search"})
    assert answer.status_code == 400
    assert (error_of(answer)["param"], error_of(answer)["type"]) == ("tool_choice", "invalid_request_error")


@BOTH_WAYS
def test_tools_that_only_their_vendor_can_run_are_left_out(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(text("Blue."))
    vendors = [{"type": "file_search", "vector_store_ids": ["v"]}, {"type": "mcp", "server_label": "x"}]
    answer = post(proxy, tools=[WEATHER, *vendors], stream=stream)
    assert answer.headers["x-groundwire-search"] == "offered; reason=auto; left_out=file_search,mcp"
    names = [tool["function"]["name"] for tool in model.requests[0]["tools"]]
    assert names == ["weather", "web_search", "open_page"]


def test_a_list_of_no_tools_is_no_question_for_the_web(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    assert post(proxy, tools=[]).headers["x-groundwire-search"] == "off; reason=background"
    assert "tools" not in model.requests[0]
    assert post(proxy).headers["x-groundwire-search"] == "offered; reason=auto"


PATCH = {"type": "custom", "name": "patch", "description": "Edits."}
FILES = {"type": "namespace", "name": "files", "tools": [PATCH, {**WEATHER, "name": "read"}]}


@BOTH_WAYS
def test_namespaces_and_custom_tools(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    tools = [PATCH, FILES, WEATHER]
    made = [("p", "files__patch", {"input": "-a\n+é"}), ("q", "patch", "bare"), ("r", "read", {"x": 1})]
    model.script(Turn(calls=[*SEARCH.calls, *made]), text("Done."), text("Sure."))
    answer = post(proxy, tools=tools, stream=stream)
    response = events(answer)[-1]["response"] if stream else answer.json()
    named = [(item["type"], item["name"], item.get("namespace")) for item in response["output"]]
    assert named == [
        ("custom_tool_call", "patch", "files"),
        ("custom_tool_call", "patch", None),
        ("function_call", "read", "files"),
    ]
    assert [item.get("input") for item in response["output"]] == ["-a\n+é", "bare", None]
    if stream:
        deltas = [e for e in events(answer) if e["type"] == "response.custom_tool_call_input.delta"]
        assert "".join(e["delta"] for e in deltas if e["output_index"] == 0) == "-a\n+é"
        assert len([e for e in deltas if e["output_index"] == 0]) > 1, "it is sent as it is written"
    results = [
        {"type": f"{kind}_output", "call_id": item["call_id"], "output": f"{n} done"}
        for n, (item, kind) in enumerate(
            zip(response["output"], ["custom_tool_call"] * 2 + ["function_call"], strict=True)
        )
    ]
    read_now = [
        *(USER, "assistant - a=web_search p=files__patch q=patch r=read"),
        *("tool a sky.md", "tool p 0 done", "tool q 1 done", "tool r 2 done"),
    ]
    two = respond(proxy, results, tools=tools, previous_response_id=response["id"], stream=stream)
    assert last_read(model) == read_now
    again = [{"role": "user", "content": QUESTION}, *response["output"], *results]
    respond(proxy, again, tools=tools, store=False, stream=stream)
    assert last_read(model) == read_now
    called = [call["function"]["arguments"] for call in model.requests[-1]["messages"][1]["tool_calls"]]
    assert [json.loads(arguments) for arguments in called[1:3]] == [{"input": "-a\n+é"}, {"input": "bare"}]
    respond(proxy, "Sure?", tools=[FILES], previous_response_id=two["id"], stream=stream)
    assert last_read(model) == [
        *(USER, "assistant - a=web_search p=patch q=patch r=read", *read_now[2:]),
        *("assistant Done.", "user Sure?"),
    ], "now that no other tool is called so"


# What comes out


def test_a_search_and_an_answer_event_by_event(proxy: Groundwire, model: ModelServer) -> None:
    model.script(SEARCH, text("Blue ", "[", "1", "]"))
    sent = events(post(proxy, stream=True, tools=[HOSTED]))
    told = [name for name, _ in groupby(short(sent))]  # how many deltas there are is the network's affair
    assert told == [
        *("created", "in_progress"),
        *("output_item.added 0", "web_search_call.in_progress 0", "web_search_call.searching 0"),
        *("web_search_call.completed 0", "output_item.done 0", "output_item.added 1", "content_part.added 1"),
        *("output_text.delta 1", "output_text.annotation.added 1", "output_text.done 1"),
        *("content_part.done 1", "output_item.done 1", "completed"),
    ]
    response = sent[-1]["response"]
    done = [event["item"] for event in sent if event["type"] == "response.output_item.done"]
    assert response["output"] == done
    assert {event["response"]["id"] for event in sent if "response" in event} == {response["id"]}
    assert "".join(event["delta"] for event in sent if "delta" in event) == text_of(response) == f"Blue {LINK}"
    (mark,) = response["output"][1]["content"][0]["annotations"]
    assert text_of(response)[mark["start_index"] : mark["end_index"]] == LINK
    assert (mark["type"], mark["url"], mark["title"]) == ("url_citation", SITE + "sky.md", "Why the sky is blue")
    assert response["output"][0]["action"] == {"type": "search", "query": "sky", "queries": ["sky"]}
    assert response["tools"][0]["type"] == "web_search"
    assert "open_page" not in json.dumps(sent)


@BOTH_WAYS
def test_usage(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    opened = call("open_page", {"url": SITE + "sky.md"}, id="p")
    model.script(SEARCH, call("web_search", {"query": "sea"}, id="b"), opened, text("Blue [1]."))
    response = respond(proxy, stream=stream, tools=[HOSTED])
    assert kinds(response) == ["web_search_call"] * 3 + ["message"]
    usage = response["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (40, 20, 60)
    assert response["tool_usage"]["web_search"] == {"num_requests": 2}
    assert response["output"][2]["action"] == {"type": "open_page", "url": SITE + "sky.md"}


@BOTH_WAYS
def test_what_the_search_found_is_told_on_request(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(SEARCH, text("Blue."))
    include = ["web_search_call.action.sources", "web_search_call.results"]
    searched = respond(proxy, stream=stream, tools=[HOSTED], include=include)["output"][0]
    assert searched["action"]["sources"][0] == {"type": "url", "url": SITE + "sky.md"}
    assert searched["results"][0]["title"] == "Why the sky is blue"
    model.script(SEARCH, text("Blue."))
    searched = respond(proxy, stream=stream, tools=[HOSTED])["output"][0]
    assert "sources" not in searched["action"]
    assert "results" not in searched


def test_a_mixed_turn_shows_the_search_and_the_call(proxy: Groundwire, model: ModelServer) -> None:
    model.script(Turn(text=["Wait."], reasoning=["hm"], calls=[*SEARCH.calls, ("b", "weather", {})]))
    response = respond(proxy, stream=True, tools=[WEATHER, HOSTED])
    assert sorted(kinds(response)) == ["function_call", "message", "reasoning", "web_search_call"]
    assert {item["status"] for item in response["output"] if "status" in item} == {"completed"}
    assert response["status"] == "completed"
    called = next(item for item in response["output"] if item["type"] == "function_call")
    assert (called["name"], called["arguments"], called["call_id"][:4]) == ("weather", "{}", "b_gw")


# Choices and limits


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [HOSTED if name == "web_search" else {"type": "function", "name": name} for name in names]
    return {"type": "allowed_tools", "mode": mode, "tools": tools}


def nested(mode: str, *names: str) -> dict[str, Any]:
    """The same as Chat Completions has it."""
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.mark.parametrize(
    ("choice", "up", "ours"),
    [
        ("auto", "auto", True),
        ("none", "none", False),
        ("required", "required", True),
        ({"type": "function", "name": "weather"}, {"type": "function", "function": {"name": "weather"}}, False),
        ({"type": "web_search"}, {"type": "function", "function": {"name": "web_search"}}, True),
        ({"type": "web_search_preview"}, {"type": "function", "function": {"name": "web_search"}}, True),
        (allowed("auto", "weather"), nested("auto", "weather"), False),
        (allowed("auto", "web_search"), nested("auto", "web_search", "open_page"), True),
        (allowed("required", "weather", "web_search"), nested("required", "weather", "web_search", "open_page"), True),
    ],
    ids=["auto", "none", "required", "function", "hosted", "preview", "allowed function", "allowed search", "both"],
)
def test_tool_choice(proxy: Groundwire, model: ModelServer, choice: Any, up: Any, ours: bool) -> None:
    model.script(text("Blue."))
    response = respond(proxy, tools=[WEATHER, HOSTED], tool_choice=choice)
    assert response["tool_choice"] == choice
    names = [tool["function"]["name"] for tool in model.requests[0]["tools"]]
    assert names == ["weather", *(["web_search", "open_page"] if ours else [])]
    assert model.requests[0]["tool_choice"] == up


def test_a_forced_search_is_free_once_it_ran(proxy: Groundwire, model: ModelServer) -> None:
    model.script(SEARCH, text("Blue [1]."))
    assert text_of(respond(proxy, tools=[HOSTED], tool_choice=HOSTED)) == f"Blue {LINK}."
    assert model.requests[1]["tool_choice"] == "auto"
    missing = post(proxy, tools=[WEATHER], tool_choice=HOSTED)
    assert (missing.status_code, error_of(missing)["param"]) == (400, "tool_choice")


@BOTH_WAYS
def test_no_more_searches_than_wanted(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(SEARCH, call("web_search", {"query": "sea"}, id="b"), text("Blue [1]."))
    response = respond(proxy, stream=stream, tools=[HOSTED], max_tool_calls=1)
    assert kinds(response) == ["web_search_call", "message"]
    assert text_of(response) == f"Blue {LINK}."
    assert response["tool_usage"]["web_search"] == {"num_requests": 1}
    assert b"sea.md" not in b"".join(model.raw)


def test_without_live_access_no_page_is_opened(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    respond(proxy, tools=[{**HOSTED, "external_web_access": False}])
    assert [tool["function"]["name"] for tool in model.requests[0]["tools"]] == ["web_search"]


@BOTH_WAYS
def test_a_format_with_search(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    schema = {"name": "why", "schema": {"type": "object"}, "strict": True}
    model.script(SEARCH, text("I know enough."), text('{"why": "scattering [1]"}'))
    response = respond(proxy, stream=stream, tools=[HOSTED], text={"format": {"type": "json_schema", **schema}})
    assert text_of(response) == '{"why": "scattering [1]"}'
    formats = [request.get("response_format") for request in model.requests]
    assert formats == [None, None, {"type": "json_schema", "json_schema": schema}]
    assert kinds(response) == ["web_search_call", "message"]


@BOTH_WAYS
def test_an_answer_that_was_cut(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(SEARCH, text("Blue as", finish="length"))
    answer = post(proxy, stream=stream, max_output_tokens=16)
    response = events(answer)[-1]["response"] if stream else answer.json()
    if stream:
        assert events(answer)[-1]["type"] == "response.incomplete"
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert (response["output"][-1]["status"], text_of(response)) == ("incomplete", "Blue as")


# Faults


@BOTH_WAYS
@pytest.mark.parametrize(("status", "seen", "code"), [(401, 502, "upstream_auth"), (429, 429, "x"), (500, 500, "x")])
def test_errors_before_the_answer_keep_their_status(
    proxy: Groundwire, model: ModelServer, status: int, seen: int, code: str, stream: bool
) -> None:
    error = {"message": "no", "type": "t", "param": None, "code": "x"}
    model.script(Turn(status=status, body=json.dumps({"error": error}).encode(), headers={"Retry-After": "7"}))
    answer = post(proxy, stream=stream)
    assert (answer.status_code, error_of(answer)["code"]) == (seen, code)
    header, value = ("x-should-retry", "false") if status == 401 else ("retry-after", "7")
    assert answer.headers[header] == value


def test_a_stream_cut_short(proxy: Groundwire, model: ModelServer) -> None:
    half = text("Half an ", "answ", end="reset", finish=None, usage=None)
    model.script(SEARCH, half)
    *_, error, failed = events(post(proxy, stream=True))
    assert (error["type"], error["error"]["code"]) == ("error", "upstream_truncated")
    assert set(error["error"]) == {"type", "code", "message", "param"}
    assert failed["type"] == "response.failed"
    response = failed["response"]
    assert (response["status"], response["error"]["code"]) == ("failed", "upstream_truncated")
    assert text_of(response).startswith("Half an ")
    assert httpx.get(f"{proxy.url}/responses/{response['id']}").status_code == 404
    model.script(SEARCH, half)
    whole = post(proxy)
    assert (whole.status_code, whole.headers["x-should-retry"]) == (502, "false")


def test_a_fallback_that_is_not_to_search(config: dict[str, Any], model: ModelServer) -> None:
    (given,) = config["upstreams"]
    with ModelServer() as other:
        fallback = {"name": "other", "base_url": other.url, "models": ["other"], "mode": "off"}
        with Groundwire({**config, "upstreams": [{**given, "fallback": ["other"]}, fallback]}) as proxy:
            model.script(Turn(status=500, body=b'{"error":{"message":"no"}}'))
            other.script(text("Blue."))
            assert post(proxy).status_code == 500
            assert text_of(respond(proxy, tools=[WEATHER, HOSTED], tool_choice="none")) == "Blue."
        (request,) = other.requests
        assert [tool["function"]["name"] for tool in request["tools"]] == ["weather"]


def test_the_client_leaves(proxy: Groundwire, model: ModelServer) -> None:
    model.script(SEARCH, text(*["word "] * 500, delay=0.05))
    host, port = proxy.root.removeprefix("http://").split(":")
    sent = json.dumps({"model": "m", "input": QUESTION, "stream": True}).encode()
    head = f"POST /v1/responses HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(f"{head}Content-Length: {len(sent)}\r\n\r\n".encode() + sent)
        seen = b""
        while b"word" not in seen:
            seen += connection.recv(65536)
    assert model.left.wait(1.0)
    assert model.sent_pieces < 100


# Models that cannot call


@pytest.fixture(scope="module")
def wordy(config: dict[str, Any]) -> Iterator[Groundwire]:
    """One upstream whose models are told of tools in words, and one whose models are searched for."""
    (given,) = config["upstreams"]
    upstreams = [
        {**given, "name": mode, "models": [mode], "tool_calls": mode, "rewrite_query": False}
        for mode in ("prompted", "none")
    ]
    with Groundwire({**config, "upstreams": upstreams}) as running:
        yield running


@BOTH_WAYS
def test_tools_in_words(wordy: Groundwire, model: ModelServer, stream: bool) -> None:
    called = '<tool_call>{"name": "web_search", "arguments": {"query": "sky"}}</tool_call>'
    model.script(text(*called), text("Scattering [1]."), text("As said [1]."))
    response = respond(wordy, stream=stream, model="prompted", tools=[HOSTED])
    assert kinds(response) == ["web_search_call", "message"]
    assert text_of(response) == f"Scattering {LINK}."
    again = respond(wordy, "Again?", stream=stream, model="prompted", previous_response_id=response["id"])
    assert text_of(again) == f"As said {LINK}."
    roles = [message["role"] for message in model.requests[-1]["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert model.raw[-1].count(b"URL: " + SITE.encode() + b"sky.md") == 1


@BOTH_WAYS
def test_search_first(wordy: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(text("Scattering ", "[1]."), text("As said [1]."))
    response = respond(wordy, stream=stream, model="none", tools=[HOSTED])
    assert kinds(response)[0] == "web_search_call"
    assert {item["status"] for item in response["output"]} == {"completed"}
    assert response["output"][0]["action"]["type"] == "search"
    assert text_of(response) == f"Scattering {LINK}."
    assert response["tool_usage"]["web_search"] == {"num_requests": 1}
    assert read(model.requests[0]["messages"])[0].startswith("user ")
    again = respond(wordy, "Thanks a lot", stream=stream, model="none", previous_response_id=response["id"])
    assert text_of(again) == f"As said {LINK}."
    assert last_read(model) == [USER, "assistant Scattering [1].", "user Thanks a lot"]
