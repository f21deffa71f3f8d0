"""Errors in which a model's server repeats what the client sent: they teach nothing that holds for other clients."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.e2e.test_tool_modes import NO_TOOLS, QUESTION, WEATHER, ask, said
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, text


def named(**properties: Any) -> dict[str, Any]:
    """A tool with these properties."""
    return {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": properties}}}


def called(arguments: str) -> list[dict[str, Any]]:
    function = {"name": "weather", "arguments": arguments}
    asking = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": function}],
    }
    return [QUESTION, asking, {"role": "tool", "tool_call_id": "c", "content": "x"}]


CLAIM = "model does not support tools"
QUOTING = {  # fields of a request, and what a server says that repeats them
    "a key": ({"tools": [named(**{CLAIM: {}})]}, f"Invalid schema: properties.{CLAIM} must have a type"),
    "a key, folded": ({"tools": [named(**{CLAIM.upper(): {}})]}, f"Invalid schema: {CLAIM}"),
    "a key, cut": ({"tools": [named(**{CLAIM + " " + "x" * 99: {}})]}, f"Invalid schema: '{CLAIM} xxx...'"),
    "a key, spaced": ({"tools": [named(**{CLAIM.replace(" ", "  "): {}})]}, f"Invalid schema: {CLAIM}"),
    "a key of the body": ({CLAIM: 1}, f"Unexpected: {CLAIM}"),
    "a key of a message": ({"messages": [{**QUESTION, CLAIM: 1}]}, f"messages[0]: extra key {CLAIM}"),
    "a name of the API's kind": ({"tool_use": True}, "property 'tool_use' is unsupported"),
    "a value, escaped": ({"stop": [CLAIM.replace(" ", "\n")]}, f"stop: {CLAIM}"),
    "a value, as JSON": ({"user": f'"{CLAIM}"'}, f'user: \\"{CLAIM}\\"'),
    "a value behind the server's words": ({"reasoning_effort": "tools"}, "'reasoning_effort' does not support 'tools'"),
    "two values": ({"stop": ["does not support", "tools"]}, "stop: ['does not support', 'tools']"),
    "a kind of content": (
        {"messages": [{"role": "user", "content": [{"type": "tool", "text": "x"}]}]},
        "messages[0].content[0]: type 'tool' is not supported",
    ),
    "arguments": ({"messages": called(json.dumps({CLAIM: 1})), "tools": [WEATHER]}, f"bad arguments: {CLAIM}"),
    "escaped arguments": (
        {"messages": called('{"\\u006dodel does\\u0020not support tools": 1}'), "tools": [WEATHER]},
        f"bad arguments: {CLAIM}",
    ),
}


@pytest.mark.parametrize("case", QUOTING)
def test_what_a_server_quotes_teaches_nothing(proxy: Groundwire, model: ModelServer, case: str) -> None:
    """The client that caused it is asked about at the most in another way; all others have native tools."""
    (fields, message), name = QUOTING[case], f"m{list(QUOTING).index(case)}"
    model.script(Turn(status=400, body=json.dumps({"error": {"message": message}}).encode()), text("Blue."))
    body = {"model": name, "messages": [QUESTION], **fields}
    answer = httpx.post(f"{proxy.url}/chat/completions", json=body, headers={"x-groundwire-search": "on"}, timeout=20)
    if answer.status_code != 200:
        assert (answer.status_code, answer.json()["error"]["message"]) == (400, message)
    model.script(text("Hello."))
    ask(proxy, model=name)
    assert "tools" in model.requests[0]


def test_a_refusal_in_words_of_the_request_is_heard_for_that_request(proxy: Groundwire, model: ModelServer) -> None:
    """Whose words they are cannot be known: this one is answered, and the next one asks with tools again."""
    model.script(NO_TOOLS, text("Blue."))
    assert said(ask(proxy, model="unsure", tools=[named(tools={"type": "array"})])) == "Blue."
    assert ["tools" in request for request in model.requests] == [True, False]
    model.script(text("Hello."))
    ask(proxy, model="unsure")
    assert "tools" in model.requests[0]


def test_a_value_that_a_server_quotes_drops_no_parameter_for_others(proxy: Groundwire, model: ModelServer) -> None:
    refused = Turn(status=400, body=b'{"error":{"message":"\'temperature\' is not a valid number"}}')
    model.script(refused, text("Blue."))
    ask(proxy, model="warm", temperature="temperature")
    model.script(text("Blue."))
    ask(proxy, model="warm", temperature=0.5)
    assert model.requests[0]["temperature"] == 0.5
