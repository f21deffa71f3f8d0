"""Models that call tools in words, or not at all, or say so too late: all of them get searched, cited answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, call, text

QUESTION = {"role": "user", "content": "Why is the sky blue?"}
LINK = f"[[1]]({SITE}sky.md)"
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
NO_TOOLS = Turn(status=400, body=b'{"error":{"message":"registry.ollama.ai/library/m does not support tools"}}')


def written(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


@contextmanager
def groundwire(config: dict[str, Any], **upstream: Any) -> Iterator[Groundwire]:
    (given,) = config["upstreams"]
    with Groundwire({**config, "upstreams": [{**given, **upstream}]}) as running:
        yield running


def ask(proxy: Groundwire, **fields: Any) -> httpx.Response:
    headers = fields.pop("headers", {})
    body = {"model": "m", "messages": [QUESTION], **fields}
    answer = httpx.post(f"{proxy.url}/chat/completions", json=body, headers=headers, timeout=20)
    assert answer.status_code == 200, answer.text
    return answer


def chunks(answer: httpx.Response) -> list[dict[str, Any]]:
    found = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in found]


def said(answer: httpx.Response) -> str:
    if answer.headers["content-type"].startswith("text/event-stream"):
        return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks(answer) if c["choices"])
    return answer.json()["choices"][0]["message"]["content"] or ""


# Prompted


@pytest.fixture(scope="module")
def prompted(config: dict[str, Any]) -> Iterator[Groundwire]:
    with groundwire(config, tool_calls="prompted") as running:
        yield running


@pytest.mark.parametrize("stream", [False, True])
def test_tools_in_words(prompted: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(
        text("Let me look.\n", *written("web_search", query="sky blue")),
        text(written("open_page", url=SITE + "sky.md")),
        text("Scattering ", "[1]."),
    )
    system = {"role": "system", "content": "Be brief."}
    answer = ask(prompted, stream=stream, messages=[system, QUESTION], temperature=0.5)
    assert said(answer).replace("\n", "") == f"Let me look.Scattering {LINK}."
    assert "tool_call" not in said(answer)
    assert answer.headers["x-groundwire-search"] == "offered; reason=auto"
    for request in model.requests:
        assert not request.keys() & {"tools", "tool_choice"}
        assert {message["role"] for message in request["messages"]} <= {"system", "user", "assistant"}
    first, second, third = (request["messages"] for request in model.requests)
    assert first[0]["content"].startswith("Be brief.\n")
    assert "web_search(query: string" in first[0]["content"]
    assert first[1:] == [QUESTION]
    assert [m["role"] for m in third] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert third[: len(second)] == second, "the prefix stays the same, for prompt caches"
    assert written("web_search", query="sky blue") in second[2]["content"]
    assert f"URL: {SITE}sky.md" in second[3]["content"]
    assert "Rayleigh" in third[5]["content"]


def test_the_clients_tools_in_words(prompted: Groundwire, model: ModelServer) -> None:
    model.script(text("Wait. ", written("weather", city="Bern"), written("weather", city="Biel")))
    whole = ask(prompted, tools=[WEATHER]).json()["choices"][0]
    assert whole["finish_reason"] == "tool_calls"
    assert whole["message"]["content"].strip() == "Wait."
    calls = whole["message"]["tool_calls"]
    assert [json.loads(c["function"]["arguments"]) for c in calls] == [{"city": "Bern"}, {"city": "Biel"}]
    assert len({c["id"] for c in calls}) == 2
    streamed = chunks(ask(prompted, tools=[WEATHER], stream=True))
    deltas = [d for c in streamed for d in c["choices"][0]["delta"].get("tool_calls", [])]
    assert [d["index"] for d in deltas] == [0, 1]
    assert streamed[-1]["choices"][0]["finish_reason"] == "tool_calls"
    results = [{"role": "tool", "tool_call_id": c["id"], "content": "Rain."} for c in calls]
    model.script(text("It rains."))
    history = [QUESTION, whole["message"], *results]
    for headers in ({}, {"x-groundwire-search": "off"}):
        assert said(ask(prompted, tools=[WEATHER], messages=history, headers=headers)) == "It rains."
        asked = model.requests[-1]
        assert "tools" not in asked
        assert asked["messages"][-1]["role"] == "user"
        assert asked["messages"][-1]["content"].count("Rain.") == 2


def test_without_tools_at_all_bytes_pass(prompted: Groundwire, model: ModelServer) -> None:
    model.script(text("Hello."))
    raw = b'{ "model":"m","messages":[{"role":"user","content":"x"}] }'
    headers = {"content-type": "application/json", "x-groundwire-search": "off"}
    httpx.post(f"{prompted.url}/chat/completions", content=raw, headers=headers, timeout=20)
    assert model.raw == [raw]


def test_the_last_round_describes_no_tools(config: dict[str, Any], model: ModelServer) -> None:
    leak = written("web_search", query="sky")
    model.script(text(leak), text(leak), text("Blue.", leak))
    with groundwire({**config, "tools": {"max_rounds": 2}}, tool_calls="prompted") as proxy:
        assert said(ask(proxy)).strip() == "Blue.", "and what it writes of them all the same is not shown"
    assert "web_search(" in model.requests[1]["messages"][0]["content"]
    assert model.requests[2]["messages"][0]["role"] == "user"


# Search first


@pytest.fixture(scope="module")
def first(config: dict[str, Any]) -> Iterator[Groundwire]:
    with groundwire(config, tool_calls="none", rewrite_query=False) as running:
        yield running


@pytest.mark.parametrize("stream", [False, True])
def test_searched_before_it_is_asked(first: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(text("Scattering ", "[1]."))
    answer = ask(first, stream=stream, stream_options={"include_usage": True} if stream else None)
    assert said(answer) == f"Scattering {LINK}."
    assert answer.headers["x-groundwire-search"] == "offered; reason=auto; searched=first"
    (request,) = model.requests
    assert "tools" not in request
    (message,) = request["messages"]
    assert message["role"] == "user"
    assert "Rayleigh scattering" in message["content"]
    assert message["content"].rstrip().endswith(QUESTION["content"])
    assert message["content"].count(f"URL: {SITE}sky.md") == 1
    body = chunks(answer)[-2] if stream else answer.json()
    assert body["search_results"][0]["url"] == SITE + "sky.md"
    usage = chunks(answer)[-1]["usage"] if stream else body["usage"]
    assert usage["server_tool_use"] == {"web_search_requests": 1, "web_fetch_requests": 1}
    assert usage["total_tokens"] == 15


@pytest.mark.parametrize(
    "content", ["Hello!", "Thanks a lot", "Translate into French: The cat sleeps.", "write me an email to my boss"]
)
def test_what_asks_nothing_is_not_searched(first: Groundwire, model: ModelServer, content: str) -> None:
    model.script(text("Sure."))
    message = {"role": "user", "content": content}
    answer = ask(first, messages=[message])
    assert answer.headers["x-groundwire-search"] == "off; reason=no_question"
    assert model.requests[0]["messages"] == [message]
    assert "tools" not in model.requests[0]
    body = {"model": "m", "input": content, "tools": [{"type": "file_search", "vector_store_ids": ["x"]}]}
    answer = httpx.post(f"{first.url}/responses", json=body, timeout=20)
    assert answer.headers["x-groundwire-search"] == "off; reason=no_question; left_out=file_search"


def test_a_page_that_the_user_names_is_read(first: Groundwire, model: ModelServer) -> None:
    model.script(text("Salt [1]."))
    ask(first, messages=[{"role": "user", "content": f"What does {SITE}sea.md say about rivers?"}])
    assert "Rivers carry dissolved salts" in model.requests[0]["messages"][0]["content"]


def test_the_clients_tools_stay_beside_it(first: Groundwire, model: ModelServer) -> None:
    model.script(text(written("weather", city="Bern")))
    answer = ask(first, tools=[WEATHER]).json()["choices"][0]
    assert answer["message"]["tool_calls"][0]["function"]["name"] == "weather"
    (request,) = model.requests
    assert "weather(city" in request["messages"][0]["content"]
    assert "web_search" not in json.dumps(request)
    assert "Rayleigh" in request["messages"][1]["content"]


def test_a_format_that_was_asked_for_stays(first: Groundwire, model: ModelServer) -> None:
    model.script(text('{"why": "scattering [1]"}'))
    answer = ask(first, response_format={"type": "json_object"}, web_search_options={})
    assert said(answer) == '{"why": "scattering [1]"}'
    assert model.requests[0]["response_format"] == {"type": "json_object"}
    assert "Rayleigh" in str(model.requests[0]["messages"])
    assert "To cite" not in str(model.requests[0]["messages"])


def test_the_model_may_word_the_query(config: dict[str, Any], model: ModelServer) -> None:
    model.script(text("sea salty rivers"), text("Rivers [1]."))
    with groundwire(config, tool_calls="none") as proxy:
        answer = ask(proxy)
    wording, asked = model.requests
    assert wording["stream"] is False
    assert "Why the sea is salty" in asked["messages"][-1]["content"]
    assert answer.json()["usage"]["total_tokens"] == 30, "what the wording cost is counted"


def test_a_small_context_is_not_overrun(config: dict[str, Any], model: ModelServer) -> None:
    model.script(text("Blue."))
    with groundwire(config, tool_calls="none", rewrite_query=False, context=512) as proxy:
        ask(proxy, messages=[{"role": "user", "content": "sky sea tea blue salty green"}])
    assert len(model.requests[0]["messages"][0]["content"]) < 1500


def test_a_page_that_the_user_names_and_that_fails_is_not_passed_over(first: Groundwire, model: ModelServer) -> None:
    model.script(text("It is gone."))
    ask(first, messages=[{"role": "user", "content": f"What does {SITE}nothere.md say about the blue sky?"}])
    assert f"The page {SITE}nothere.md could not be opened" in model.requests[0]["messages"][0]["content"]


def test_a_choice_that_no_search_has_met_stays(first: Groundwire, model: ModelServer) -> None:
    model.script(text(written("weather", city="Bern")))
    hello = [{"role": "user", "content": "Hello!"}]
    ask(first, tools=[WEATHER], tool_choice="required", messages=hello, headers={"x-groundwire-search": "on"})
    assert "must be a call" in model.requests[0]["messages"][0]["content"]


def test_a_failure_after_the_search_is_not_to_be_retried(first: Groundwire, model: ModelServer) -> None:
    model.script(Turn(status=500, body=b'{"error":{"message":"broken"}}'))
    answer = httpx.post(f"{first.url}/chat/completions", json={"model": "m", "messages": [QUESTION]}, timeout=20)
    assert answer.headers["x-should-retry"] == "false"


def test_progress_is_shown_behind_the_role(config: dict[str, Any], model: ModelServer) -> None:
    model.script(text("Blue [1]."))
    with groundwire({**config, "tools": {"progress": "reasoning"}}, tool_calls="none", rewrite_query=False) as proxy:
        seen = [c["choices"][0]["delta"] for c in chunks(ask(proxy, stream=True))]
    assert [d["role"] for d in seen if "role" in d] == ["assistant"]
    assert "role" in seen[0]
    assert [d["reasoning_content"] for d in seen if "reasoning_content" in d] == [
        "Searching the web: Why is the sky blue\n",
        f"Reading: {SITE}sky.md\n",
    ]


# Auto


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_refuses_tools_gets_them_in_words(
    config: dict[str, Any], model: ModelServer, stream: bool
) -> None:
    with groundwire(config) as proxy:
        model.script(NO_TOOLS, text(written("web_search", query="sky")), text("Scattering [1]."))
        assert said(ask(proxy, stream=stream)) == f"Scattering {LINK}."
        assert ["tools" in request for request in model.requests] == [True, False, False]
        model.script(text("Hello."))
        ask(proxy, stream=stream)
        assert "tools" not in model.requests[0], "it is remembered"
        log = proxy.log.read_text()
    assert log.count("takes no tools, so it is asked with tool_calls: prompted") == 1


def test_a_small_model_that_refuses_tools_is_searched_for(config: dict[str, Any], model: ModelServer) -> None:
    with groundwire(config, rewrite_query=False) as proxy:
        model.script(NO_TOOLS, text("Scattering [1]."))
        answer = ask(proxy, model="gemma:2b")
        assert said(answer) == f"Scattering {LINK}."
        assert answer.headers["x-groundwire-search"] == "offered; reason=auto; searched=first"
        assert "Rayleigh" in model.requests[1]["messages"][0]["content"]
        model.script(text("Scattering [1]."))
        assert said(ask(proxy, model="gemma:2b", stream=True)) == f"Scattering {LINK}."
        assert len(model.requests) == 1


def test_what_did_not_help_is_not_remembered(config: dict[str, Any], model: ModelServer) -> None:
    with groundwire(config) as proxy:
        model.script(NO_TOOLS, Turn(status=400, body=b'{"error":{"message":"no such model"}}'))
        body = {"model": "m", "messages": [QUESTION]}
        answer = httpx.post(f"{proxy.url}/chat/completions", json=body, timeout=20)
        assert (answer.status_code, answer.json()["error"]["message"]) == (400, "no such model")
        model.script(text("Hello."))
        ask(proxy)
        assert "tools" in model.requests[0]


def test_native_means_native(config: dict[str, Any], model: ModelServer) -> None:
    model.script(NO_TOOLS)
    with groundwire(config, tool_calls="native") as proxy:
        body = {"model": "m", "messages": [QUESTION]}
        answer = httpx.post(f"{proxy.url}/chat/completions", json=body, timeout=20)
    assert (answer.status_code, len(model.requests)) == (400, 1)


def test_a_listing_that_names_no_tools(config: dict[str, Any]) -> None:
    with ModelServer() as model:
        model.listing = [{"id": "m", "supported_parameters": ["temperature"]}]
        model.script(text(written("web_search", query="sky")), text("Scattering [1]."))
        (given,) = config["upstreams"]
        with Groundwire({**config, "upstreams": [{**given, "base_url": model.url}]}) as proxy:
            assert said(ask(proxy)) == f"Scattering {LINK}."
        assert "tools" not in model.requests[0]


def test_a_template_without_tools_llama_cpp(config: dict[str, Any]) -> None:
    with ModelServer() as model:
        model.listing = [{"id": "m", "owned_by": "llamacpp", "meta": {"n_params": 134_515_008, "n_ctx": 4096}}]
        model.props = {"chat_template_caps": {"supports_tools": False}}
        model.script(text("Scattering [1]."))
        (given,) = config["upstreams"]
        with Groundwire({**config, "upstreams": [{**given, "base_url": model.url, "rewrite_query": False}]}) as proxy:
            assert said(ask(proxy)) == f"Scattering {LINK}."
        assert "Rayleigh" in model.requests[0]["messages"][0]["content"]


def test_a_choice_that_is_refused_in_the_last_round(config: dict[str, Any], model: ModelServer) -> None:
    refused = Turn(status=400, body=b'{"error":{"message":"tool_choice \'none\' is not supported"}}')
    model.script(
        Turn(text=["Let me see."], calls=[("c", "web_search", {"query": "sky"})]), refused, text("Scattering [1].")
    )
    with groundwire({**config, "tools": {"max_rounds": 1}}) as proxy:
        answer = ask(proxy, stream=True, model="qwen:1.7b", stream_options={"include_usage": True})
    seen = chunks(answer)
    assert said(answer) == f"Let me see.\n\nScattering {LINK}."
    assert [c["choices"][0]["delta"]["role"] for c in seen if c["choices"] and "role" in c["choices"][0]["delta"]] == [
        "assistant"
    ]
    assert seen[-1]["usage"]["total_tokens"] == 30
    assert not model.requests[2].keys() & {"tools", "tool_choice"}


def test_two_limits_that_are_both_refused_end(config: dict[str, Any], model: ModelServer) -> None:
    both = [
        Turn(status=400, body=b'{"error":{"message":"Unknown parameter: \'%s\'"}}' % name)
        for name in (b"max_tokens", b"max_completion_tokens")
    ]
    model.script(*both * 10)
    with groundwire(config) as proxy:
        body = {"model": "m", "messages": [QUESTION], "max_tokens": 5}
        assert httpx.post(f"{proxy.url}/chat/completions", json=body, timeout=20).status_code == 400
    assert len(model.requests) <= 6


# Refused parameters


def test_a_refused_parameter_is_left_out_and_remembered(config: dict[str, Any], model: ModelServer) -> None:
    refused = Turn(status=400, body=b'{"error":{"message":"property \'store\' is unsupported"}}')
    with groundwire(config) as proxy:
        model.script(refused, text("Hello."))
        assert said(ask(proxy, store=True)) == "Hello."
        assert ["store" in request for request in model.requests] == [True, False]
        model.script(text("Hello."))
        ask(proxy, store=True)
        ask(proxy, store=True, model="vendor/m")
        assert ["store" in request for request in model.requests] == [False, True], "for that model alone"


def test_it_is_remembered_only_if_that_helped(config: dict[str, Any], model: ModelServer) -> None:
    refused = Turn(status=400, body=b'{"error":{"message":"Unknown parameter: store"}}')
    with groundwire(config) as proxy:
        model.script(refused, Turn(status=500, body=b"{}"))
        assert httpx.post(
            f"{proxy.url}/chat/completions", json={"model": "m", "messages": [QUESTION], "store": True}, timeout=20
        ).is_error
        model.script(text("Hello."))
        ask(proxy, store=True)
        assert "store" in model.requests[0]


# Assist


@pytest.fixture(scope="module")
def assisted(config: dict[str, Any]) -> Iterator[Groundwire]:
    with groundwire(config, overrides=[{"match": "m", "assist": True}]) as running:
        yield running


def test_a_search_reads_its_best_pages(assisted: Groundwire, model: ModelServer) -> None:
    model.script(
        call("web_search", {"query": "sky blue"}),
        call("web_search", {"query": "sea salty"}, id="c2"),
        text("Blue [1]."),
    )
    answer = ask(assisted)
    assert said(answer) == f"Blue {LINK}."
    result, second = model.requests[1]["messages"][-1]["content"], model.requests[2]["messages"][-1]["content"]
    assert "This is called Rayleigh scattering." in result
    assert "[1] Why the sky is blue" in result
    assert result.rstrip().endswith("like [1].")
    assert "Rivers carry dissolved salts" in second
    assert second.rstrip().endswith("].")
    assert answer.json()["usage"]["server_tool_use"]["web_fetch_requests"] >= 1


@pytest.mark.parametrize("stream", [False, True])
def test_an_announced_search_is_nudged_once(assisted: Groundwire, model: ModelServer, stream: bool) -> None:
    model.script(text("I will search the web for that."), call("web_search", {"query": "sky"}), text("Blue [1]."))
    assert said(ask(assisted, stream=stream)) == f"I will search the web for that.\n\nBlue {LINK}."
    nudge = model.requests[1]["messages"]
    assert [m["role"] for m in nudge] == ["user", "assistant", "user"]
    assert "web_search" in nudge[-1]["content"]
    model.script(text("Let me look that up."))
    assert said(ask(assisted, stream=stream)).count("Let me look that up.") == 2
    assert len(model.requests) == 2


def test_others_are_not_assisted(assisted: Groundwire, model: ModelServer) -> None:
    model.script(text("I will search the web for that."))
    ask(assisted, model="vendor/m")
    assert len(model.requests) == 1
