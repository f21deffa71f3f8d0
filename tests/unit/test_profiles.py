"""What each kind of server is asked, and what it is spared."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.config import vocabulary
from proxy.upstreams.profiles import PROFILES, has_tool_turns, profile_of, short_id

CALL = {
    "id": "call_0123456789",
    "type": "function",
    "function": {"name": "web_search", "arguments": "{}"},
    "extra_content": {"google": {"thought_signature": "sig"}},
}
HISTORY: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": "Why?", "timestamp": 1},
    {"role": "assistant", "content": "Hm.", "tool_calls": [CALL], "reasoning_content": "think"},
    {"role": "tool", "tool_call_id": "call_0123456789", "content": "found"},
]
BODY: dict[str, Any] = {
    "model": "m",
    "messages": HISTORY,
    "tools": [{"type": "function", "function": {"name": "web_search"}}],
    "store": True,
    "metadata": {"a": "b"},
    "stream_options": {"include_usage": True},
    "parallel_tool_calls": False,
    "temperature": 0,
}


def test_the_plain_profile_changes_nothing() -> None:
    fit = PROFILES["openai"].fitted(BODY)
    assert fit == BODY
    assert fit["messages"] is HISTORY, "the very same objects"


def test_no_profile_touches_what_it_is_handed() -> None:
    before = repr(BODY)
    for profile in PROFILES.values():
        profile.fitted({**BODY, "tool_choice": "none"})
    assert repr(BODY) == before


def test_groq_gets_no_field_that_it_does_not_know() -> None:
    fit = PROFILES["groq"].fitted(BODY)
    assert fit.keys() == {"model", "messages", "tools", "stream_options", "parallel_tool_calls", "temperature"}
    allowed = {"role", "content", "name", "tool_calls", "tool_call_id"}
    assert all(message.keys() <= allowed for message in fit["messages"])
    assert fit["messages"][0]["role"] == "system"
    assert fit["messages"][2]["tool_calls"][0].keys() == {"id", "type", "function"}


def test_mistral_gets_short_ids_that_still_meet_and_its_thinking_as_parts() -> None:
    fit = PROFILES["mistral"].fitted({**BODY, "tool_choice": "required", "max_completion_tokens": 9})
    assistant, result = fit["messages"][2:]
    (call,) = assistant["tool_calls"]
    assert call["id"] == result["tool_call_id"]
    assert len(call["id"]) == 9
    assert call["id"].isalnum()
    assert assistant["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "think"}]},
        {"type": "text", "text": "Hm."},
    ]
    assert (fit["tool_choice"], fit["max_tokens"]) == ("any", 9)
    assert "stream_options" not in fit
    assert "store" not in fit


def test_short_ids_are_stable_and_differ() -> None:
    assert short_id("abcDEF123") == "abcDEF123"
    made = {short_id(f"call_{n}") for n in range(500)}
    assert len(made) == 500
    assert short_id("call_1") == short_id("call_1")


@pytest.mark.parametrize("name", ["deepseek", "gemini", "openai", "anthropic"])
def test_reasoning_and_signatures_go_back(name: str) -> None:
    assistant = PROFILES[name].fitted(BODY)["messages"][2]
    assert assistant["reasoning_content"] == "think"
    assert assistant["tool_calls"][0]["extra_content"]["google"]["thought_signature"] == "sig"


def test_how_the_last_round_is_forced() -> None:
    last = {**BODY, "tool_choice": "none"}
    kept = PROFILES["openai"].fitted(last)
    assert (kept["tool_choice"], kept["tools"]) == ("none", BODY["tools"])
    removed = PROFILES["ollama"].fitted(last)
    assert not removed.keys() & {"tools", "tool_choice", "parallel_tool_calls"}
    assert has_tool_turns(removed["messages"])
    flat = PROFILES["bedrock"].fitted(last)
    assert not flat.keys() & {"tools", "tool_choice", "parallel_tool_calls"}
    assert not has_tool_turns(flat["messages"])
    assert "found" in str(flat["messages"])


@pytest.mark.parametrize("name", ["anthropic", "bedrock"])
def test_tool_history_without_tools_is_written_out(name: str) -> None:
    bare = {key: value for key, value in BODY.items() if key != "tools"}
    assert not has_tool_turns(PROFILES[name].fitted(bare)["messages"])
    assert has_tool_turns(PROFILES[name].fitted(BODY)["messages"])


@pytest.mark.parametrize(
    ("kind", "base_url", "model", "name"),
    [
        ("openai", "https://api.groq.com/openai/v1", "x", "groq"),
        ("openai", "https://api.mistral.ai/v1", "x", "mistral"),
        ("openai", "https://api.deepseek.com", "x", "deepseek"),
        ("openai", "https://generativelanguage.googleapis.com/v1beta/openai", "x", "gemini"),
        ("openai", "https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1", "x", "bedrock"),
        ("openai", "http://127.0.0.1:11434/v1", "x", "ollama"),
        ("openai", "http://127.0.0.1:8000/v1", "groq/x", "openai"),
        ("litellm", "", "anthropic/claude", "anthropic"),
        ("litellm", "", "bedrock/anthropic.claude", "bedrock"),
        ("litellm", "", "ollama_chat/qwen3", "ollama"),
        ("litellm", "", "gemini/x", "openai"),
    ],
)
def test_the_address_tells_the_profile(kind: str, base_url: str, model: str, name: str) -> None:
    assert profile_of("auto", kind, base_url, model) == PROFILES[name]
    assert profile_of("mistral", kind, base_url, model) == PROFILES["mistral"]


def test_every_profile_can_be_named_in_the_config_and_no_other() -> None:
    assert set(vocabulary.PROFILES) == set(PROFILES)
