"""Responses requests: what is accepted, what it becomes, and what is refused with which `param`."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from proxy.answering.offer import decide
from proxy.dialects.responses.history import conversation, references
from proxy.dialects.responses.request import ResponsesRequest, decode
from proxy.values.errors import RequestError
from proxy.values.request import ChatRequest

WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": True}
CHAT_WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}, "strict": True}}


def read(**fields: Any) -> ResponsesRequest:
    return decode(json.dumps({"model": "m", "input": "hi", **fields}).encode())


def chat(*items: Any, **fields: Any) -> list[dict[str, Any]]:
    return conversation(read(input=list(items), **fields), (), {}).messages


def refused(**fields: Any) -> dict[str, Any]:
    with pytest.raises(RequestError) as caught:
        read(**fields)
    assert caught.value.failed.status == 400
    assert caught.value.failed.error["type"] == "invalid_request_error"
    return dict(caught.value.failed.error)


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": list(parts)}


# The body


def test_the_smallest_request() -> None:
    request = read()
    assert request.items == [user({"type": "input_text", "text": "hi"})]
    assert request.body == {"model": "m"}
    assert (request.model, request.stream, request.store) == ("m", False, True)
    assert (request.instructions, request.previous_response_id, request.search.max_calls) == (None, "", None)
    assert not request.search.asked
    assert request.search.live


def test_fields_become_those_of_chat_completions() -> None:
    request = read(
        stream=True,
        max_output_tokens=100,
        reasoning={"effort": "low", "summary": "auto"},
        text={"verbosity": "low", "format": {"type": "json_schema", "name": "a", "schema": {}, "strict": True}},
        tools=[WEATHER],
        parallel_tool_calls=False,
        temperature=0.5,
        top_p=1,
        user="u",
        service_tier="flex",
        prompt_cache_key="k",
        top_k=7,
        safety_identifier=None,
    )
    assert request.body == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 100,
        "reasoning_effort": "low",
        "verbosity": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}, "strict": True}},
        "tools": [CHAT_WEATHER],
        "parallel_tool_calls": False,
        "temperature": 0.5,
        "top_p": 1,
        "user": "u",
        "service_tier": "flex",
        "prompt_cache_key": "k",
        "top_k": 7,  # what only one server knows reaches it
    }


def test_what_is_ours_to_keep_does_not_go_up() -> None:
    request = read(
        store=False,
        metadata={"a": "b"},
        truncation="auto",
        include=["web_search_call.results", "x"],
        previous_response_id="resp_1",
        instructions="Be brief.",
        max_tool_calls=3,
        background=False,
        conversation=None,
        top_logprobs=2,
        stream_options={"include_obfuscation": False},
        text={"format": {"type": "text"}},
        reasoning=None,
        messages=[],
    )
    assert request.body == {"model": "m"}
    assert request.include == {"web_search_call.results", "x"}
    assert (request.store, request.previous_response_id, request.search.max_calls) == (False, "resp_1", 3)


@pytest.mark.parametrize(
    ("wanted", "becomes"),
    [(None, None), ({"type": "text"}, None), ({"type": "json_object"}, {"type": "json_object"})],
)
def test_text_formats(wanted: Any, becomes: Any) -> None:
    assert read(text={"format": wanted}).body.get("response_format") == becomes


# Search


@pytest.mark.parametrize(
    "kind", ["web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"]
)
def test_a_hosted_tool_asks_for_search(kind: str) -> None:
    tool = {
        "type": kind,
        "filters": {"allowed_domains": ["a.example"], "blocked_domains": ["b.example"]},
        "search_context_size": "high",
        "user_location": {"type": "approximate", "country": "ch"},
        "external_web_access": False,
    }
    request = read(tools=[WEATHER, tool])
    assert request.body["tools"] == [CHAT_WEATHER]
    search = request.search
    assert (search.asked, search.forced, search.live) == ("tool", False, False)
    assert (search.context_size, search.country) == ("high", "CH")
    assert (search.allowed_domains, search.blocked_domains) == (("a.example",), ("b.example",))
    assert "tools" not in read(tools=[{"type": kind}]).body


@pytest.mark.parametrize(
    ("choice", "becomes", "offered"),
    [
        (None, None, "tool"),
        ("auto", "auto", "tool"),
        ("required", "required", "tool"),
        ("none", "none", ""),
        ({"type": "function", "name": "weather"}, {"type": "function", "function": {"name": "weather"}}, ""),
        ({"type": "web_search"}, None, "tool"),
        ({"type": "web_search_preview"}, None, "tool"),
        ({"type": "function", "name": "web_search"}, None, "tool"),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]},
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "weather"}}]},
            },
            "",
        ),
        ({"type": "allowed_tools", "tools": [{"type": "web_search"}]}, "none", "tool"),
        (
            {"type": "allowed_tools", "tools": [{"type": "web_search"}, {"type": "function", "name": "weather"}]},
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "weather"}}]},
            },
            "tool",
        ),
    ],
)
def test_tool_choices(choice: Any, becomes: Any, offered: str) -> None:
    request = read(tools=[WEATHER, {"type": "web_search"}], tool_choice=choice)
    assert request.body.get("tool_choice") == becomes
    decision = decide(ChatRequest(request.body, b"", "m", search=request.search), "auto", "", True)
    assert (decision.reason if decision.offered else "") == offered
    hosted = isinstance(choice, dict) and choice.get("type") != "allowed_tools" and choice.get("name") != "weather"
    assert request.search.forced == hosted
    assert request.echo["tool_choice"] == (choice or "auto")


def test_a_free_choice_of_no_tool_is_not_sent() -> None:
    assert read(tool_choice="auto", parallel_tool_calls=True).body == {"model": "m"}
    assert read(tool_choice="none").body == {"model": "m", "tool_choice": "none"}


# What is refused

IMAGE = {"type": "input_image", "image_url": "https://x/y.png"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": ""}, "model"),
        ({"model": 3}, "model"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": {}}, "input"),
        ({"input": ["x"]}, "input[0]"),
        ({"input": [{"type": "massage"}]}, "input[0].type"),
        ({"input": [{"type": "custom_tool_call", "call_id": "c", "name": "f"}]}, "input[0].input"),
        ({"input": [{"type": "custom_tool_call_output", "call_id": "c"}]}, "input[0].output"),
        ({"input": [{"type": ["x"]}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": "x"}, {}]}, "input[1].id"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"input": [{"type": "message", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "input_video"}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": [{"type": {}}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": ["x"]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
        ({"input": [{"role": "assistant", "content": [IMAGE]}]}, "input[0].content[0].type"),
        ({"input": [user({"type": "input_image"})]}, "input[0].content[0].image_url"),
        ({"input": [user(IMAGE, {"type": "input_image", "file_id": "f"})]}, "input[0].content[1].file_id"),
        ({"input": [user({"type": "input_file", "file_url": "https://x"})]}, "input[0].content[0].file_url"),
        ({"input": [user({"type": "input_file"})]}, "input[0].content[0].file_data"),
        ({"input": [user({"type": "input_audio"})]}, "input[0].content[0].input_audio"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call", "call_id": "c", "arguments": "{}"}]}, "input[0].name"),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]}, "input[0].arguments"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input[0].output"),
        (
            {"input": [{"type": "function_call_output", "call_id": "c", "output": [{"type": "x"}]}]},
            "input[0].output[0].type",
        ),
        ({"input": [{"type": "item_reference"}]}, "input[0].id"),
        ({"instructions": 3}, "instructions"),
        ({"instructions": [{"role": "user"}]}, "instructions[0].content"),
        ({"stream": "yes"}, "stream"),
        ({"store": 1}, "store"),
        ({"previous_response_id": 3}, "previous_response_id"),
        ({"metadata": []}, "metadata"),
        ({"reasoning": "low"}, "reasoning"),
        ({"text": "json"}, "text"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 1.5}, "max_output_tokens"),
        ({"max_tool_calls": -1}, "max_tool_calls"),
        ({"truncation": "some"}, "truncation"),
        ({"include": "x"}, "include"),
        ({"include": ["x", 3]}, "include[1]"),
        ({"background": "yes"}, "background"),
        ({"background": True, "store": False}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "custom"}]}, "tools[0].name"),
        ({"tools": [WEATHER, {"type": "namespace", "tools": []}]}, "tools[1].name"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": {}}]}, "tools[0].tools"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [WEATHER, 3]}]}, "tools[0].tools[1].type"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]}, "tools[0].tools[0].name"),
        ({"tools": [{"name": "x"}]}, "tools[0].type"),
        ({"tools": ["x"]}, "tools[0].type"),
        ({"tools": [CHAT_WEATHER]}, "tools[0].name"),
        ({"tool_choice": "maybe"}, "tool_choice"),
        ({"tool_choice": 3}, "tool_choice"),
        ({"tool_choice": {"name": "x"}}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "x"}}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tool_choice": {"type": "web_search"}, "tools": [WEATHER]}, "tool_choice"),
        ({"tool_choice": {"type": "file_search"}, "tools": [{"type": "web_search"}]}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.tools"),
        ({"tool_choice": {"type": "allowed_tools", "tools": [WEATHER]}}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools", "tools": [3]}}, "tool_choice.tools[0].type"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "allowed_tools", "mode": "x", "tools": [WEATHER]}},
            "tool_choice.mode",
        ),
    ],
)
def test_bad_input_names_its_place(fields: dict[str, Any], param: str) -> None:
    assert refused(**fields)["param"] == param


def test_a_hosted_choice_without_its_tool_says_so() -> None:
    said = refused(tool_choice={"type": "web_search"})
    assert said["message"] == "Tool choice 'web_search' not found in 'tools' parameter."


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'"x"', b'{"a":' * 300 + b"1" + b"}" * 300])
def test_bodies_that_are_none(raw: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        decode(raw)
    assert caught.value.failed.status == 400


# What the response object repeats


def test_the_echo_has_every_field_with_its_default() -> None:
    assert read().echo == {
        "background": False,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {},
        "model": "m",
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "user": None,
    }


def test_the_echo_says_what_was_asked() -> None:
    asked = {
        "instructions": "Be brief.",
        "max_output_tokens": 9,
        "metadata": {"a": "b"},
        "parallel_tool_calls": False,
        "previous_response_id": "resp_1",
        "reasoning": {"effort": "low", "summary": None},
        "store": False,
        "temperature": 0,
        "text": {"format": {"type": "json_object"}, "verbosity": "high"},
        "truncation": "auto",
        "user": "u",
    }
    assert read(**asked).echo == {**read().echo, **asked}


def test_echoed_tools_have_their_defaults() -> None:
    located = {"type": "web_search_preview", "user_location": {"country": "CH"}}
    tools = read(tools=[{"type": "function", "name": "f"}, {"type": "web_search"}, located]).echo["tools"]
    where = {"type": "approximate", "city": None, "country": "CH", "region": None, "timezone": None}
    assert tools == [
        {"type": "function", "name": "f", "description": None, "parameters": None, "strict": False},
        {"type": "web_search", "filters": None, "search_context_size": "medium", "user_location": None},
        {"type": "web_search_preview", "search_context_size": "medium", "user_location": where},
    ]


# Items


def test_items_in_all_their_forms_have_one_form() -> None:
    request = read(
        input=[
            {"role": "developer", "content": "Be kind."},
            {"role": "assistant", "content": "Yes?", "phase": "final_answer"},
            {"id": "msg_1"},
            {"type": "item_reference", "id": "ws_1"},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "web_search_call", "id": "ws_2", "status": "completed"},
        ]
    )
    assert request.items == [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Yes?", "annotations": []}],
            "phase": "final_answer",
        },
        {"type": "item_reference", "id": "msg_1"},
        {"type": "item_reference", "id": "ws_1"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "web_search_call", "id": "ws_2", "status": "completed"},
    ]
    assert references(request) == ["msg_1", "ws_1", "rs_1", "ws_2"]


def data(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


@pytest.mark.parametrize(
    ("parts", "content"),
    [
        ([{"type": "input_text", "text": "a"}], "a"),
        ([{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        ([IMAGE], [{"type": "image_url", "image_url": {"url": IMAGE["image_url"]}}]),
        (
            [{"type": "input_text", "text": "a"}, {**IMAGE, "detail": "low"}],
            [
                {"type": "text", "text": "a"},
                {"type": "image_url", "image_url": {"url": IMAGE["image_url"], "detail": "low"}},
            ],
        ),
        (
            [{"type": "input_file", "filename": "n.md", "file_data": data("text/markdown", "# é".encode())}],
            "n.md:\n\n# é",
        ),
        (
            [{"type": "input_file", "file_data": data("application/pdf", b"%PDF")}],
            [{"type": "file", "file": {"filename": "file", "file_data": data("application/pdf", b"%PDF")}}],
        ),
        (
            [{"type": "input_file", "filename": "x", "file_data": "data:text/plain;base64,x"}],
            [{"type": "file", "file": {"filename": "x", "file_data": "data:text/plain;base64,x"}}],
        ),
        (
            [{"type": "input_audio", "input_audio": {"data": "aa", "format": "wav"}}],
            [{"type": "input_audio", "input_audio": {"data": "aa", "format": "wav"}}],
        ),
    ],
)
def test_content_as_chat_completions_has_it(parts: list[dict[str, Any]], content: Any) -> None:
    assert chat({"role": "user", "content": parts}) == [{"role": "user", "content": content}]


@pytest.mark.parametrize("param", ["input", "instructions"])
def test_a_conversation_of_too_many_items(param: str) -> None:
    items = [{"role": "user", "content": "hi"}] * 20_001
    error = refused(**{"input": "hi", param: items})
    assert (error["param"], error["code"]) == (param, "array_above_max_length")
    assert len(chat(*items[:-1])) == 20_000


def test_nor_with_what_was_said_before() -> None:
    before = [{"role": "user", "content": "hi"}] * 20_000
    with pytest.raises(RequestError, match="20001 entries"):
        conversation(read(input="hi"), before, {})
