"""Models that cannot call tools: what is searched before they are asked, how much they are handed, and what their
refusals look like from outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SITE
from tests.fakes.bounded_model import BoundedModel
from tests.fakes.groundwire import Groundwire
from tests.fakes.model import ModelServer, Turn, text

ASKED = "Why is the sky blue?"
LINK = f"[[1]]({SITE}sky.md)"
ROADS = {
    "chat": ("/chat/completions", {"messages": [{"role": "user", "content": ASKED}]}),
    "responses": ("/responses", {"input": ASKED}),
    "messages": ("/messages", {"messages": [{"role": "user", "content": ASKED}], "max_tokens": 100}),
}
BOTH_WAYS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@pytest.fixture(scope="module")
def first(config: dict[str, Any]) -> Iterator[Groundwire]:
    (given,) = config["upstreams"]
    with Groundwire({**config, "upstreams": [{**given, "tool_calls": "none"}]}) as running:
        yield running


def ask(proxy: Groundwire, content: str, **fields: Any) -> httpx.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": content}], **fields}
    return httpx.post(f"{proxy.url}/chat/completions", json=body, timeout=20)


def said(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


# What is searched


def test_the_model_says_what_is_searched(first: Groundwire, model: ModelServer) -> None:
    model.script(text("sea salty rivers"), text("Rivers [1]."))
    answer = ask(first, "Tell me, is it salt that rivers bring?")
    deciding, asked = model.requests
    assert (deciding["stream"], deciding["max_tokens"], "tools" in deciding) == (False, 100, False)
    assert "Why the sea is salty" in asked["messages"][-1]["content"]
    assert answer.headers["x-groundwire-search"] == "offered; reason=auto; searched=first"
    assert answer.json()["usage"]["total_tokens"] == 30, "what the decision cost is counted"


@pytest.mark.parametrize("content", [ASKED, "Thanks!", "Extract names as JSON from: Alice met Bob at Siemens"])
def test_the_model_may_say_that_nothing_is_needed(first: Groundwire, model: ModelServer, content: str) -> None:
    model.script(text("NONE"), text("Sure."))
    answer = ask(first, content)
    assert answer.headers["x-groundwire-search"] == "off; reason=no_need"
    assert model.requests[1]["messages"] == [{"role": "user", "content": content}]
    assert answer.json()["usage"]["total_tokens"] == 30


@pytest.mark.parametrize(
    "turn",
    [
        Turn(status=500, body=b'{"error":{"message":"broken"}}'),
        Turn(status=400, body=b'{"error":{"message":"no"}}'),
        text("I would be glad to help you with that! What exactly do you want to know?"),
        text(""),
    ],
    ids=["broken", "refused", "chatty", "silent"],
)
def test_where_the_model_says_nothing_of_use_only_a_question_is_searched(
    first: Groundwire, model: ModelServer, turn: Turn
) -> None:
    model.script(turn, text("Scattering [1]."))
    assert said(ask(first, ASKED)) == f"Scattering {LINK}."
    assert "Rayleigh" in model.requests[1]["messages"][0]["content"]
    model.script(turn, text("Sure."))
    answer = ask(first, "Extract names as JSON from: the sky is blue, says Alice")
    assert answer.headers["x-groundwire-search"] == "off; reason=no_question"


def test_keys_of_the_caller_never_leave(config: dict[str, Any], model: ModelServer) -> None:
    key = "gw-a-key-of-the-client"
    (given,) = config["upstreams"]
    upstream = {**given, "tool_calls": "none"}
    model.script(text(f"sky {key}"), text("I do not know."))
    with Groundwire({**config, "upstreams": [upstream], "server": {"keys": [key]}}) as proxy:
        body = {"model": "m", "messages": [{"role": "user", "content": f"What is {key} good for?"}]}
        httpx.post(f"{proxy.url}/chat/completions", json=body, headers={"authorization": f"Bearer {key}"}, timeout=20)
    assert "holds what looks like a key" in model.requests[1]["messages"][0]["content"]


MODES: dict[str, dict[str, Any]] = {
    "none": {"tool_calls": "none"},
    "prompted": {"tool_calls": "prompted"},
    "native": {"tool_calls": "native"},
    "assist": {"assist": True},
}


@pytest.mark.parametrize("mode", MODES)
def test_what_clients_ask_for_themselves_is_never_searched(
    config: dict[str, Any], model: ModelServer, mode: str
) -> None:
    title = (
        "### Task:\nGenerate a concise, 3-5 word title.\n<chat_history>\nUSER: Why is the sky blue?\n</chat_history>"
    )
    model.script(text("Blue sky"))
    (given,) = config["upstreams"]
    with Groundwire({**config, "upstreams": [{**given, **MODES[mode]}]}) as proxy:
        answer = ask(proxy, title)
    assert answer.headers["x-groundwire-search"] == "off; reason=background"
    (request,) = model.requests
    assert request == {"model": "m", "messages": [{"role": "user", "content": title}]}


# What a model refuses


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("status", [400, 429, 503])
@BOTH_WAYS
def test_a_refusal_keeps_its_status(
    first: Groundwire, model: ModelServer, road: str, status: int, stream: bool
) -> None:
    refused = Turn(status=status, body=b'{"error":{"message":"no"}}', headers={"retry-after": "70"})
    model.script(text("sky blue"), refused)
    path, body = ROADS[road]
    answer = httpx.post(f"{first.url}{path}", json={"model": "m", "stream": stream, **body}, timeout=20)
    shown = 529 if road == "messages" and status == 503 else status  # Anthropic's own word for it
    assert (answer.status_code, answer.headers["content-type"]) == (shown, "application/json")
    assert answer.headers["x-groundwire-search"].endswith("searched=first")
    if status != 400:
        assert answer.headers["retry-after"] == "70"
        assert "x-should-retry" not in answer.headers, "the client may come back: what was searched is remembered"


# Room


@contextmanager
def handing(tmp_path: Path, model: BoundedModel, paragraph: str = "", **upstream: Any) -> Iterator[Groundwire]:
    """A folder with more about the sky than any small model can hold."""
    paragraph = paragraph or "The sky is blue, part {}, because air scatters blue light more than red light."
    for name in ("one", "two", "three"):
        text_of_file = "\n\n".join(paragraph.format(f"{name} {number}") for number in range(400))
        (tmp_path / f"{name}.md").write_text(f"# Blue sky {name}\n\n{text_of_file}\n", encoding="utf-8")
    library = {"name": "library", "type": "local", "base_url": SITE, "private": False}
    library["options"] = {"path": str(tmp_path)}
    up = {"name": "up", "base_url": model.url, "tool_calls": "none", **upstream}
    with Groundwire({"upstreams": [up], "providers": [library]}) as proxy:
        yield proxy


@pytest.mark.parametrize("characters", [4.0, 2.5, 1.5], ids=["dense", "usual", "sparse"])
@pytest.mark.parametrize("context", [2048, 4096, 16_384])
def test_what_is_left_of_the_context_is_used_and_no_more(tmp_path: Path, context: int, characters: float) -> None:
    with BoundedModel(context, characters) as model, handing(tmp_path, model) as proxy:
        for _ in range(3):
            answer = ask(proxy, ASKED, max_tokens=300)
            assert said(answer).startswith("Scattering [[1]]")
        assert len(model.requests) == 6, "none was refused"
        assert all(tokens <= context - 300 for tokens in model.asked_with)
        most = min(context, 13_000 / characters + 300)  # nobody is handed more than so much to read
        assert model.asked_with[-1] >= 0.6 * (most - 300)


def test_a_full_conversation_is_handed_nothing(tmp_path: Path) -> None:
    history = [{"role": "user", "content": "word " * 2900}, {"role": "assistant", "content": "Yes."}]
    messages = [*history, {"role": "user", "content": ASKED}]  # 3,600 tokens: it answers when it is asked directly
    with BoundedModel(4096) as model, handing(tmp_path, model) as proxy:
        answer = ask(proxy, "", messages=messages)
        assert said(answer) == "Scattering [1]."
        assert answer.headers["x-groundwire-search"] == "off; reason=no_room"
        assert len(model.asked_with) == 1


def test_a_conversation_that_fills_half_is_handed_less(tmp_path: Path) -> None:
    history = [{"role": "user", "content": "word " * 1200}, {"role": "assistant", "content": "Yes."}]
    with BoundedModel(4096) as model, handing(tmp_path, model) as proxy:
        for before in ([], history):
            messages = [*before, {"role": "user", "content": ASKED}]
            said(ask(proxy, "", messages=messages, max_tokens=300))
        alone, filled = model.asked_with
        assert 0.6 * 4096 < alone < 4096 - 300
        assert 0.8 * 4096 < filled < 4096 - 300


def test_the_context_of_a_slot_of_llama_cpp_counts(tmp_path: Path) -> None:
    with BoundedModel(2048) as model, handing(tmp_path, model) as proxy:
        model.listing = [{"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx": 8192}}]
        model.props = {"default_generation_settings": {"n_ctx": 2048}}
        assert said(ask(proxy, ASKED, max_tokens=300)).startswith("Scattering [[1]]")
        assert len(model.requests) == 2, "none was refused"
        assert model.asked_with[-1] >= 0.5 * 2048


def test_another_script_is_counted_as_what_it_is(tmp_path: Path) -> None:
    with (
        BoundedModel(4096) as model,
        handing(tmp_path, model, "空が青い {} のは空気が青い光をより多く散乱するからです。") as proxy,
    ):
        model.keywords = "空が青い 理由"
        answer = ask(proxy, "空はなぜ青いのですか？", max_tokens=300)
        assert said(answer).startswith("Scattering [[1]]")
        assert len(model.requests) == 2
        assert 0.5 * 4096 < model.asked_with[-1] < 4096 - 300


@pytest.mark.parametrize("road", ROADS)
@BOTH_WAYS
def test_an_overflow_is_asked_again_without_sources(tmp_path: Path, road: str, stream: bool) -> None:
    path, body = ROADS[road]
    with BoundedModel(900, silent=True) as model, handing(tmp_path, model) as proxy:
        answer = httpx.post(f"{proxy.url}{path}", json={"model": "m", "stream": stream, **body}, timeout=20)
        assert answer.status_code == 200, answer.text
        assert "Scattering " in answer.text
        assert SITE not in answer.text.partition("Scattering ")[2].partition("search_results")[0]
        assert len(model.requests) == 3
        assert model.requests[2]["messages"][-1]["content"] == ASKED


def test_a_refusal_teaches_how_the_model_counts(tmp_path: Path) -> None:
    """Nothing is known of it before: it is not asked what to search."""
    with BoundedModel(4096, 1.5) as model, handing(tmp_path, model, rewrite_query=False) as proxy:
        assert said(ask(proxy, ASKED, max_tokens=300)) == "Scattering [1]."
        assert said(ask(proxy, ASKED, max_tokens=300)).startswith("Scattering [[1]]")
        assert len(model.requests) == 3, "one was refused, and asked again"
        assert 0.6 * 4096 < model.asked_with[-1] < 4096 - 300


def test_what_overflows_without_sources_is_the_clients_to_know(tmp_path: Path) -> None:
    with BoundedModel(900) as model, handing(tmp_path, model) as proxy:
        answer = ask(proxy, "word " * 1000, stream=True)
        assert (answer.status_code, "exceeds the available context" in answer.text) == (400, True)


PERSONAL = "Why do I see a blue sky?"


def test_a_question_about_oneself_goes_to_documents_and_to_no_engine(
    first: Groundwire, config: dict[str, Any], model: ModelServer
) -> None:
    """A private SearXNG asks engines of the web: private is not enough."""
    model.script(text(""), text("Scattering."))
    assert ask(first, PERSONAL).headers["x-groundwire-search"] == "offered; reason=auto; searched=first"
    (given,) = config["upstreams"]
    engine = {"name": "searx", "type": "searxng", "base_url": "http://127.0.0.1:9", "private": True}
    settings = {
        **config,
        "upstreams": [{**given, "tool_calls": "none"}],
        "providers": [*config["providers"], engine],
        "tools": {"search": ["library", "searx"]},
    }
    model.script(text(""), text("Scattering."))
    with Groundwire(settings) as other:
        assert ask(other, PERSONAL).headers["x-groundwire-search"] == "off; reason=no_question"
