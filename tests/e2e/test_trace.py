"""`X-Groundwire-Trace: on`: a stream of `/v1/responses` that also says what is done for it, while it is done."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fakes.groundwire import Groundwire, gone
from tests.fakes.held_search import HeldSearch
from tests.fakes.model import ModelServer, Turn, call, text

CLIENT = httpx.Client(timeout=20, limits=httpx.Limits(max_keepalive_connections=0))
TRACE = {"x-groundwire-trace": "on"}
CITING = "The sky is blue because air scatters blue light more than red light [1]."


@pytest.fixture(scope="module")
def proxy(config: dict[str, Any]) -> Iterator[Groundwire]:
    dead = {"name": "dead", "type": "searxng", "base_url": gone()["base_url"].removesuffix("/v1"), "private": False}
    upstreams = [
        {**config["upstreams"][0], "name": "reader", "models": ["reads"], "tool_calls": "none", "rewrite_query": False},
        *config["upstreams"],
    ]
    providers = [dead, *config["providers"]]
    chains = {"search": ["dead", "library"], "read": ["library"], "public_fallback": True}
    kept = {**config, "upstreams": upstreams, "providers": providers, "tools": chains, "cooldown": {"failures": 2}}
    with Groundwire(kept) as running:
        yield running


def ask(proxy: Groundwire, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    body = {"model": "m", "input": "Why is the sky blue?", "stream": True, **fields}
    return CLIENT.post(f"{proxy.url}/responses", json=body, headers=headers or {})


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    frames = [frame for frame in answer.text.split("\n\n") if frame.startswith("event: ")]
    told = [(frame.split("\n")[0][7:], json.loads(frame.split("\n")[1][6:])) for frame in frames]
    assert [event["sequence_number"] for _, event in told] == list(range(len(told)))
    assert all(name == event["type"] for name, event in told)
    return [event for _, event in told]


def steps(answer: httpx.Response) -> list[dict[str, Any]]:
    return [event["step"] for event in events(answer) if event["type"] == "groundwire.step"]


def said(answer: httpx.Response) -> str:
    (text_done,) = [event for event in events(answer) if event["type"] == "response.output_text.done"]
    return str(text_done["text"])


def test_a_search_with_fail_over_and_then_from_the_cache(proxy: Groundwire, model: ModelServer) -> None:
    shown = []
    for _ in range(2):
        model.script(call("web_search", {"query": "why is the sky blue"}), text(CITING))
        shown.append(ask(proxy, TRACE))
    first, second = map(steps, shown)
    kinds = [step["kind"] for step in first]
    assert kinds[:9] == [
        "received",
        "decided",
        "model_asked",
        "model_answered",
        "tool_started",
        "provider_called",
        "provider_called",
        "tool_finished",
        "model_asked",
    ]
    assert sorted(kinds[9:]) == ["cited", "first_content", "model_answered"]
    by_kind = {step["kind"]: step for step in first}
    assert (by_kind["decided"]["search"], by_kind["decided"]["reason"]) == ("offered", "auto")
    assert by_kind["tool_started"]["contents"] == [{"query": "why is the sky blue"}]
    failed, found = (step for step in first if step["kind"] == "provider_called")
    assert (failed["provider"], failed["outcome"], failed["cached"]) == ("dead", "unavailable", False)
    assert (found["provider"], found["outcome"], found["cached"]) == ("library", "ok", False)
    assert failed["asked"] == found["asked"] == "why is the sky blue"
    assert found["results"] >= 1
    assert found["bytes"] > 50
    cited = by_kind["cited"]
    assert (cited["n"], cited["url"], cited["basis"]) == (1, "https://library.example/sky.md", "page")
    assert "scatters blue light" in cited["cited_text"]
    assert [step["round"] for step in first if step["kind"] == "model_asked"] == [1, 2]
    assert [step["at_ms"] for step in first] == sorted(step["at_ms"] for step in first)
    assert [step["cached"] for step in second if step.get("provider") == "library"] == [True]
    assert events(shown[0])[0]["type"] == "response.created"
    assert events(shown[0])[-1]["type"] == "response.completed"


def test_without_the_header_nothing_changes(proxy: Groundwire, model: ModelServer) -> None:
    answers = []
    for headers in ({}, {"x-groundwire-trace": "off"}, {"x-groundwire-trace": "1"}, TRACE):
        model.script(call("web_search", {"query": "sky"}), text(CITING))
        answers.append(ask(proxy, headers))
    plain = [_nameless(answer.text) for answer in answers]
    assert plain[0] == plain[1] == plain[2]
    assert "groundwire.step" not in plain[0]
    assert _types(answers[3]) == _types(answers[0]), "the trace adds, and takes nothing away"
    assert said(answers[3]) == said(answers[0])


def _nameless(stream: str) -> str:
    """Without what is another in every response."""
    return re.sub(r"[a-z]+_[0-9a-f]{16,}|\"(?:created|completed)_at\":\d+|\"obfuscation\":\"\w*\"", "", stream)


def _types(answer: httpx.Response) -> list[str]:
    return [event["type"] for event in events(answer) if event["type"] != "groundwire.step"]


def test_steps_leave_while_a_search_is_awaited_and_who_leaves_stops_it(
    config: dict[str, Any], model: ModelServer
) -> None:
    model.script(call("web_search", {"query": "why is the sky blue"}), text("never"))
    with HeldSearch() as engine:
        held = {"name": "held", "type": "searxng", "base_url": engine.url}
        with Groundwire({**config, "providers": [held], "tools": {"search": ["held"]}}) as proxy:
            body = {"model": "m", "input": "Why is the sky blue?", "stream": True}
            kinds = []
            with CLIENT.stream("POST", f"{proxy.url}/responses", json=body, headers=TRACE) as answer:
                for line in answer.iter_lines():  # it would end nowhere if steps waited for the next text
                    if line.startswith("data: ") and "groundwire.step" in line:
                        kinds.append(json.loads(line[6:])["step"]["kind"])
                        if kinds[-1] == "tool_started":
                            assert engine.asked.acquire(timeout=10)
                            break
            assert engine.left.acquire(timeout=10)
    assert kinds == ["received", "decided", "model_asked", "model_answered", "tool_started"]


def test_a_model_that_cannot_call_is_searched_for_in_sight(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text(CITING))
    shown = steps(ask(proxy, TRACE, model="reads"))
    kinds = [step["kind"] for step in shown]
    assert kinds.index("tool_started") < kinds.index("provider_called") < kinds.index("model_asked")
    assert [step["search"] for step in shown if step["kind"] == "decided"] == ["offered", "first"]


def test_a_failure_is_told_in_the_stream_that_steps_have_begun(proxy: Groundwire, model: ModelServer) -> None:
    model.script(Turn(status=400, body=b'{"error":{"message":"no such thing","code":"bad"}}'))
    answer = ask(proxy, TRACE)
    assert events(answer)[-1]["type"] == "response.failed"
    assert [step["kind"] for step in steps(answer)][-1] == "model_failed"
    refused = ask(proxy, TRACE, input=7)
    assert refused.status_code == 400, "what is refused before anybody is asked has its status"


def test_nothing_of_it_is_stored_and_in_the_background_there_is_none(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    response = events(ask(proxy, TRACE, store=True))[-1]["response"]
    kept = CLIENT.get(f"{proxy.url}/responses/{response['id']}")
    assert kept.status_code == 200
    assert "groundwire" not in kept.text
    model.script(text("Blue."))
    answer = ask(proxy, TRACE, background=True, store=True)
    assert steps(answer) == []
    assert events(answer)[-1]["type"] == "response.completed"


def test_other_apis_and_whole_answers_have_none(proxy: Groundwire, model: ModelServer) -> None:
    model.script(text("Blue."))
    messages = [{"role": "user", "content": "Why is the sky blue?"}]
    chat = {"model": "m", "messages": messages, "stream": True}
    assert "groundwire.step" not in CLIENT.post(f"{proxy.url}/chat/completions", json=chat, headers=TRACE).text
    claude = {"model": "m", "messages": messages, "stream": True, "max_tokens": 99}
    assert "groundwire.step" not in CLIENT.post(f"{proxy.url}/messages", json=claude, headers=TRACE).text
    assert "groundwire.step" not in ask(proxy, TRACE, stream=False).text


def test_a_key_in_a_query_is_shown_nowhere(proxy: Groundwire, model: ModelServer) -> None:
    key = "gw-the-key-of-this-caller-1234"
    model.script(call("web_search", {"query": f"who has {key}"}), text("Nobody."))
    answer = ask(proxy, {**TRACE, "authorization": f"Bearer {key}"})
    (began,) = [step for step in steps(answer) if step["kind"] == "tool_started"]
    assert began["contents"] == [{"query": "…"}]
    assert not [step for step in steps(answer) if step["kind"] == "provider_called"]
