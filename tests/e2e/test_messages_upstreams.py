"""`/v1/messages` in front of models that Anthropic's API reaches: through LiteLLM by translation, thinking signed and
all; and, without our search, byte for byte to a server that speaks Messages itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.test_messages import (
    BOTH_WAYS,
    LINK,
    QUESTION,
    RESULT,
    SEARCHED,
    SERVER_TOOL,
    SKY,
    USE,
    VERSION,
    WEATHER,
    ask,
    asked,
    echo,
    error_of,
    result,
)
from tests.fakes.anthropic_model import SIGNATURE, AnthropicServer
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import Turn, text
from tests.unit.messages_scripts import gathered, payloads, short, text_of

CLAUDE = "anthropic/claude-sonnet-4-5"
THINKING = {"type": "enabled", "budget_tokens": 1024}


@pytest.fixture(scope="module")
def vendor() -> Iterator[AnthropicServer]:
    with AnthropicServer() as server:
        yield server


@pytest.fixture(scope="module")
def proxy(vendor: AnthropicServer, config: dict[str, Any]) -> Iterator[Groundwire]:
    translated = {
        "name": "translated",
        "type": "litellm",
        "base_url": vendor.url,
        "api_key": "sk-vendor-key-of-ours",
        "models": [CLAUDE],
    }
    direct = {
        "name": "direct",
        "base_url": f"{vendor.url}/v1",
        "headers": {"x-api-key": "sk-vendor-key-of-ours"},
        "messages": True,
    }
    with Groundwire({**config, "upstreams": [translated, direct], "aliases": {"best": "direct/sonnet-x"}}) as running:
        yield running


# By translation


@BOTH_WAYS
def test_signed_thinking_goes_back_verbatim(proxy: Groundwire, vendor: AnthropicServer, stream: bool) -> None:
    vendor.script(Turn(reasoning=["h", "m"], calls=[("toolu_1", "weather", {"city": "Bern"})]), text("It rains."))
    fields: dict[str, Any] = {"model": CLAUDE, "tools": [WEATHER], "thinking": THINKING, "max_tokens": 4000}
    called = ask(proxy, stream=stream, **fields)
    assert short(called) == [f"<hm|{SIGNATURE}>", ("tool_use", "weather", {"city": "Bern"})]
    done = ask(proxy, [asked(), echo(called), result(called)], stream=stream, **fields)
    assert text_of(done) == "It rains."
    assert vendor.complaints == []
    assert vendor.requests[1]["messages"][1]["content"][0]["signature"] == SIGNATURE


@BOTH_WAYS
def test_searched_and_cited(proxy: Groundwire, vendor: AnthropicServer, stream: bool) -> None:
    vendor.script(SEARCHED, text("Scattering ", "[1]."), text("Yes [1]."))
    message = ask(proxy, model=CLAUDE, tools=[SERVER_TOOL], stream=stream)
    assert short(message) == [USE, RESULT, ("Scattering.", SKY)]
    again = ask(proxy, [asked(), echo(message), asked("Sure?")], model=CLAUDE, tools=[SERVER_TOOL], stream=stream)
    assert short(again) == [("Yes.", SKY)]
    assert vendor.complaints == []


# Byte for byte


def as_sent(proxy: Groundwire, raw: bytes, **headers: str) -> httpx.Response:
    sent = {**VERSION, "anthropic-beta": "x-2026", "content-type": "application/json", "x-groundwire-search": "off"}
    return httpx.post(f"{proxy.url}/messages?beta=true", content=raw, headers={**sent, **headers}, timeout=20)


def body(**fields: Any) -> bytes:
    sent = {"model": "sonnet-x", "max_tokens": 9, "messages": [asked()], "top_k": 5, **fields}
    return json.dumps(sent, indent=1).encode()


@BOTH_WAYS
def test_bytes_pass_both_ways(proxy: Groundwire, vendor: AnthropicServer, stream: bool) -> None:
    vendor.script(Turn(reasoning=["hm"], text=["Hel", "lo."]))
    raw = body(stream=stream)
    answer = as_sent(proxy, raw)
    assert answer.status_code == 200, answer.text
    message = gathered(payloads(answer.content)) if stream else answer.json()
    assert message["id"] == "msg_01"
    assert text_of(message) == "Hello."
    assert vendor.raw == [raw]
    assert vendor.paths == ["/v1/messages?beta=true"]
    assert vendor.heads[0]["anthropic-beta"] == "x-2026"
    assert vendor.complaints == []
    assert answer.headers["x-groundwire-search"] == "off; reason=header"


def test_only_the_name_of_the_model_changes(proxy: Groundwire, vendor: AnthropicServer) -> None:
    vendor.script(text("Hello."))
    assert as_sent(proxy, body(model="best")).status_code == 200
    assert vendor.requests[0] == json.loads(body())


def test_its_errors_pass_too(proxy: Groundwire, vendor: AnthropicServer) -> None:
    vendor.script(vendor.refusal(400, "prompt is too long"))
    refused = as_sent(proxy, body())
    assert error_of(refused) == (400, "invalid_request_error")
    assert refused.json()["error"]["message"] == "prompt is too long"


def test_what_is_ours_is_translated(proxy: Groundwire, vendor: AnthropicServer) -> None:
    """A link of ours, a search, a key in an id: none of it is for anybody else to read. This server speaks no chat."""
    vendor.script(text("Hello."))
    ours: list[Any] = [
        {"messages": [asked(), {"role": "assistant", "content": f"Blue {LINK}."}, asked("Sure?")]},
        {"tools": [SERVER_TOOL]},
    ]
    for fields in ours:
        as_sent(proxy, body(**fields))
        assert vendor.paths[-1] == "/v1/chat/completions"
    as_sent(proxy, body(), **{"x-groundwire-search": "on"})
    assert vendor.paths[-1] == "/v1/chat/completions"
    assert QUESTION in vendor.raw[-1].decode()
