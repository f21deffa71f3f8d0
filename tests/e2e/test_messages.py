"""`/v1/messages` through the whole house: what a client of Anthropic's API may ask for, what it gets, and what the
model reads of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.e2e.test_mixed_turns import last_read
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, call, text
from tests.unit.messages_scripts import FETCH_TOOL, SERVER_TOOL, gathered, payloads, short, text_of

QUESTION = "Why is the sky blue?"
USER = f"user {QUESTION}"
SKY, SEA = SITE + "sky.md", SITE + "sea.md"
LINK = f"[[1]]({SKY})"
SEARCH = ("a", "web_search", {"query": "sky"})
SEARCHED = Turn(calls=[SEARCH])
WEATHER = {"name": "weather", "input_schema": {"type": "object"}}
USE = ("server_tool_use", "web_search", {"query": "sky"})
RESULT = ("web_search_tool_result", SKY)
BOTH_WAYS = pytest.mark.parametrize("stream", [True, False])
KEYS = ["sk-of-alice", "sk-of-bob"]
VERSION = {"anthropic-version": "2023-06-01"}


def post(
    proxy: Groundwire, messages: Any = QUESTION, *, path: str = "messages?beta=true", key: str = "", **fields: Any
) -> httpx.Response:
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    headers = {**VERSION, "anthropic-beta": "a,b", **({"x-api-key": key} if key else {}), **fields.pop("headers", {})}
    sent = {"model": "m", "max_tokens": 500, "messages": messages, **fields}
    return httpx.post(f"{proxy.url}/{path}", json=sent, headers=headers, timeout=20)


def ask(proxy: Groundwire, messages: Any = QUESTION, *, stream: bool = False, **fields: Any) -> dict[str, Any]:
    """The message, as it comes or as a client puts it together."""
    answer = post(proxy, messages, stream=stream, **fields)
    assert answer.status_code == 200, answer.text
    if not stream:
        whole: dict[str, Any] = answer.json()
        return whole
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    return gathered(payloads(answer.content))


def asked(content: Any = QUESTION) -> dict[str, Any]:
    return {"role": "user", "content": content}


def echo(message: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": message["content"]}


def result(message: dict[str, Any], said: str = "Rain") -> dict[str, Any]:
    ids = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
    return asked([{"type": "tool_result", "tool_use_id": id_, "content": said} for id_ in ids])


@pytest.fixture(scope="module")
def keyed(config: dict[str, Any]) -> Iterator[Groundwire]:
    keys = [{"key": key, "name": name} for key, name in zip(KEYS, ("alice", "bob"), strict=True)]
    server = {"keys": [*keys, {"key": "sk-slow", "name": "slow", "requests_per_minute": 1}], "max_body": 20_000}
    with Groundwire({**config, "server": server}) as running:
        yield running


# Without search


@BOTH_WAYS
def test_a_plain_answer(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(text("Hel", "lo."))
    message = ask(proxy, stream=stream, system="Be brief.", stop_sequences=["END"], temperature=0.5)
    assert message["content"] == [{"type": "text", "text": "Hello."}]
    assert (message["stop_reason"], message["stop_sequence"], message["model"]) == ("end_turn", None, "m-1")
    assert (message["usage"]["input_tokens"], message["usage"]["output_tokens"]) == (10, 5)
    (sent,) = model.requests
    assert sent["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (sent["stop"], sent["max_tokens"], sent["temperature"]) == (["END"], 500, 0.5)


@BOTH_WAYS
def test_a_stop_sequence_that_the_server_names(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    """As vLLM says it; where a server says nothing, it is the end of the turn."""
    said = {"index": 0, "finish_reason": "stop", "stop_reason": "END"}
    choice = {**said, "delta" if stream else "message": {"role": "assistant", "content": "Hello"}}
    answer = json.dumps({"model": "m", "choices": [choice]}).encode()
    kind = "text/event-stream" if stream else "application/json"
    body = b"data: " + answer + b"\n\ndata: [DONE]\n\n" if stream else answer
    model.script(Turn(body=body, content_type=kind))
    message = ask(proxy, stream=stream, stop_sequences=["END", "STOP"])
    assert (message["stop_reason"], message["stop_sequence"], text_of(message)) == ("stop_sequence", "END", "Hello")


@BOTH_WAYS
def test_the_clients_own_tools(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(Turn(text=["Wait."], calls=[("w", "weather", {"city": "Bern"})]), text("It rains."))
    fields = {"tools": [WEATHER], "headers": {"x-groundwire-search": "off"}, "stream": stream}
    called = ask(proxy, **fields)
    assert short(called) == ["Wait.", ("tool_use", "weather", {"city": "Bern"})]
    assert called["stop_reason"] == "tool_use"
    fields = {"tools": [WEATHER], "headers": {"x-groundwire-search": "off"}, "stream": stream}
    assert text_of(ask(proxy, [asked(), echo(called), result(called)], **fields)) == "It rains."
    assert last_read(model) == [USER, "assistant Wait. w=weather", "tool w Rain"]


@BOTH_WAYS
def test_thinking_both_ways(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(Turn(reasoning=["h", "m"], calls=[("w", "weather", {})]), text("It rains."))
    fields: dict[str, Any] = {"tools": [WEATHER], "thinking": {"type": "adaptive"}, "stream": stream}
    called = ask(proxy, **fields)
    assert [block["type"] for block in called["content"]] == ["thinking", "tool_use"]
    assert called["content"][0]["thinking"] == "hm"
    ask(proxy, [asked(), echo(called), result(called)], **fields)
    assert model.requests[-1]["messages"][1]["reasoning_content"] == "hm"


def test_structured_output_and_no_tools_are_left_alone(proxy: Groundwire, model: ModelServer) -> None:
    """The title that Claude Code asks for: the fields that 2.1.325 sent on 2026-11-17, here without the stream. The
    program itself asks for one in test_claude_code.py."""
    model.script(text('{"title": "Sky"}'))
    properties = {"properties": {"title": {"type": "string"}}, "required": ["title"], "additionalProperties": False}
    schema = {"type": "object", **properties}
    config = {"effort": "high", "format": {"type": "json_schema", "schema": schema}}
    system = [{"type": "text", "text": 'You are naming a coding session … Return JSON with a single "title" field.'}]
    answer = post(proxy, tools=[], output_config=config, system=system, max_tokens=32000)
    assert json.loads(text_of(answer.json())) == {"title": "Sky"}
    assert answer.headers["x-groundwire-search"] == "off; reason=background"
    assert model.requests[0]["response_format"]["json_schema"]["schema"] == schema
    assert "tools" not in model.requests[0]


# With search


@BOTH_WAYS
def test_search_unasked_gives_one_text(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(Turn(text=["Let me look."], calls=[SEARCH]), text("Blue ", "[", "1", "]."))
    message = ask(proxy, stream=stream)
    assert message["content"] == [{"type": "text", "text": f"Let me look.\n\nBlue {LINK}."}]
    assert message["usage"]["server_tool_use"] == {"web_search_requests": 1, "web_fetch_requests": 0}
    model.script(text("Yes [1]."))
    again = ask(proxy, [asked(), echo(message), asked("Sure?")], stream=stream)
    assert text_of(again) == f"Yes {LINK}."
    assert last_read(model) == [USER, "assistant Let me look.\n\nBlue [1].", "user Sure?"]


@BOTH_WAYS
def test_the_server_tool_is_answered_with_blocks(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(Turn(text=["Let me look."], calls=[SEARCH]), text("It is blue ", "[", "1", "]", ". Rivers", " too."))
    fields: dict[str, Any] = {"stream": stream, "tools": [SERVER_TOOL]}
    message = ask(proxy, **fields)
    assert short(message) == ["Let me look.", USE, RESULT, ("\n\nIt is blue.", SKY), " Rivers too."]
    use, found, said = message["content"][1:4]
    assert use["id"].startswith("srvtoolu_")
    assert found["tool_use_id"] == use["id"]
    assert found["content"][0]["title"] == "Why the sky is blue"
    assert 0 < len(said["citations"][0]["cited_text"]) <= 150
    assert "scatters blue light" in said["citations"][0]["cited_text"]
    assert message["usage"]["server_tool_use"]["web_search_requests"] == 1
    model.script(text("Yes, blue [1]."))
    again = ask(proxy, [asked(), echo(message), asked("Sure?")], **fields)
    assert short(again) == [("Yes, blue.", SKY)]
    assert again["content"][0]["citations"][0]["cited_text"] == said["citations"][0]["cited_text"]
    assert last_read(model) == [
        USER,
        "assistant Let me look. a=web_search",
        "tool a sky.md",
        "assistant It is blue [1]. Rivers too.",
        "user Sure?",
    ]


def test_the_history_reads_the_same_from_turn_to_turn(proxy: Groundwire, model: ModelServer) -> None:
    """Byte for byte, so that prompt caches hold."""
    model.script(Turn(text=["Let me look."], calls=[SEARCH]), text("Blue [1]."), text("Yes."))
    message = ask(proxy, tools=[SERVER_TOOL])
    ask(proxy, [asked(), echo(message), asked("Sure?")], tools=[SERVER_TOOL])
    first, second = model.requests[1]["messages"], model.requests[2]["messages"]
    assert second[: len(first)] == first


def test_what_claude_code_asks_for_its_web_search(proxy: Groundwire, model: ModelServer) -> None:
    model.script(SEARCHED, text("Blue [1]."))
    choice = {"type": "tool", "name": "web_search"}
    said = [{"type": "text", "text": "Perform a web search for the query: sky"}]
    message = ask(proxy, [asked(said)], tools=[SERVER_TOOL], tool_choice=choice, stream=True)
    assert short(message) == [USE, RESULT, ("Blue.", SKY)]
    assert model.requests[0]["tool_choice"] == {"type": "function", "function": {"name": "web_search"}}
    assert model.requests[1]["tool_choice"] == "auto"


def test_no_more_searches_than_allowed(proxy: Groundwire, model: ModelServer) -> None:
    model.script(SEARCHED, call("web_search", {"query": "sea"}, id="b"), text("Blue [1]."))
    message = ask(proxy, tools=[{**SERVER_TOOL, "max_uses": 1}])
    again = ("server_tool_use", "web_search", {"query": "sea"})
    beyond = ("web_search_tool_result", "max_uses_exceeded")
    assert short(message) == [USE, RESULT, again, beyond, ("Blue.", SKY)]
    assert message["usage"]["server_tool_use"]["web_search_requests"] == 1


def test_pages_are_counted_by_themselves(proxy: Groundwire, model: ModelServer) -> None:
    both = Turn(calls=[("p", "open_page", {"url": SKY}), ("q", "open_page", {"url": SEA})])
    model.script(both, call("web_search", {"query": "sky"}, id="s"), text("Blue [1]."))
    tools = [SERVER_TOOL, {**FETCH_TOOL, "max_uses": 1}]
    message = ask(proxy, f"Read {SKY} and {SEA}", tools=tools, tool_choice={"type": "tool", "name": "web_fetch"})
    assert model.requests[0]["tool_choice"] == {"type": "function", "function": {"name": "open_page"}}
    fetched = [("server_tool_use", "web_fetch", {"url": url}) for url in (SKY, SEA)]
    results = [("web_fetch_tool_result", SKY), ("web_fetch_tool_result", "max_uses_exceeded")]
    assert short(message) == [*fetched, *results, USE, RESULT, ("Blue.", SKY)]
    assert message["usage"]["server_tool_use"] == {"web_search_requests": 1, "web_fetch_requests": 1}


def test_a_search_that_finds_nothing(proxy: Groundwire, model: ModelServer) -> None:
    model.script(call("web_search", {"query": "zzzz qqqq"}), text("No idea."))
    found = ask(proxy, tools=[SERVER_TOOL])
    assert short(found)[1:] == [("web_search_tool_result", "unavailable"), "No idea."]


@BOTH_WAYS
def test_a_page_is_fetched(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(SEARCHED, call("open_page", {"url": SKY}, id="p"), text("It is scattering [1]."), text("Yes."))
    fields: dict[str, Any] = {"stream": stream, "tools": [SERVER_TOOL, FETCH_TOOL]}
    message = ask(proxy, **fields)
    fetched = ("server_tool_use", "web_fetch", {"url": SKY})
    read = ("web_fetch_tool_result", SKY)
    assert short(message) == [USE, RESULT, fetched, read, ("It is scattering.", SKY)]
    assert "Rayleigh scattering" in message["content"][3]["content"]["content"]["source"]["data"]
    assert message["content"][4]["citations"][0]["cited_text"] == "This is called Rayleigh scattering."
    ask(proxy, [asked(), echo(message), asked("Sure?")], **fields)
    assert [said.split()[0] for said in last_read(model)] == [
        "user", "assistant", "tool", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip


# Mixed turns


@BOTH_WAYS
@pytest.mark.parametrize("shown", [True, False])
def test_a_mixed_turn_is_put_back(proxy: Groundwire, model: ModelServer, stream: bool, shown: bool) -> None:
    mixed = Turn(text=["Both."], calls=[("b", "weather", {"city": "Bern"}), ("c", "web_search", {"query": "sea"})])
    model.script(Turn(text=["Let me look."], calls=[SEARCH]), mixed, text("Blue [1], and rain."))
    fields: dict[str, Any] = {"stream": stream, "tools": [WEATHER, *([SERVER_TOOL] if shown else [])]}
    called = ask(proxy, **fields)
    assert called["stop_reason"] == "tool_use"
    sea = [("server_tool_use", "web_search", {"query": "sea"}), ("web_search_tool_result", SEA)]
    theirs = ("tool_use", "weather", {"city": "Bern"})
    if shown:
        assert short(called) == ["Let me look.", USE, RESULT, "\n\nBoth.", theirs, *sea]
    else:
        assert short(called) == ["Let me look.\n\nBoth.", theirs]
    done = ask(proxy, [asked(), echo(called), result(called)], **fields)
    assert text_of(done) == ("Blue, and rain." if shown else f"Blue {LINK}, and rain.")
    if shown:
        (citation,) = done["content"][0]["citations"]
        assert "scatters blue light" in citation["cited_text"]
    assert last_read(model) == [
        USER,
        "assistant Let me look. a=web_search",
        "tool a sky.md",
        "assistant Both. b=weather c=web_search",
        "tool b Rain",
        "tool c sea.md",
    ]
    assert not [raw for raw in model.raw if b"_gw" in raw]


def test_nothing_of_ours_stays_where_search_is_off(proxy: Groundwire, model: ModelServer) -> None:
    model.script(Turn(text=["Look."], calls=[SEARCH]), text("Blue [1]."), text("Yes."))
    message = ask(proxy, tools=[SERVER_TOOL])
    ask(proxy, [asked(), echo(message), asked("Sure?")], headers={"x-groundwire-search": "off"})
    assert last_read(model) == [USER, "assistant Look.", "assistant Blue [1].", "user Sure?"]


# Callers and errors


def test_handles_are_their_callers_own(keyed: Groundwire, model: ModelServer) -> None:
    model.script(SEARCHED, text("Blue [1]."), text("Yes."))
    message = ask(keyed, tools=[SERVER_TOOL], key=KEYS[0])
    for key, read in zip(KEYS, ("assistant - a=web_search", "assistant Blue."), strict=True):
        ask(keyed, [asked(), echo(message), asked("Sure?")], tools=[SERVER_TOOL], key=key)
        assert last_read(model)[1] == read


def error_of(answer: httpx.Response) -> tuple[int, str]:
    said = answer.json()
    assert said["type"] == "error"
    assert said["error"]["message"]
    return answer.status_code, said["error"]["type"]


def test_errors_of_the_edge_have_this_apis_shape(keyed: Groundwire, model: ModelServer) -> None:
    model.script(text("Hello."))
    assert error_of(post(keyed)) == (401, "authentication_error")
    assert error_of(post(keyed, key="sk-wrong")) == (401, "authentication_error")
    assert error_of(post(keyed, "x" * 30_000, key=KEYS[0])) == (413, "request_too_large")
    assert error_of(post(keyed, [], key=KEYS[0])) == (400, "invalid_request_error")
    assert post(keyed, key="sk-slow").status_code == 200
    limited = post(keyed, key="sk-slow")
    assert limited.headers["request-id"] == limited.headers["x-request-id"]
    assert error_of(limited) == (429, "rate_limit_error")
    assert int(limited.headers["retry-after"]) > 0


def test_a_bearer_key_opens_too(keyed: Groundwire, model: ModelServer) -> None:
    model.script(text("Hello."))
    assert post(keyed, headers={"authorization": f"Bearer {KEYS[0]}"}).status_code == 200


@BOTH_WAYS
def test_an_error_of_the_model(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(Turn(status=400, body=b'{"error":{"message":"too long","type":"x","code":"y"}}'))
    assert error_of(post(proxy, stream=stream)) == (400, "invalid_request_error")


@BOTH_WAYS
def test_an_overload_is_told_in_this_apis_words(proxy: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(Turn(status=503, body=b'{"error":{"message":"busy"}}', headers={"retry-after": "0"}))
    assert error_of(post(proxy, stream=stream)) == (529, "overloaded_error")


def test_an_error_in_the_middle_of_a_stream(proxy: Groundwire, model: ModelServer) -> None:
    model.script(SEARCHED, text("Half an ", "answer", end="reset", finish=None, usage=None))
    sent = payloads(post(proxy, stream=True).content)
    assert sent[0]["type"] == "message_start"
    assert sent[-1]["type"] == "error"
    assert sent[-1]["error"]["type"] == "api_error"


# Models and operators of other kinds


@pytest.fixture(scope="module")
def odd(config: dict[str, Any]) -> Iterator[Groundwire]:
    """A model that cannot call, one that takes each client's key, and an operator who wants no foreign links."""
    scripted = config["upstreams"][0]
    upstreams = [
        {**scripted, "name": "reader", "models": ["reader"], "tool_calls": "none", "rewrite_query": False},
        {**scripted, "name": "mine", "models": ["mine"], "api_key": "passthrough"},
        {**scripted, "models": ["m"]},
    ]
    with Groundwire({**config, "upstreams": upstreams, "citations": {"strip_foreign": True}}) as running:
        yield running


@BOTH_WAYS
def test_a_model_that_cannot_call(odd: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(text("Blue [1]."))
    message = ask(odd, "Why is the sky blue? Search the web.", model="reader", tools=[SERVER_TOOL], stream=stream)
    kinds = [block["type"] for block in message["content"]]
    assert kinds == ["server_tool_use", "web_search_tool_result", "text"]
    assert short(message)[1:] == [RESULT, ("Blue.", SKY)]


@BOTH_WAYS
def test_foreign_links_go_and_citations_stay(odd: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(SEARCHED, text("Blue [1] ([more](https://evil.example/?q=1)). Yes [1]."))
    message = ask(odd, tools=[SERVER_TOOL], stream=stream)
    assert "evil.example/" not in text_of(message)
    assert text_of(message).startswith("Blue")
    assert [mark["url"] for block in message["content"] for mark in block.get("citations") or ()] == [SKY, SKY]


def test_the_clients_own_key_for_the_model(odd: Groundwire, model: ModelServer) -> None:
    model.script(text("Hello."))
    ask(odd, model="mine", key="sk-ant-of-the-client")
    assert model.heads[0]["authorization"] == "Bearer sk-ant-of-the-client"
    assert error_of(post(odd, model="mine")) == (401, "authentication_error")
