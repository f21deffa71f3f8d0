"""What a conversation must not carry along: rights to open pages, our tool names, our decoration, lost numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, call, text

USER = {"role": "user", "content": "Why is the sky blue, and what is the weather in Bern?"}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
FLAT = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
LINK = f"[[1]]({SITE}sky.md)"
INVENTED = SITE + "carry-out?secret=hunter2"


def post(proxy: Groundwire, path: str = "chat/completions", headers: Any = None, **body: Any) -> dict[str, Any]:
    answer = httpx.post(f"{proxy.url}/{path}", json={"model": "m", **body}, headers=headers, timeout=20)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def returned(answer: dict[str, Any], *before: dict[str, Any]) -> list[dict[str, Any]]:
    """The history that a client sends back once its tools have run."""
    message = answer["choices"][0]["message"]
    results = [{"role": "tool", "tool_call_id": c["id"], "content": "Rain."} for c in message["tool_calls"]]
    return [*before, message, *results]


@pytest.fixture(scope="module", params=["context", "strict"])
def guarded(config: dict[str, Any], request: pytest.FixtureRequest) -> Iterator[Groundwire]:
    with Groundwire({**config, "tools": {"provenance": request.param}}) as running:
        yield running


def test_an_invented_address_is_not_named_by_its_own_refusal(guarded: Groundwire, model: ModelServer) -> None:
    model.script(Turn(calls=[("a", "open_page", {"url": INVENTED}), ("b", "weather", {})]))
    first = post(guarded, messages=[USER], tools=[WEATHER])
    model.script(call("open_page", {"url": INVENTED}, id="c"), text("No."))
    post(guarded, messages=returned(first, USER), tools=[WEATHER])
    before, after = model.requests[0]["messages"][2]["content"], model.requests[1]["messages"][-1]["content"]
    assert INVENTED in before
    assert after == before, "refused once more, for the same reason"


def test_nor_in_a_stored_response(guarded: Groundwire, model: ModelServer) -> None:
    model.script(call("open_page", {"url": INVENTED}), text("No."))
    first = post(guarded, "responses", input="Open something.")
    model.script(call("open_page", {"url": INVENTED}, id="c"), text("No."))
    post(guarded, "responses", input="Again.", previous_response_id=first["id"])
    refusals = [m["content"] for m in model.requests[1]["messages"] if m["role"] == "tool"]
    assert len(refusals) == 2
    assert refusals[0] == refusals[1]


def test_what_was_found_before_may_be_opened(guarded: Groundwire, model: ModelServer) -> None:
    model.script(Turn(calls=[("a", "web_search", {"query": "sky blue"}), ("b", "weather", {})]))
    first = post(guarded, messages=[USER], tools=[WEATHER])
    model.script(call("open_page", {"url": SITE + "sky.md"}, id="c"), text("Blue [1]."))
    post(guarded, messages=returned(first, USER), tools=[WEATHER])
    assert "This is called Rayleigh scattering." in model.requests[1]["messages"][-1]["content"]


@pytest.mark.parametrize(
    "off", [{"headers": {"x-groundwire-search": "off"}}, {"response_format": {"type": "json_object"}}]
)
def test_where_search_is_off_nothing_of_ours_stands_in_the_history(
    proxy: Groundwire, model: ModelServer, off: dict[str, Any]
) -> None:
    model.script(Turn(calls=[("a", "web_search", {"query": "sky blue"}), ("b", "weather", {})]))
    first = post(proxy, messages=[USER], tools=[WEATHER])
    model.script(text("Rain."))
    post(proxy, messages=returned(first, USER), tools=[WEATHER], **off)
    asked = json.dumps(model.requests[0])
    assert "web_search" not in asked
    assert "_gw" not in asked
    assert [m["role"] for m in model.requests[0]["messages"]] == ["user", "assistant", "tool"]


def test_nor_in_a_response_without_search(proxy: Groundwire, model: ModelServer) -> None:
    model.script(call("web_search", {"query": "sky blue"}), text("Blue [1]."))
    first = post(proxy, "responses", input="Why is the sky blue?")
    model.script(text("Yes."))
    off = {"x-groundwire-search": "off"}
    post(proxy, "responses", off, input="Sure?", previous_response_id=first["id"])
    assert [(m["role"], m["content"]) for m in model.requests[0]["messages"]] == [
        ("user", "Why is the sky blue?"),
        ("assistant", "Blue [1]."),
        ("user", "Sure?"),
    ]


def test_our_decoration_does_not_go_up_where_search_is_not_offered(config: dict[str, Any], model: ModelServer) -> None:
    with Groundwire({**config, "tools": {"mode": "on_request"}}) as proxy:
        model.script(call("web_search", {"query": "sky blue"}), text("Blue [1]."))
        first = post(proxy, "responses", input="Why is the sky blue?", tools=[{"type": "web_search"}], store=False)
        assert LINK in json.dumps(first)
        model.script(text("Yes."))
        history = [
            {"role": "user", "content": "Why is the sky blue?"},
            *first["output"],
            {"role": "user", "content": "Sure?"},
        ]
        post(proxy, "responses", input=history, store=False)
    assert model.requests[0]["messages"][1] == {"role": "assistant", "content": "Blue [1]."}


def test_a_model_that_is_searched_for_is_searched_for_once(config: dict[str, Any], model: ModelServer) -> None:
    (given,) = config["upstreams"]
    with Groundwire({**config, "upstreams": [{**given, "tool_calls": "none", "rewrite_query": False}]}) as proxy:
        model.script(text('<tool_call>{"name": "weather", "arguments": {}}</tool_call>'))
        first = post(proxy, messages=[USER], tools=[WEATHER])
        assert first["usage"]["server_tool_use"]["web_search_requests"] == 1
        model.script(text("Rain, and blue [1]."))
        second = post(proxy, messages=returned(first, USER), tools=[WEATHER])
        assert "server_tool_use" not in second["usage"]
        assert second["choices"][0]["message"]["content"] == f"Rain, and blue {LINK}."
        assert "Rayleigh" in model.requests[0]["messages"][1]["content"]
        again = [
            *returned(first, USER),
            second["choices"][0]["message"],
            {"role": "user", "content": "Why is the sea salty?"},
        ]
        third = post(proxy, messages=again, tools=[WEATHER])
        assert third["usage"]["server_tool_use"]["web_search_requests"] == 1


def test_numbers_of_a_stored_response_outlive_a_turn_that_is_not_stored(proxy: Groundwire, model: ModelServer) -> None:
    model.script(call("web_search", {"query": "sky blue"}), text("Blue [1]."))
    first = post(proxy, "responses", input="Why is the sky blue?", tools=[FLAT])
    model.script(call("weather", {}, id="w"))
    turn = {"input": "And the weather?", "tools": [FLAT], "previous_response_id": first["id"]}
    second = post(proxy, "responses", **turn, store=False)
    (called,) = [item for item in second["output"] if item["type"] == "function_call"]
    model.script(text("Rain, but blue [1]."))
    result = {"type": "function_call_output", "call_id": called["call_id"], "output": "Rain."}
    items = [{"role": "user", "content": "And the weather?"}, called, result]
    third = post(proxy, "responses", input=items, tools=[FLAT], previous_response_id=first["id"])
    assert third["output"][-1]["content"][0]["text"] == f"Rain, but blue {LINK}."
