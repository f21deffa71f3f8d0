"""Refusals read, and what is kept of them: real sentences of real servers."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.upstreams.client import lists_no_tools, without_calling
from proxy.upstreams.learned import KEPT, MOST_MODELS, NOTHING, Learned, Lesson, lesson_in, refuses_tools
from proxy.values.events import Failed
from tools import open_page, web_search
from tools.options import ToolPolicy

BODY: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", "annotations": []}],
    "tools": [{}],
    "tool_choice": "auto",
    "response_format": {"type": "json_object"},
    "store": True,
    "metadata": {},
    "parallel_tool_calls": True,
    "stream_options": {},
    "max_tokens": 5,
    "reasoning_effort": "low",
    "logit_bias": {},
}

NAMED = [
    ("Unrecognized request argument supplied: store", "store"),
    ("Unknown parameter: 'metadata'.", "metadata"),
    ("property 'store' is unsupported, did you mean 'stop'?", "store"),
    ("`parallel_tool_calls` is not supported with this model", "parallel_tool_calls"),
    ("stream_options: Extra inputs are not permitted", "stream_options"),
    ("[{'type': 'extra_forbidden', 'loc': ['body', 'store'], 'msg': 'Extra inputs are not permitted'}]", "store"),
    ("anthropic does not support parameters: ['logit_bias'], for model=x", "logit_bias"),
    ("Argument not supported on this model: reasoningEffort", "reasoning_effort"),
    ("This model does not support the parameter reasoning_effort", "reasoning_effort"),
    ('"llama3.2" does not support thinking', "reasoning_effort"),
]


def failed(message: str, status: int = 400, **error: Any) -> Failed:
    return Failed(status, {"message": message, "type": "x", "param": None, "code": None, **error})


@pytest.mark.parametrize(("message", "name"), NAMED)
def test_a_refused_parameter_is_left_out(message: str, name: str) -> None:
    lesson = lesson_in(failed(message), BODY)
    assert lesson == Lesson(drop=frozenset({name}))
    assert name not in lesson.fitted(BODY)
    assert lesson_in(failed(message), {k: v for k, v in BODY.items() if k != name}) is None, "it was not even sent"


def with_our_tools(body: dict[str, Any]) -> dict[str, Any]:
    specs = (web_search.spec(ToolPolicy()), open_page.spec(ToolPolicy()))
    described = [{"name": s.tool, "description": s.description, "parameters": dict(s.parameters)} for s in specs]
    return {**body, "tools": [{"type": "function", "function": function} for function in described]}


@pytest.mark.parametrize(("message", "name"), NAMED)
def test_our_own_tools_cast_no_doubt_on_a_refusal(message: str, name: str) -> None:
    """Their words stand in every request: a server that uses the same ones does not quote them."""
    assert lesson_in(failed(message), with_our_tools(BODY)) == Lesson(drop=frozenset({name}))


def test_a_refused_limit_gets_its_other_name() -> None:
    said = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    lesson = lesson_in(failed(said, param="max_tokens"), BODY)
    assert lesson is not None
    fit = lesson.fitted(BODY)
    assert fit["max_completion_tokens"] == 5
    assert "max_tokens" not in fit


def test_a_field_of_a_message_is_left_out_of_all_messages() -> None:
    said = (
        "'messages.1' : for 'role:assistant' the following must be satisfied"
        "[('messages.1' : property 'annotations' is unsupported)]"
    )
    lesson = lesson_in(failed(said), BODY)
    assert lesson is not None
    assert lesson.fitted(BODY)["messages"][1] == {"role": "assistant", "content": "y"}


@pytest.mark.parametrize(
    "message",
    [
        "response_format is not supported with this model",
        "Unsupported parameter: 'tools'",
        "Unknown parameter: 'tool_choice'",
        "Unknown parameter: 'messages[0].content'",
        "'model' is not supported",
        "Unsupported value: 'temperature' does not support 0.2 with this model.",
        "The model is overloaded",
        "This parameter is not supported",
        "Invalid parameter: store must be a boolean",
        "Unknown parameter: store must be between 0 and 2",
        "logit_bias is not allowed without logprobs",
    ],
)
def test_what_the_answer_depends_on_is_never_left_out(message: str) -> None:
    assert lesson_in(failed(message), BODY) is None


@pytest.mark.parametrize("status", [401, 404, 429, 500])
def test_only_a_bad_request_teaches(status: int) -> None:
    assert lesson_in(failed(NAMED[0][0], status), BODY) is None


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("registry.ollama.ai/library/gemma:2b does not support tools", 400),
        ("No endpoints found that support tool use. To learn more about provider routing, visit …", 404),
        ('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', 400),
        ("tools param requires --jinja flag", 500),
        ("`tool calling` is not supported with this model", 400),
        ("Function calling is not enabled for models/gemma-3-27b-it", 400),
        ("ollama does not support parameters: ['tools']", 400),
        ("This model does not support function calling", 400),
    ],
)
def test_a_refusal_of_tools(message: str, status: int) -> None:
    assert refuses_tools(failed(message, status), BODY) == "surely"
    assert refuses_tools(failed(message, status), with_our_tools(BODY)) == "surely"
    assert not refuses_tools(failed(message, status), {**BODY, "tools": []})
    assert not refuses_tools(failed(message, 429), BODY)


@pytest.mark.parametrize(
    "message",
    [
        "Invalid schema for function 'x' in tools[0]",
        "messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
        "An assistant message with 'tool_calls' must be followed by tool messages",
        "The service is not available",
        "Invalid 'tools': array too long, at most 128 tools",
        "Thinking mode does not support this tool_choice",
        "This model does not support parallel tool calls",
        "Tool choice 'allowed_tools' is not supported",
        "Tool names with dots are not allowed",
    ],
)
def test_other_trouble_with_tools(message: str) -> None:
    assert not refuses_tools(failed(message), BODY)


def test_an_hour_and_not_longer() -> None:
    now = 0.0
    learned = Learned(lambda: now)
    learned.keep("m", Lesson(drop=frozenset({"store"})))
    learned.keep("m", Lesson(tool_calls="prompted"))
    assert learned.of("m").drop == {"store"}
    assert learned.of("m").tool_calls == "prompted"
    assert learned.of("other") is NOTHING
    now = KEPT + 1
    assert learned.of("m") is NOTHING


def test_no_fact_outlives_its_hour_because_another_came() -> None:
    now = 0.0
    learned = Learned(lambda: now)
    learned.keep("m", Lesson(drop=frozenset({"store"})))
    now = KEPT - 1
    learned.keep("m", Lesson(drop=frozenset({"metadata"})))
    now = KEPT + 1
    assert learned.of("m") is NOTHING


def test_only_the_mode_is_forgotten() -> None:
    learned = Learned()
    learned.keep("m", Lesson(drop=frozenset({"store"}), tool_calls="prompted"))
    learned.forget_mode("m")
    assert (learned.of("m").drop, learned.of("m").tool_calls) == ({"store"}, "")


def test_a_refused_none_takes_the_tools_away() -> None:
    body = {**BODY, "tool_choice": "none"}
    lesson = lesson_in(failed("tool_choice 'none' is not supported"), body)
    assert lesson == Lesson(bare_end=True)
    assert not lesson.fitted(body).keys() & {"tools", "tool_choice", "parallel_tool_calls"}
    assert "tools" in lesson.fitted(BODY), "only in the last round"
    assert not refuses_tools(failed("tool_choice 'none' is not supported"), body)


def test_a_message_that_repeats_what_was_sent_is_read_in_part() -> None:
    assert lesson_in(failed("x" * 100_000 + " Unknown parameter: store"), BODY) is None
    assert not refuses_tools(failed("x" * 100_000 + " does not support tools"), BODY)


def test_names_from_clients_do_not_fill_the_memory() -> None:
    learned = Learned()
    for n in range(MOST_MODELS + 10):
        learned.keep(f"m{n}", Lesson(looked=True))
    assert learned.of("m0") is NOTHING
    assert learned.of(f"m{MOST_MODELS + 9}").looked


@pytest.mark.parametrize(
    ("entry", "none"),
    [
        ({}, False),
        ({"supported_parameters": ["tools", "temperature"]}, False),
        ({"supported_parameters": ["temperature"]}, True),
        ({"capabilities": {"function_calling": False}}, True),
        ({"capabilities": {"function_calling": True}}, False),
        ({"capabilities": ["tool_use"]}, False),
        ({"capabilities": ["completion", "vision"]}, True),
        ({"capabilities": []}, False),
        ({"supports_tools": False}, True),
        ({"capabilities": "x", "supported_parameters": None}, False),
    ],
)
def test_what_a_listing_says_of_tools(entry: dict[str, Any], none: bool) -> None:
    assert lists_no_tools(entry) is none


@pytest.mark.parametrize(
    ("model", "entry", "mode"),
    [
        ("gemma:2b", {}, "none"),
        ("smollm2-135m-instruct", {}, "none"),
        ("Qwen2.5-1.5B-Instruct", {}, "none"),
        ("gemma-3-27b-it", {}, "prompted"),
        ("mixtral-8x7b", {}, "prompted"),
        ("some-model", {}, "prompted"),
        ("some-model", {"meta": {"n_params": 134_515_008}}, "none"),
        ("phi4", {"meta": {"n_params": 14_000_000_000}}, "prompted"),
    ],
)
def test_small_models_are_handed_what_to_read(model: str, entry: dict[str, Any], mode: str) -> None:
    assert without_calling(model, entry) == mode


def test_a_clients_own_words_teach_nothing() -> None:
    words = "this does not support tools"
    body = {**BODY, "tools": [{"type": words, "function": {"name": "f"}}]}
    assert not refuses_tools(failed(f"Input should be 'function', got {words!r}"), body)
    assert refuses_tools(failed(f"got {words!r}. The model cannot use tools."), body), "the server says so too"
    said = "Unsupported parameter: 'temperature'"
    assert lesson_in(failed(f"temperature: {said}"), {**BODY, "temperature": said}) is None
